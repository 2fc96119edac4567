//! After a refund was given back: is it still so? A bank may turn a refund down days after the gateway had said that it succeeded.
//!
//! The gateway's news say when to look, and where there are none the days do; what is true is asked of the gateway, by the
//! refund's own name. So news may come twice, late and in any order. The row decides once: only a refund that counts as given
//! back can fail, under its order's lock, and with it go the amount, the event and whatever follows from that. The answer that
//! was stored under its key stays what it was.

use std::time::Duration;

use anyhow::Context;
use futures_util::future::join_all;
use time::OffsetDateTime;

use super::Checkout;
use crate::{
    database,
    gateway::{RefundFound, RefundStatus},
    ids::EventId,
    orders::refund_store as balance,
    outbox::{self, store::NewEvent},
    refunds::store::{self as refunds, Due},
    wire::event::{REFUND_FAILED, RefundFailed},
};

/// Refunds that one round asks about, all at once.
const ROUND_MAX: i64 = 32;
/// Longest wait for one answer.
const ASK_MAX: Duration = Duration::from_secs(5);
/// Whoever takes a refund has it this long; who gets no answer leaves it until then.
const LEASE: Duration = Duration::from_secs(30);
/// Days after it was given back on which the gateway is asked without any news: webhooks can be lost, and a refund can fail for
/// about a month.
const LOOKS_D: [i64; 5] = [1, 3, 7, 14, 30];
/// How often it is asked about one that is pending.
const PENDING_PAUSE: time::Duration = time::Duration::hours(1);

/// What one round came to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Followed {
    /// Still given back, or on its way.
    pub confirmed: usize,
    pub failed: usize,
    /// Not told, or known already; a later round looks again.
    pub left: usize,
}

/// Asks about whatever is due. Safe to run anywhere, any number at once.
pub async fn follow_once(checkout: &Checkout) -> anyhow::Result<Followed> {
    let mut tx = database::begin(&checkout.pool).await?;
    let due = refunds::take_due(&mut tx, ROUND_MAX, LEASE).await.context("looking for refunds to follow")?;
    if due.is_empty() {
        tx.rollback().await?;
        return Ok(Followed::default());
    }
    tx.commit().await?;
    let mut round = Followed::default();
    for followed in join_all(due.iter().map(|due| follow(checkout, due))).await {
        match followed {
            Ok(Some(RefundStatus::Failed)) => round.failed += 1,
            Ok(Some(_)) => round.confirmed += 1,
            Ok(None) => round.left += 1,
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "a refund could not be followed");
                round.left += 1;
            }
        }
    }
    Ok(round)
}

/// What it was found to be. `None`: that is not known, or nothing new.
async fn follow(checkout: &Checkout, due: &Due) -> anyhow::Result<Option<RefundStatus>> {
    let (gateway_id, refund) = (due.gateway_id.as_str(), due.id);
    let status = match checkout.gateway.retrieve_refund(gateway_id, ASK_MAX).await {
        RefundFound::Shown(shown) => shown.status,
        // As long as it is not there, it is not told that it failed: a person's, and asked again like a pending one.
        RefundFound::NotThere => {
            tracing::error!(gateway_id, %refund, "ALARM: the gateway does not know a refund that it gave back");
            RefundStatus::Open
        }
        RefundFound::Unreachable { why } => {
            tracing::info!(gateway_id, why, "a refund could not be asked about");
            return Ok(None);
        }
    };
    if status == RefundStatus::Failed {
        return Ok(fail(checkout, due).await?.then_some(status));
    }
    let now = database::clock(&checkout.pool).await?;
    let mut tx = database::begin(&checkout.pool).await?;
    let pending = status != RefundStatus::Succeeded;
    refunds::still_given(&mut tx, due, pending, next_look(due.finished_at, now, pending)).await?;
    tx.commit().await?;
    Ok(Some(status))
}

/// Takes it out of the books, once. False: somebody else did.
async fn fail(checkout: &Checkout, due: &Due) -> anyhow::Result<bool> {
    let event = EventId::mint();
    let mut tx = database::begin(&checkout.pool).await?;
    // Orders first, as every claim and settle locks them.
    balance::lock(&mut tx, &[due.order]).await?;
    if !refunds::fail(&mut tx, due.id, event).await.context("writing down that a refund failed")? {
        tx.rollback().await?;
        return Ok(false);
    }
    let sequence = balance::take_back(&mut tx, due.order, due.amount_minor).await.context("freeing its amount")?;
    let payload = RefundFailed {
        order_id: due.order,
        customer_id: due.customer,
        refund_id: due.id,
        gateway_id: due.gateway_id.clone(),
        amount: due.amount_minor,
        currency: due.currency.clone(),
    };
    let told = NewEvent {
        id: event,
        aggregate: due.order.into(),
        sequence,
        kind: REFUND_FAILED,
        payload: serde_json::to_string(&payload)?,
    };
    outbox::store::append(&mut tx, &[&told]).await.context("telling of it")?;
    tx.commit().await?;
    let Due { id, order, gateway_id, amount_minor, currency, .. } = due;
    tracing::error!(%id, %order, gateway_id, amount_minor, currency, "ALARM: a refund failed; its customer is owed the money");
    Ok(true)
}

/// When the gateway is asked again. Not at all once it is too old to change.
fn next_look(finished_at: OffsetDateTime, now: OffsetDateTime, pending: bool) -> Option<OffsetDateTime> {
    if pending {
        return Some(now + PENDING_PAUSE);
    }
    LOOKS_D.into_iter().map(|days| finished_at + time::Duration::days(days)).find(|look_at| *look_at > now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refund_is_looked_at_less_and_less_often_and_a_pending_one_until_it_is_over() {
        let given = OffsetDateTime::UNIX_EPOCH;
        let after = |days| given + time::Duration::days(days);
        assert_eq!(next_look(given, given, false), Some(after(1)));
        assert_eq!(next_look(given, after(1), false), Some(after(3)));
        assert_eq!(next_look(given, after(13), false), Some(after(14)));
        assert_eq!(next_look(given, after(30), false), None);
        assert_eq!(next_look(given, after(300), true), Some(after(300) + PENDING_PAUSE));
    }
}
