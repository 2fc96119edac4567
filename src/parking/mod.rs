//! Events that somebody could not deal with, and those of the same aggregate that wait behind them. Everybody else's flow on.
//!
//! Only the first event of an aggregate is ever tried; when it is through, the next one is first. After [`ATTEMPTS_MAX`] failures it
//! is parked: it stays until a person sends it on ([`redrive`]), and the later ones of its aggregate stay behind it.

pub mod store;

use anyhow::Context;
use sqlx::PgPool;
use time::OffsetDateTime;

use crate::{database, ids::EventId, wire::event::Event};

/// Failures after which nobody tries by himself any more: with the pauses between them, a quarter of a minute.
pub const ATTEMPTS_MAX: i32 = 5;

/// An event out of the flow.
#[derive(Debug, Clone, PartialEq)]
pub struct Parked {
    pub stage: String,
    pub event: Event,
    /// How often it failed; 0 if it only waits behind another one.
    pub attempts: i32,
    pub error: Option<String>,
    /// Whether a person has to say so before it is tried again.
    pub parked: bool,
    pub held_since: OffsetDateTime,
}

/// An event that waits for a person, and how many of its aggregate wait behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    pub first: Parked,
    pub behind: i64,
}

/// Sends parked events on: one, or all of a stage. They are tried again at once, each aggregate's in their order. Returns how
/// many.
pub async fn redrive(pool: &PgPool, stage: Option<&str>, event: Option<EventId>) -> anyhow::Result<u64> {
    let mut tx = database::begin(pool).await?;
    let redriven = store::redrive(&mut tx, stage, event).await.context("sending parked events on")?;
    tx.commit().await?;
    Ok(redriven)
}
