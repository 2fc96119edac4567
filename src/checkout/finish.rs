//! From a claim to an answer: charge, then settle. The request path and recovery both end here.

use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::Instant;

use super::{
    Checkout,
    charge::{Charged, Limits, charge},
    evidence::{self, Evidence},
    frozen::FrozenOrder,
    settle::{Booked, Settled, Settlement, settle},
};
use crate::{
    charges::store::{ChargeResult, NewCharge},
    gateway::Outcome,
    idempotency::{
        end_store::Ending,
        record::{Claim, StoredResponse},
    },
    ids::EventId,
    orders::store::NewOrder,
    outbox::store::NewEvent,
    wire::{
        event::{ORDER_CREATED, OrderCreated},
        order::{ChargeBody, OrderBody, location},
        problem::{self, Code, Problem},
    },
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
    let frozen = FrozenOrder::read(&claim.frozen)?;
    let request = frozen.charge_request(claim.digest)?;
    let limits = Limits::of(&claim, &checkout.timing, asked_at);

    // A first charge has no history, and pays for no look at one.
    let evidence =
        if claim.maybe_sent { evidence::of(&checkout.pool, claim.digest).await? } else { Evidence::default() };
    let charged = charge(&checkout.gateway, &claim, &request, limits, &evidence).await;
    let (settlement, finished) = conclude(claim, &frozen, charged)?;

    Ok(match settle(checkout, &settlement).await? {
        Settled::Done => finished,
        Settled::Fenced => Finished::Fenced,
    })
}

/// What each outcome makes true, and what the client is told.
pub(super) fn conclude(claim: Claim, frozen: &FrozenOrder, charged: Charged) -> anyhow::Result<(Settlement, Finished)> {
    let (ending, booked, finished) = match charged {
        Charged::Known(Outcome::Approved { gateway_id }) => {
            let rows = order_rows(&claim, frozen, gateway_id)?;
            let response = receipt(frozen, &rows.0, claim.now)?;
            let booked = Booked::Order(Box::new(rows));
            (Ending::Completed(response.clone()), booked, Finished::Answered(response))
        }
        Charged::Known(Outcome::Declined { gateway_id, decline_code, message }) => {
            let charge =
                new_charge(&claim, frozen, ChargeResult::Declined { gateway_id, decline_code: decline_code.clone() })?;
            let response = declined(frozen, decline_code, message);
            (Ending::Failed(response.clone()), Booked::Charge(charge), Finished::Answered(response))
        }
        Charged::Known(Outcome::NotSent { why, retry_after }) => {
            tracing::warn!(gateway_key = %claim.digest, why, "nothing was sent");
            let wait = retry_after.unwrap_or(SECOND);
            (Ending::Released, Booked::Nothing, open(Code::GatewayUnavailable, &why, wait))
        }
        Charged::Known(Outcome::Misconfigured { why }) => {
            tracing::error!(%why, gateway_key = %claim.digest, "ALARM: the gateway does not accept us");
            (
                Ending::Released,
                Booked::Nothing,
                open(Code::GatewayUnavailable, "the gateway did not accept the charge", MINUTE),
            )
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

fn new_charge(claim: &Claim, frozen: &FrozenOrder, result: ChargeResult) -> anyhow::Result<NewCharge> {
    Ok(NewCharge {
        id: frozen.charge_id,
        customer: frozen.customer_id,
        key_digest: claim.digest.0,
        amount: frozen.money()?,
        result,
    })
}

fn order_rows(
    claim: &Claim,
    frozen: &FrozenOrder,
    gateway_id: String,
) -> anyhow::Result<(NewCharge, NewOrder, NewEvent)> {
    let order = NewOrder {
        id: frozen.order_id,
        customer: frozen.customer_id,
        charge: frozen.charge_id,
        key_digest: claim.digest.0,
        total: frozen.money()?,
        lines: frozen.lines.clone(),
        client_reference: frozen.client_reference.clone(),
        created_at: claim.now,
    };
    let payload = OrderCreated {
        order_id: frozen.order_id,
        customer_id: frozen.customer_id,
        charge_id: frozen.charge_id,
        gateway_id: gateway_id.clone(),
        lines: frozen.lines.clone(),
        total: frozen.total,
        currency: frozen.currency.clone(),
    };
    let charge = new_charge(claim, frozen, ChargeResult::Succeeded { gateway_id })?;
    let event = NewEvent {
        id: EventId::mint(),
        order: frozen.order_id,
        sequence: 1,
        kind: ORDER_CREATED,
        payload: serde_json::to_string(&payload)?,
    };
    Ok((charge, order, event))
}

/// The 201, as bytes: what is stored now is what every replay sends.
fn receipt(frozen: &FrozenOrder, charge: &NewCharge, created_at: OffsetDateTime) -> anyhow::Result<StoredResponse> {
    let ChargeResult::Succeeded { gateway_id } = &charge.result else {
        anyhow::bail!("a receipt for a charge that did not succeed")
    };
    let body = OrderBody {
        id: frozen.order_id,
        status: "paid",
        items: &frozen.lines,
        total: frozen.total,
        currency: charge.amount.currency(),
        charge: ChargeBody { id: frozen.charge_id, status: "succeeded", gateway_id },
        client_reference: frozen.client_reference.as_deref(),
        created_at,
        request_id: Some(frozen.request_id),
    };
    Ok(StoredResponse {
        status: 201,
        content_type: "application/json".to_owned(),
        location: Some(location(frozen.order_id)),
        body: serde_json::to_vec(&body)?,
    })
}

/// The 402, as bytes.
fn declined(frozen: &FrozenOrder, decline_code: String, message: String) -> StoredResponse {
    let mut problem = Problem::new(Code::CardDeclined, message);
    problem.decline_code = Some(decline_code);
    StoredResponse {
        status: Code::CardDeclined.status(),
        content_type: problem::CONTENT_TYPE.to_owned(),
        location: None,
        body: problem.body(frozen.request_id),
    }
}
