//! Who may do it? Slots of work that one process holds at a time: lanes of the outbox, partitions of the log, single duties.
//!
//! A lease lets only one work, most of the time. It is not what keeps the work right: an owner that was paused past its lease
//! believes in it still. What keeps the work right is the epoch, asked for again in the transaction that ends it
//! ([`store::still_held`]), and events that bear being repeated.

pub mod store;

use std::time::Duration;

use anyhow::Context;
use sqlx::PgPool;
use tokio::time::Instant;
use uuid::Uuid;

use crate::database;

/// A slot we hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    pub slot: i16,
    pub epoch: i64,
}

/// One process's claim to its share of the slots of a duty.
#[derive(Debug)]
pub struct Leases {
    pool: PgPool,
    duty: &'static str,
    owner: Uuid,
    lease: Duration,
    held: Vec<Held>,
    /// By our clock, counted from before the database was asked: it can only err towards early.
    renew_at: Instant,
}

impl Leases {
    /// Holds nothing until [`Leases::current`] is asked.
    pub fn new(pool: PgPool, duty: &'static str, lease: Duration) -> Self {
        Self { pool, duty, owner: Uuid::new_v4(), lease, held: Vec::new(), renew_at: Instant::now() }
    }

    pub fn owner(&self) -> Uuid {
        self.owner
    }

    /// The slots that are ours now: renewed when a third of the lease is over, and our fair share of them.
    pub async fn current(&mut self) -> anyhow::Result<&[Held]> {
        let asked_at = Instant::now();
        if asked_at >= self.renew_at {
            // If this fails we hold nothing until we hear otherwise.
            self.held.clear();
            let mut tx = database::begin(&self.pool).await?;
            let held = store::hold(&mut tx, self.duty, self.owner, self.lease).await;
            let held = held.with_context(|| format!("asking for leases of {}", self.duty))?;
            tx.commit().await?;
            self.held = held;
            self.renew_at = asked_at + self.lease / 3;
        }
        Ok(&self.held)
    }

    /// Releases everything, so that nobody has to wait for it to run out.
    pub async fn release(&mut self) -> anyhow::Result<()> {
        self.held.clear();
        let mut tx = database::begin(&self.pool).await?;
        store::release(&mut tx, self.duty, self.owner).await?;
        tx.commit().await?;
        Ok(())
    }
}
