//! The SQL of the audit: each invariant as a question whose answer should be empty, all asked of one snapshot.
//!
//! Every question answers with at most a hundred rows and, in each, how many there are. They read whole tables, so the planner
//! gets back the joins that the order path forbids, and time.

pub(super) mod charges;
pub(super) mod effects;
pub(super) mod events;
pub(super) mod findings;
pub(super) mod keys;
pub(super) mod orders;
pub(super) mod refunds;

use sqlx::{Executor as _, PgConnection, PgPool, Postgres, Transaction};
use time::Date;

use super::report::{Batch, Counted, Example};
use crate::{event_log::EVENT_LOG, idempotency::record::State, outbox::OUTBOX};

/// Half a million orders are judged in a few seconds; these only bound what could go wrong.
const SETTINGS: &str = "
    SET LOCAL statement_timeout = '120s';
    SET LOCAL idle_in_transaction_session_timeout = '120s';
    SET LOCAL work_mem = '64MB';
    SET LOCAL plan_cache_mode = 'auto';
    SET LOCAL enable_seqscan = on;
    SET LOCAL enable_hashjoin = on;
    SET LOCAL enable_mergejoin = on;
    SET LOCAL jit = off";

/// One view of the whole database, however long the audit takes and whatever is settled meanwhile.
///
/// The days are locked before the snapshot is taken: one that were dropped in the middle would look like a day on which
/// everything was lost. Their maintainer gives way, and comes again.
pub(super) async fn snapshot(pool: &PgPool) -> sqlx::Result<Transaction<'static, Postgres>> {
    let mut tx = pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    tx.execute(SETTINGS).await?;
    tx.execute("LOCK TABLE idempotency_records, outbox, event_log, processed IN ACCESS SHARE MODE").await?;
    Ok(tx)
}

/// The days that are still kept.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) outbox: Vec<Date>,
    pub(super) log: Vec<Date>,
}

pub(super) async fn kept(tx: &mut PgConnection) -> anyhow::Result<Kept> {
    Ok(Kept { outbox: OUTBOX.attached(&mut *tx).await?, log: EVENT_LOG.attached(tx).await? })
}

pub(super) async fn counts(tx: &mut PgConnection) -> sqlx::Result<Counted> {
    let totals = sqlx::query!(
        r#"SELECT (SELECT count(*) FROM orders) AS "orders!", (SELECT count(*) FROM charges) AS "charges!",
                  (SELECT count(*) FROM refunds) AS "refunds!",
                  (SELECT count(*) FROM outbox) AS "events!", (SELECT count(*) FROM ledger_entries) AS "entries!",
                  (SELECT count(*) FROM receipts) AS "receipts!",
                  (SELECT count(*) FROM parked_events WHERE next_attempt_at IS NOT NULL) AS "held!""#
    )
    .fetch_one(&mut *tx)
    .await?;
    let rows = sqlx::query!(r#"SELECT state, count(*) AS "count!" FROM idempotency_records GROUP BY state"#)
        .fetch_all(&mut *tx)
        .await?;
    let open = sqlx::query!(
        r#"WITH moment AS MATERIALIZED (SELECT db_clock() AS now)
           SELECT count(*) FILTER (WHERE first_sent_at IS NULL AND lease_until < moment.now) AS "released!",
                  EXTRACT(EPOCH FROM max(moment.now - first_sent_at))::bigint AS oldest_s
           FROM idempotency_records, moment WHERE state IN ('in_flight', 'unknown')"#
    )
    .fetch_one(tx)
    .await?;
    let of = |state: State| rows.iter().find(|row| row.state == state.name()).map_or(0, |row| row.count.unsigned_abs());
    Ok(Counted {
        orders: totals.orders.unsigned_abs(),
        charges: totals.charges.unsigned_abs(),
        refunds: totals.refunds.unsigned_abs(),
        events: totals.events.unsigned_abs(),
        entries: totals.entries.unsigned_abs(),
        receipts: totals.receipts.unsigned_abs(),
        held: totals.held.unsigned_abs(),
        records: State::ALL.into_iter().map(|state| (state.name(), of(state))).collect(),
        needs_review: of(State::NeedsReview),
        released: open.released.unsigned_abs(),
        // A clock that was set back leaves no negative age.
        oldest_open_s: open.oldest_s.map(|seconds| u64::try_from(seconds).unwrap_or(0)),
        ..Counted::default()
    })
}

/// What each question below answers with.
struct Row {
    key: Option<String>,
    ids: Vec<String>,
    detail: String,
    total: i64,
}

fn batch(rows: Vec<Row>) -> Batch {
    Batch {
        total: rows.first().map_or(0, |row| row.total.unsigned_abs()),
        examples: rows.into_iter().map(|Row { key, ids, detail, .. }| Example { key, ids, detail }).collect(),
    }
}
