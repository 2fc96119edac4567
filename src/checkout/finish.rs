//! From a claim to an answer: charge, then settle. The request path and recovery both end here.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    Checkout, answer,
    charge::{Charged, Limits, charge},
    evidence::{self, Evidence},
    frozen::Frozen,
    settle::{Booked, Settled, Settlement, settle},
};
use crate::{
    gateway::Outcome,
    idempotency::{
        end_store::Ending,
        record::{Claim, StoredResponse},
    },
    wire::problem::{Code, Problem},
};

/// How a claim ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Finished {
    /// The outcome is known and stored: this is its answer.
    Answered(StoredResponse),
    /// It is open, or was never sent. The key can be asked again.
    Open(Problem),
    /// Another owner took over while we were at it. Its answer counts.
    Fenced,
}

/// `asked_at`: our clock before the claim was asked for.
pub async fn finish(checkout: &Checkout, claim: Claim, asked_at: Instant) -> anyhow::Result<Finished> {
    let frozen = Frozen::read(claim.operation, &claim.frozen)?;
    let ask = frozen.ask(claim.digest)?;
    let limits = Limits::of(&claim, &checkout.timing, asked_at);

    // A first charge has no history, and pays for no look at one.
    let evidence =
        if claim.maybe_sent { evidence::of(&checkout.pool, claim.digest).await? } else { Evidence::default() };
    // In a box: what speaks HTTP is most of the story's size, and every step before it would carry that along.
    let charged = Box::pin(charge(&checkout.gateway, &claim, &ask, limits, &evidence)).await;
    let (settlement, finished) = conclude(claim, &frozen, charged)?;

    Ok(match settle(checkout, &settlement).await? {
        Settled::Done => finished,
        Settled::Fenced => Finished::Fenced,
    })
}

/// What each outcome makes true, and what the client is told.
pub fn conclude(claim: Claim, frozen: &Frozen, charged: Charged) -> anyhow::Result<(Settlement, Finished)> {
    let (ending, booked, finished) = match charged {
        Charged::Known(Outcome::Approved { gateway_id }) => {
            let (booked, response) = answer::approved(&claim, frozen, gateway_id)?;
            (Ending::Completed(response.clone()), booked, Finished::Answered(response))
        }
        Charged::Known(Outcome::Pending { gateway_id }) => {
            let (booked, response) = answer::pending(frozen, gateway_id)?;
            (Ending::Completed(response.clone()), booked, Finished::Answered(response))
        }
        Charged::Known(Outcome::Declined { gateway_id, decline_code, message }) => {
            let (booked, response) = answer::refused(&claim, frozen, gateway_id, decline_code, message)?;
            (Ending::Failed(response.clone()), booked, Finished::Answered(response))
        }
        Charged::Known(Outcome::NotSent { why, retry_after }) => {
            tracing::warn!(gateway_key = %claim.digest, why, "nothing was sent");
            let wait = retry_after.unwrap_or(SECOND);
            (Ending::Released, answer::not_sent(frozen), open(Code::GatewayUnavailable, &why, wait))
        }
        Charged::Known(Outcome::Misconfigured { why }) => {
            tracing::error!(%why, gateway_key = %claim.digest, "ALARM: the gateway does not accept us");
            let told = open(Code::GatewayUnavailable, "the gateway did not accept the request", MINUTE);
            (Ending::Released, answer::not_sent(frozen), told)
        }
        Charged::Known(Outcome::Unknown { why, .. }) => {
            let pause = Duration::from_secs(1 << claim.tries.clamp(0, 8));
            tracing::warn!(gateway_key = %claim.digest, why, tries = claim.tries, "an outcome is unknown");
            (
                Ending::Unknown { pause },
                Booked::Nothing,
                open(Code::OutcomeUnknown, &why, pause.clamp(2 * SECOND, MINUTE)),
            )
        }
        Charged::Untellable => {
            tracing::error!(gateway_key = %claim.digest, "ALARM: an outcome can no longer be found out; it needs review");
            (Ending::NeedsReview, Booked::Nothing, open(Code::OutcomeUnknown, UNDER_REVIEW, MINUTE))
        }
    };
    Ok((Settlement { claim, ending, booked, review: None }, finished))
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// What a client is told while a person looks into it.
pub const UNDER_REVIEW: &str = "the gateway can no longer tell; the payment is under review";

fn open(code: Code, why: &str, wait: Duration) -> Finished {
    Finished::Open(Problem::new(code, why).retry_after(wait))
}
