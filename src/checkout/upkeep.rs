//! The days: which tables come and go by the day, and how long each day is needed.
//!
//! An event's rows are needed until everybody has them: in the outbox until it is sent, in the log until the slowest consumer
//! has read it, and in `processed`, which is what makes a repetition harmless, until nothing is left that could repeat it. And
//! a day is needed where its events have yet to arrive: as long as the outbox has it, so have the log and `processed`.

use std::time::Duration;

use anyhow::Context;
use sqlx::{PgConnection, PgPool};
use time::Date;

use crate::{
    config::Timing,
    database::days::{self, ByDay, Maintained, Needed},
    event_log::{self, EVENT_LOG},
    idempotency::partitions::{self, RECORDS},
    inbox::{self, PROCESSED},
    outbox::{self, OUTBOX},
    parking,
};

/// What was done to one table.
pub type Kept = (&'static str, Maintained);

/// Makes the days ahead and drops those that nobody needs, for every table that has days.
pub async fn keep_days(pool: &PgPool, timing: &Timing) -> anyhow::Result<Vec<Kept>> {
    let keep = Duration::from_secs(u64::from(timing.events_kept_days) * 24 * 3600);
    // In the order in which events travel: a day that is gone here cannot come back there.
    // Each gets its turn before anybody's failure is told: one table's trouble must not cost the others their days.
    let records = partitions::maintain(pool, timing.key_expiry()).await;
    let outbox = days::maintain(pool, OUTBOX, keep, Unsent).await;
    let log = days::maintain(pool, EVENT_LOG, keep, Unread).await;
    let processed = days::maintain(pool, PROCESSED, keep, Repeatable).await;
    Ok(vec![(RECORDS.table, records?), (OUTBOX.table, outbox?), (EVENT_LOG.table, log?), (PROCESSED.table, processed?)])
}

/// An event that no log has yet.
struct Unsent;

impl Needed for Unsent {
    async fn is_needed(&self, connection: &mut PgConnection, day: Date) -> anyhow::Result<bool> {
        Ok(outbox::store::holds_unsent(connection, day).await?)
    }
}

/// An event that some consumer has not read yet, or that the log is yet to get.
struct Unread;

impl Needed for Unread {
    async fn is_needed(&self, connection: &mut PgConnection, day: Date) -> anyhow::Result<bool> {
        let read = inbox::store::slowest(connection).await?;
        Ok(OUTBOX.attached(connection).await?.contains(&day)
            || event_log::store::holds_unread(connection, day, &read).await?)
    }

    async fn expected(&self, connection: &mut PgConnection) -> anyhow::Result<Vec<Date>> {
        OUTBOX.attached(connection).await
    }
}

/// An event that may still arrive once more.
struct Repeatable;

impl Needed for Repeatable {
    async fn is_needed(&self, connection: &mut PgConnection, day: Date) -> anyhow::Result<bool> {
        Ok(OUTBOX.attached(connection).await?.contains(&day)
            || EVENT_LOG.attached(connection).await?.contains(&day)
            || parking::store::holds_any(connection, day).await.context("looking for held events")?)
    }

    async fn expected(&self, connection: &mut PgConnection) -> anyhow::Result<Vec<Date>> {
        EVENT_LOG.attached(connection).await
    }
}

/// Days from today on that every table has a partition for, today included. Zero: orders cannot be taken.
pub async fn days_ahead(pool: &PgPool) -> anyhow::Result<usize> {
    let mut fewest = usize::MAX;
    for table in [RECORDS, OUTBOX, EVENT_LOG, PROCESSED] as [ByDay; 4] {
        fewest = fewest.min(table.ahead(pool).await?);
    }
    Ok(fewest)
}
