//! Step 5, settle: one transaction in which the record, the charge, the order, the event and the answer all become true, or
//! none of them. What may be written? Only what the fenced update returned.

use std::{collections::HashSet, future::Future, time::Duration};

use sqlx::{PgConnection, PgPool};

use super::{
    Checkout,
    frozen::FrozenRefund,
    refund::{self, RefundEnd},
};
use crate::{
    charges::{self, store::NewCharge},
    crash_point::crash_point,
    database::{
        self,
        group_commit::{Batch, NoVerdict},
    },
    idempotency::{
        end_store::{self, Ending},
        key::ScopeDigest,
        record::{Claim, State},
        store,
    },
    ids::OrderId,
    orders::{self, store::NewOrder},
    outbox::{self, store::NewEvent},
    reviews::{self, store::NewReview},
};

/// How a claim ends, and what becomes true with it.
#[derive(Debug, Clone)]
pub struct Settlement {
    pub claim: Claim,
    pub ending: Ending,
    pub booked: Booked,
    /// The decision of a person that ends it, kept if and only if it does.
    pub review: Option<NewReview>,
}

/// The rows of business that an ending brings.
#[derive(Debug, Clone)]
pub enum Booked {
    Nothing,
    /// A declined attempt: a failed charge, no order, no event.
    Declined(NewCharge),
    Order(Box<(NewCharge, NewOrder, NewEvent)>),
    /// A charge that stands alone.
    Charge(Box<(NewCharge, NewEvent)>),
    Refund(Box<(FrozenRefund, RefundEnd)>),
}

impl Booked {
    fn refunded_order(&self) -> Option<OrderId> {
        match self {
            Self::Refund(rows) => Some(rows.0.order_id),
            Self::Nothing | Self::Declined(_) | Self::Order(_) | Self::Charge(_) => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Committed, now or by an earlier run whose acknowledgement was lost.
    Done,
    /// Somebody else owns the record. Nothing was written.
    Fenced,
}

/// Settles, insisting for a few seconds: after the charge there is no way back, only a database to wait for.
pub async fn settle(checkout: &Checkout, settlement: &Settlement) -> Result<Settled, NoVerdict> {
    const PAUSES_MS: [u64; 3] = [50, 200, 800];
    persist(&PAUSES_MS, || checkout.endings.submit(settlement.clone())).await
}

/// Tries a database step again after each pause. Only the database step, never the charge.
pub async fn persist<T, F: Future<Output = Result<T, NoVerdict>>>(
    pauses_ms: &[u64],
    step: impl Fn() -> F,
) -> Result<T, NoVerdict> {
    for &pause_ms in pauses_ms {
        match step().await {
            Err(NoVerdict::Database(error)) => {
                tracing::warn!(%error, pause_ms, "a database step failed and is tried again");
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            }
            verdict => return verdict,
        }
    }
    step().await
}

/// The settle transaction over a batch.
#[derive(Debug)]
pub struct Endings {
    pool: PgPool,
}

impl Endings {
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }
}

impl Batch for Endings {
    type Item = Settlement;
    type Verdict = Settled;

    async fn run(&self, settlements: &[Settlement]) -> sqlx::Result<Vec<Settled>> {
        // In the order of the digests, as every claim and settle does: two batches never wait for each other in a ring.
        let mut sorted: Vec<&Settlement> = settlements.iter().collect();
        sorted.sort_unstable_by_key(|settlement| settlement.claim.digest);
        let endings: Vec<_> = sorted.iter().map(|settlement| (&settlement.claim, &settlement.ending)).collect();

        let mut tx = database::begin(&self.pool).await?;
        // Orders before records, as the claim locks them.
        let refunded: Vec<OrderId> =
            sorted.iter().filter_map(|settlement| settlement.booked.refunded_order()).collect();
        if !refunded.is_empty() {
            orders::refund_store::lock(&mut tx, &refunded).await?;
        }
        let ended = end_store::end(&mut tx, &endings).await?;
        book(&mut tx, sorted.iter().copied().filter(|settlement| ended.contains(&owner(&settlement.claim)))).await?;
        let missed: Vec<&Claim> =
            sorted.iter().map(|settlement| &settlement.claim).filter(|claim| !ended.contains(&owner(claim))).collect();
        let done_before = if missed.is_empty() { HashSet::new() } else { ended_by_us(&mut tx, &missed).await? };
        crash_point!(SettleBeforeCommit);
        tx.commit().await?;
        crash_point!(SettleCommitted);

        let done = |claim| ended.contains(&owner(claim)) || done_before.contains(&owner(claim));
        Ok(settlements.iter().map(|s| if done(&s.claim) { Settled::Done } else { Settled::Fenced }).collect())
    }
}

/// Writes the rows of business of these settlements.
pub(crate) async fn book<'a>(
    tx: &mut PgConnection,
    settlements: impl Iterator<Item = &'a Settlement>,
) -> sqlx::Result<()> {
    let (mut new_charges, mut new_orders, mut new_events) = (Vec::new(), Vec::new(), Vec::new());
    let (mut told, mut new_reviews) = (Vec::new(), Vec::new());
    for settlement in settlements {
        match &settlement.booked {
            Booked::Nothing => {}
            Booked::Declined(charge) => new_charges.push(charge),
            Booked::Order(rows) => {
                let (charge, order, event) = &**rows;
                new_charges.push(charge);
                new_orders.push(order);
                new_events.push(event);
            }
            Booked::Charge(rows) => {
                let (charge, event) = &**rows;
                new_charges.push(charge);
                new_events.push(event);
            }
            Booked::Refund(rows) => told.extend(refund::end(&mut *tx, &rows.0, &rows.1).await?),
        }
        new_reviews.extend(&settlement.review);
    }
    if !new_charges.is_empty() {
        charges::store::insert(&mut *tx, &new_charges).await?;
    }
    if !new_orders.is_empty() {
        orders::store::insert(&mut *tx, &new_orders).await?;
    }
    new_events.extend(&told);
    if !new_events.is_empty() {
        outbox::store::append(&mut *tx, &new_events).await?;
    }
    for review in new_reviews {
        reviews::store::insert(&mut *tx, review).await?;
    }
    Ok(())
}

/// Who a settlement belongs to: two owners of one key can meet in a batch.
fn owner(claim: &Claim) -> (ScopeDigest, i32) {
    (claim.digest, claim.fence)
}

/// Which of these claims were ended under their own attempt and fence before: their COMMIT went through unacknowledged.
async fn ended_by_us(tx: &mut PgConnection, claims: &[&Claim]) -> sqlx::Result<HashSet<(ScopeDigest, i32)>> {
    let digests: Vec<ScopeDigest> = claims.iter().map(|claim| claim.digest).collect();
    let newest = store::newest(tx, &digests).await?;
    let ours = |claim: &&&Claim| {
        newest.records.get(&claim.digest).is_some_and(|record| {
            record.attempt == claim.attempt && record.fence == claim.fence && record.holding.state() != State::InFlight
        })
    };
    Ok(claims.iter().filter(ours).map(|claim| owner(claim)).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_database_step_is_tried_again_and_a_refusal_is_not() {
        let failing = |failures: usize, how: fn() -> NoVerdict| {
            let steps = AtomicUsize::new(0);
            async move {
                let step = || async {
                    let step = steps.fetch_add(1, Ordering::Relaxed);
                    if step < failures { Err(how()) } else { Ok(step) }
                };
                let verdict = persist(&[1, 1], step).await;
                (verdict.ok(), steps.load(Ordering::Relaxed))
            }
        };
        let database = || NoVerdict::Database(std::sync::Arc::new(sqlx::Error::PoolTimedOut));
        assert_eq!(failing(0, database).await, (Some(0), 1));
        assert_eq!(failing(2, database).await, (Some(2), 3));
        assert_eq!(failing(9, database).await, (None, 3));
        assert_eq!(failing(9, || NoVerdict::Overloaded).await, (None, 1));
    }
}
