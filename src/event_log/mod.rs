//! The broker that needs no installation: a log in PostgreSQL, in the manner of Kafka's. Partitions, offsets without gaps,
//! consumers that fetch from where they are.
//!
//! It promises what brokers promise, and no more: what it acknowledged is kept, in order within a partition, and read at least
//! once. An event that is published twice is there twice, at two offsets; an offset names a place, not an event.

pub mod store;

use std::collections::HashSet;

use anyhow::Context;
use sqlx::{PgConnection, PgPool};

use crate::{
    crash_point::crash_point,
    database::{self, days::ByDay},
    ids::AggregateId,
    wire::event::Event,
};

/// Only ever appended to and read.
pub const EVENT_LOG: ByDay = ByDay { table: "event_log", storage: "autovacuum_vacuum_insert_scale_factor = 0.1" };

/// As many as `migrations/0008_event_log.sql` makes. Each is read by one process of a consumer at a time.
pub const PARTITIONS: u8 = 8;

/// Largest payload, in bytes.
const PAYLOAD_BYTES_MAX: usize = 64 * 1024;

/// What became of one event that was to be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// It is in the log, for good.
    Acknowledged,
    /// It will not be taken, this one, however often it is sent.
    Refused { why: String },
    /// An earlier event of its aggregate was refused in the same batch, so this one was not taken either.
    Behind,
}

/// An event as a consumer gets it.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivered {
    pub partition: i16,
    pub offset: i64,
    pub event: Event,
}

/// The partition of an aggregate: all its events are in one, in order.
pub fn partition_of(aggregate: AggregateId) -> i16 {
    i16::try_from(aggregate.0.as_u128() % u128::from(PARTITIONS)).unwrap_or_default()
}

/// Appends a batch in one transaction, in the order given. One answer per event, in order, after the commit.
pub async fn publish(pool: &PgPool, events: &[&Event]) -> anyhow::Result<Vec<Published>> {
    let mut refused: HashSet<AggregateId> = HashSet::new();
    let mut answers = Vec::with_capacity(events.len());
    let mut taken = Vec::with_capacity(events.len());
    for event in events {
        if refused.contains(&event.aggregate) {
            answers.push(Published::Behind);
        } else if event.payload.len() > PAYLOAD_BYTES_MAX {
            refused.insert(event.aggregate);
            let why = format!("its payload has {} bytes, and the log takes {PAYLOAD_BYTES_MAX}", event.payload.len());
            answers.push(Published::Refused { why });
        } else {
            taken.push(*event);
            answers.push(Published::Acknowledged);
        }
    }
    if !taken.is_empty() {
        let mut tx = database::begin(pool).await?;
        store::append(&mut tx, &taken).await.context("appending to the log")?;
        crash_point!(RelaySent);
        tx.commit().await.context("appending to the log")?;
    }
    Ok(answers)
}

/// The next events of each partition from the given offset on, at most `most` altogether and an equal part of each.
pub async fn fetch(connection: &mut PgConnection, from: &[(i16, i64)], most: i64) -> anyhow::Result<Vec<Delivered>> {
    let each = most / i64::try_from(from.len().max(1))?;
    store::fetch(connection, from, each.max(1)).await.context("reading the log")
}
