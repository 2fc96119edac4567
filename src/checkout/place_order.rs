//! The story of `POST /v1/orders`, from the claim on. The door has read the request; the shield keeps this running when the
//! client hangs up.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::{
    Checkout,
    admission::{Ticket, overloaded},
    claim::{ClaimOutcome, ClaimRequest, NewPurchase, NoClaim, claim},
    finish::{Finished, UNDER_REVIEW, finish},
    frozen::FrozenOrder,
};
use crate::{
    crash_point::crash_point,
    idempotency::{
        fingerprint::Fingerprints,
        key::Scope,
        record::{Holding, StoredResponse},
        store,
    },
    ids::{AttemptId, OrderId, RequestId},
    orders::{catalogue, request::OrderRequest},
    wire::{
        order::location,
        problem::{Code, Problem},
    },
};

/// One attempt to place an order, as the door read it.
#[derive(Debug, Clone)]
pub struct PlaceOrder {
    pub scope: Scope,
    pub fingerprints: Fingerprints,
    pub order: OrderRequest,
    pub request_id: RequestId,
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

/// `ticket`: the right to begin a new purchase, or what to say when this would be one.
pub async fn place_order(
    checkout: &Checkout,
    attempt: PlaceOrder,
    mut ticket: Result<Ticket, Problem>,
) -> anyhow::Result<Reply> {
    let asked_at = Instant::now();
    let admission = admit(&attempt.order, &ticket);
    let request = claim_request(&attempt, admission.as_ref().ok())?;

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
        Ok(ClaimOutcome::Expired { resource_id }) => return Ok(expired(resource_id)),
        Ok(ClaimOutcome::NeedsReview) => return Ok(under_review()),
        Ok(ClaimOutcome::NotAdmitted) => return Ok(Reply::Problem(admission.err().unwrap_or_else(overloaded))),
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

/// The checks that depend on the moment. They may refuse only what would be new: the claim decides whether it is.
fn admit(order: &OrderRequest, ticket: &Result<Ticket, Problem>) -> Result<catalogue::Priced, Problem> {
    match ticket {
        Err(refusal) => Err(refusal.clone()),
        Ok(_) => catalogue::price(order).map_err(Problem::invalid),
    }
}

/// What is frozen if this turns out to be new.
fn claim_request(attempt: &PlaceOrder, priced: Option<&catalogue::Priced>) -> anyhow::Result<ClaimRequest> {
    let new = match priced {
        None => None,
        Some(priced) => {
            let frozen = FrozenOrder::new(attempt.scope.customer, attempt.request_id, &attempt.order, priced.clone());
            Some(NewPurchase { resource_id: frozen.order_id.0, frozen: frozen.to_text()? })
        }
    };
    Ok(ClaimRequest {
        digest: attempt.scope.digest(),
        scope: attempt.scope.clone(),
        fingerprints: attempt.fingerprints.clone(),
        attempt: AttemptId::mint(),
        new,
    })
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

fn expired(resource_id: Uuid) -> Reply {
    let mut problem = Problem::new(Code::IdempotencyKeyExpired, "What it bought is at the Location of this answer.");
    problem.location = Some(location(OrderId(resource_id)));
    Reply::Problem(problem)
}

fn under_review() -> Reply {
    Reply::Problem(Problem::new(Code::OutcomeUnknown, UNDER_REVIEW).retry_after(Duration::from_secs(60)))
}

/// This attempt has sent nothing, and nothing will be sent for it. An earlier one may have, so it is not final.
fn unavailable(why: &NoClaim) -> Reply {
    tracing::error!(%why, "an order could not be claimed");
    let detail = "This attempt charged nothing. Send it again under the same key.";
    Reply::Problem(Problem::new(Code::Unavailable, detail).retry_after(Duration::from_secs(2)))
}

/// The claim may stand although nobody heard so; then recovery charges it. Anything else would be a promise we cannot keep.
fn in_doubt(why: &NoClaim) -> Reply {
    tracing::error!(%why, "an order may have been claimed");
    let detail = "Contact with the database was lost on the way. Ask again under the same key.";
    Reply::Problem(Problem::new(Code::OutcomeUnknown, detail).retry_after(Duration::from_secs(2)))
}
