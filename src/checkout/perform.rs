//! The story of every keyed POST, from the claim on. The door has read the request; the shield keeps this running when the
//! client hangs up.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    Checkout,
    admission::{Ticket, overloaded},
    claim::{ClaimOutcome, ClaimRequest, New, NoClaim, claim},
    finish::{Finished, UNDER_REVIEW, finish},
    frozen::{Frozen, FrozenCharge, FrozenOrder},
    refund::{TooMuch, WantedRefund},
};
use crate::{
    charges::request::ChargeRequest,
    crash_point::crash_point,
    idempotency::{
        fingerprint::Fingerprints,
        key::Scope,
        record::{Holding, StoredResponse},
        store,
    },
    ids::{AttemptId, RequestId},
    orders::{catalogue, request::OrderRequest},
    wire::problem::{Code, Problem},
};

/// One attempt to do something, as the door read it.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub scope: Scope,
    pub fingerprints: Fingerprints,
    pub wanted: Wanted,
    pub request_id: RequestId,
}

/// What is to be done under the key.
#[derive(Debug, Clone)]
pub enum Wanted {
    Order(OrderRequest),
    /// An amount, and nothing that is bought with it.
    Charge(ChargeRequest),
    Refund(WantedRefund),
}

/// What goes back to the client.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// This attempt did it.
    Fresh(StoredResponse),
    /// An earlier attempt did it; these are its bytes.
    Replayed(StoredResponse),
    Problem(Problem),
}

/// `ticket`: the right to begin something new, or what to say when this would be that.
pub async fn perform(
    checkout: &Checkout,
    attempt: Attempt,
    mut ticket: Result<Ticket, Problem>,
) -> anyhow::Result<Reply> {
    let asked_at = Instant::now();
    let admission = admit(&attempt, &ticket)?;
    let request = ClaimRequest {
        digest: attempt.scope.digest(),
        scope: attempt.scope.clone(),
        fingerprints: attempt.fingerprints.clone(),
        attempt: AttemptId::mint(),
        new: admission.as_ref().ok().cloned(),
    };

    crash_point!(OrderBeforeClaim);
    let outcome = claim(checkout, &request).await;
    if let Ok(ticket) = &mut ticket {
        ticket.account(&outcome);
    }
    let claim = match outcome {
        Ok(ClaimOutcome::Execute(claim) | ClaimOutcome::Resume(claim)) => claim,
        Ok(ClaimOutcome::Replay(response)) => return Ok(Reply::Replayed(response)),
        Ok(ClaimOutcome::InFlight { retry_after }) => return Ok(in_progress(retry_after)),
        Ok(ClaimOutcome::Mismatch) => return Ok(key_reused()),
        Ok(ClaimOutcome::Expired { location }) => return Ok(expired(location)),
        Ok(ClaimOutcome::NeedsReview) => return Ok(under_review()),
        Ok(ClaimOutcome::NotAdmitted) => return Ok(Reply::Problem(admission.err().unwrap_or_else(overloaded))),
        Ok(ClaimOutcome::TooMuch(too_much)) => return Ok(exceeds_balance(too_much)),
        Err(NoClaim::Overloaded) => return Ok(Reply::Problem(overloaded())),
        Err(never_made @ NoClaim::NeverMade(_)) => return Ok(unavailable(&never_made)),
        Err(doubtful @ NoClaim::Doubtful(_)) => return Ok(in_doubt(&doubtful)),
    };

    crash_point!(OrderClaimed);
    let finished = finish(checkout, claim, asked_at).await?;
    crash_point!(OrderBeforeReply);
    match finished {
        Finished::Answered(response) => Ok(Reply::Fresh(response)),
        Finished::Open(problem) => Ok(Reply::Problem(problem)),
        Finished::Fenced => what_the_other_owner_answered(checkout, &attempt.scope).await,
    }
}

/// The checks that depend on the moment, and what is frozen if this turns out to be new. They may refuse only what would be
/// new: the claim decides whether it is. (What is left to refund is asked inside the claim.)
fn admit(attempt: &Attempt, ticket: &Result<Ticket, Problem>) -> anyhow::Result<Result<New, Problem>> {
    if let Err(refusal) = ticket {
        return Ok(Err(refusal.clone()));
    }
    let (customer, request_id) = (attempt.scope.customer, attempt.request_id);
    let frozen = match &attempt.wanted {
        Wanted::Order(order) => match catalogue::price(order) {
            Ok(priced) => Frozen::Order(FrozenOrder::new(customer, request_id, order, priced)),
            Err(errors) => return Ok(Err(Problem::invalid(errors))),
        },
        Wanted::Charge(charge) => Frozen::Charge(FrozenCharge::new(customer, request_id, charge)),
        Wanted::Refund(refund) => return Ok(Ok(New::Refund(refund.clone()))),
    };
    Ok(Ok(New::Ready { resource_id: frozen.resource_id(), frozen: frozen.to_text()? }))
}

/// We were too slow and somebody took over. If they are done, their answer is the answer.
async fn what_the_other_owner_answered(checkout: &Checkout, scope: &Scope) -> anyhow::Result<Reply> {
    let record = store::find(&checkout.pool, scope).await?.map(|(_, record)| record.holding);
    Ok(match record {
        Some(Holding::Completed(response) | Holding::Failed(response)) => Reply::Replayed(response),
        Some(Holding::NeedsReview) => under_review(),
        Some(Holding::InFlight { .. } | Holding::Unknown) | None => in_progress(Duration::from_secs(1)),
    })
}

fn in_progress(retry_after: Duration) -> Reply {
    let problem = Problem::new(Code::RequestInProgress, "An earlier request under this key has not been answered yet.");
    Reply::Problem(problem.retry_after(retry_after))
}

fn key_reused() -> Reply {
    let detail =
        "The same key arrived before with another method, path or body. A retry repeats its request unchanged.";
    Reply::Problem(Problem::new(Code::IdempotencyKeyReused, detail))
}

fn expired(location: String) -> Reply {
    let mut problem = Problem::new(Code::IdempotencyKeyExpired, "What it bought is at the Location of this answer.");
    problem.location = Some(location);
    Reply::Problem(problem)
}

fn exceeds_balance(TooMuch { left_minor }: TooMuch) -> Reply {
    let detail = format!(
        "Of this order {left_minor} can still be refunded, with refunds under way counted as made. Ask for no more than that, or \
         look at the order again when they are decided."
    );
    Reply::Problem(Problem::new(Code::RefundExceedsBalance, detail))
}

fn under_review() -> Reply {
    Reply::Problem(Problem::new(Code::OutcomeUnknown, UNDER_REVIEW).retry_after(Duration::from_secs(60)))
}

/// This attempt has sent nothing, and nothing will be sent for it. An earlier one may have, so it is not final.
fn unavailable(why: &NoClaim) -> Reply {
    tracing::error!(%why, "a key could not be claimed");
    let detail = "This attempt moved no money. Send it again under the same key.";
    Reply::Problem(Problem::new(Code::Unavailable, detail).retry_after(Duration::from_secs(2)))
}

/// The claim may stand although nobody heard so; then recovery goes on with it. Anything else would be a promise we cannot keep.
fn in_doubt(why: &NoClaim) -> Reply {
    tracing::error!(%why, "a key may have been claimed");
    let detail = "Contact with the database was lost on the way. Ask again under the same key.";
    Reply::Problem(Problem::new(Code::OutcomeUnknown, detail).retry_after(Duration::from_secs(2)))
}
