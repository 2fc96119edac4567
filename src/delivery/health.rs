//! How much is waiting after the order, for how long, and for whom? One bounded look at the database, for whoever watches.
//!
//! The look must cost the same on the worst day: what can pile up is counted up to [`COUNTED_MAX`], and how long the oldest
//! has waited is one probe.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::Context;
use sqlx::PgPool;
use uuid::Uuid;

use super::health_store as store;

/// Where a count stops. There may be a million; beyond this the age of the oldest says more.
pub const COUNTED_MAX: i64 = 100_000;

/// What waits, and who works.
#[derive(Debug, Clone, PartialEq)]
pub struct Health {
    pub outbox: Outbox,
    /// In the order of their names.
    pub consumers: Vec<Consumer>,
    /// The relay and the consumers, in the order of their names.
    pub stages: Vec<Stage>,
    pub keys: Keys,
    /// By duty, then by owner.
    pub leases: Vec<Lease>,
}

/// Events that no log has yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outbox {
    /// At most [`COUNTED_MAX`].
    pub unsent: i64,
    pub oldest_unsent_age_s: Option<f64>,
}

/// How far behind the log a consumer is.
#[derive(Debug, Clone, PartialEq)]
pub struct Consumer {
    pub name: String,
    /// Places in the log that it has not acknowledged; repetitions count.
    pub lag: i64,
    pub oldest_unread_age_s: Option<f64>,
}

/// Events out of the flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    pub name: String,
    /// Tried again without a person, or behind one that is. At most [`COUNTED_MAX`].
    pub held: i64,
    /// Until a person says so. At most [`COUNTED_MAX`].
    pub parked: i64,
}

/// Keys without an answer that somebody should be looking at. Each at most [`COUNTED_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keys {
    pub unknown: i64,
    pub needs_review: i64,
    /// Their owner is gone, and nobody has taken over yet.
    pub in_flight_expired: i64,
}

/// Slots of one duty in the hands of one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub duty: String,
    pub owner: Uuid,
    pub slots: i64,
}

impl Health {
    pub async fn read(pool: &PgPool) -> anyhow::Result<Self> {
        let mut connection = pool.acquire().await.context("no database connection")?;
        Ok(Self {
            outbox: store::outbox(&mut connection, COUNTED_MAX).await.context("looking at the outbox")?,
            consumers: store::consumers(&mut connection).await.context("looking at the consumers")?,
            stages: store::stages(&mut connection, COUNTED_MAX).await.context("looking at held events")?,
            keys: store::keys(&mut connection, COUNTED_MAX).await.context("looking at open keys")?,
            leases: store::leases(&mut connection).await.context("looking at the leases")?,
        })
    }

    /// Whether nothing is on its way any more. What is parked is not: it stands.
    pub fn is_drained(&self) -> bool {
        self.outbox.unsent == 0
            && self.consumers.iter().all(|consumer| consumer.lag == 0)
            && self.stages.iter().all(|stage| stage.held == 0)
    }

    /// Of one duty, over all owners.
    pub fn slots_held(&self, duty: &str) -> i64 {
        self.leases.iter().filter(|lease| lease.duty == duty).map(|lease| lease.slots).sum()
    }
}

/// Counts what one process does, from its start on.
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<AtomicU64>);

impl Tally {
    pub fn add(&self, more: usize) {
        self.0.fetch_add(more as u64, Ordering::Relaxed);
    }

    pub fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
