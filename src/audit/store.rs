//! The SQL of the audit: each invariant as a question whose answer should be empty, all asked of one snapshot.
//!
//! Every question answers with at most a hundred rows and, in each, how many there are. They read whole tables, so the planner
//! gets back the joins that the order path forbids, and time.

use std::{collections::HashMap, time::Duration};

use futures_util::TryStreamExt as _;
use sqlx::{Executor as _, PgConnection, PgPool, Postgres, Transaction};
use time::OffsetDateTime;
use uuid::Uuid;

use super::report::{Batch, Counted, Example};
use crate::idempotency::record::State;

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

/// After this every key ought to be settled or to wait for a person: 23 hours in which its charge may be sent again, an hour
/// in which the gateway's search may lag behind the last send, and the longest pauses in between.
const OPEN_MAX: Duration = Duration::from_secs(25 * 3600);

/// One view of the whole database, however long the audit takes and whatever is settled meanwhile.
pub(super) async fn snapshot(pool: &PgPool) -> sqlx::Result<Transaction<'static, Postgres>> {
    let mut tx = pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    tx.execute(SETTINGS).await?;
    Ok(tx)
}

pub(super) async fn counts(tx: &mut PgConnection) -> sqlx::Result<Counted> {
    let totals = sqlx::query!(
        r#"SELECT (SELECT count(*) FROM orders) AS "orders!", (SELECT count(*) FROM charges) AS "charges!",
                  (SELECT count(*) FROM outbox) AS "events!""#
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
        events: totals.events.unsigned_abs(),
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

pub(super) async fn duplicate_orders(tx: &mut PgConnection) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"WITH found AS (
               SELECT encode(key_digest, 'hex') AS key, (array_agg(id::text ORDER BY id))[1:10] AS ids,
                      format('%s orders under one idempotency key', count(*)) AS detail
               FROM orders GROUP BY key_digest HAVING count(*) > 1
               UNION ALL
               -- Orders that share even their key are named above.
               SELECT NULL, (array_agg(id::text ORDER BY id))[1:10],
                      format('%s orders of customer %s under the client_reference "%s"', count(*), customer_id, client_reference)
               FROM orders WHERE client_reference IS NOT NULL
               GROUP BY customer_id, client_reference HAVING count(DISTINCT key_digest) > 1
           )
           SELECT key, ids AS "ids!", detail AS "detail!", count(*) OVER () AS "total!" FROM found ORDER BY ids LIMIT 100"#
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

pub(super) async fn duplicate_charges(tx: &mut PgConnection) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT encode(key_digest, 'hex') AS key, (array_agg(id::text ORDER BY id))[1:10] AS "ids!",
                  format('%s succeeded charges under one idempotency key', count(*)) AS "detail!", count(*) OVER () AS "total!"
           FROM charges WHERE status = 'succeeded' GROUP BY key_digest HAVING count(*) > 1
           ORDER BY key_digest LIMIT 100"#
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

/// A lost order may show itself twice, by its charge and by its record, and is one all the same.
pub(super) async fn lost_orders(tx: &mut PgConnection) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"WITH lost AS (
               SELECT c.key_digest AS digest, c.id::text AS id, format('charge %s succeeded', c.id) AS because
               FROM charges AS c
               WHERE c.status = 'succeeded' AND NOT EXISTS (SELECT FROM orders AS o WHERE o.key_digest = c.key_digest)
               UNION ALL
               SELECT r.digest, r.resource_id::text, format('the record answers %s with %s', r.response_status, COALESCE(r.response_location, 'no location'))
               FROM idempotency_records AS r
               WHERE r.state = 'completed' AND r.operation = 'orders.create' AND NOT EXISTS (
                   SELECT FROM orders AS o
                   WHERE o.key_digest = r.digest AND r.response_location LIKE '%/' || o.id
                     AND position(convert_to(o.id::text, 'UTF8') IN r.response_body) > 0
               )
           )
           SELECT encode(digest, 'hex') AS key, (array_agg(id ORDER BY id))[1:10] AS "ids!",
                  string_agg(because, ' and ' ORDER BY because) || ', but there is no such order' AS "detail!", count(*) OVER () AS "total!"
           FROM lost GROUP BY digest ORDER BY digest LIMIT 100"#
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

pub(super) async fn uncharged_orders(tx: &mut PgConnection) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT encode(o.key_digest, 'hex') AS key, ARRAY[o.id::text, o.charge_id::text] AS "ids!",
                  format('order %s names charge %s, which %s', o.id, o.charge_id,
                         CASE WHEN c.id IS NULL THEN 'is not there' WHEN c.status <> 'succeeded' THEN 'is ' || c.status ELSE 'was made under another key' END)
                      AS "detail!",
                  count(*) OVER () AS "total!"
           FROM orders AS o LEFT JOIN charges AS c ON c.id = o.charge_id
           WHERE c.id IS NULL OR c.status <> 'succeeded' OR c.key_digest <> o.key_digest
           ORDER BY o.id LIMIT 100"#
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

/// An order and its completed record are written in one transaction, so while the record is kept it says completed.
pub(super) async fn unrecorded_orders(tx: &mut PgConnection) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT encode(o.key_digest, 'hex') AS key, ARRAY[o.id::text] AS "ids!",
                  format('order %s exists, and the record of its key is %s', o.id, r.state) AS "detail!", count(*) OVER () AS "total!"
           FROM orders AS o JOIN idempotency_records AS r ON r.digest = o.key_digest
           WHERE r.state <> 'completed'
             AND NOT EXISTS (SELECT FROM idempotency_records AS d WHERE d.digest = r.digest AND (d.state = 'completed' OR d.day > r.day))
           ORDER BY o.id LIMIT 100"#
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

/// Stuck is due for longer than the grace, where due is what recovery takes for due (`idempotency::claim_store`), or open for
/// longer than a charge may be sent again, whoever holds it: a lease that is renewed in vain would hide a key for ever. A
/// claim that was given back unsent is nobody's charge and waits for its client alone.
pub(super) async fn stuck_keys(tx: &mut PgConnection, grace: Duration) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"WITH moment AS MATERIALIZED (SELECT db_clock() AS now),
           open AS (
               SELECT r.*, LEAST(COALESCE(r.next_attempt_at, r.lease_until + LEAST(r.tries * r.tries, 300) * interval '1 s'),
                                 r.first_sent_at + make_interval(secs => $2)) AS due_at
               FROM idempotency_records AS r WHERE r.state IN ('in_flight', 'unknown') AND r.first_sent_at IS NOT NULL
           )
           SELECT encode(digest, 'hex') AS key, ARRAY[resource_id::text] AS "ids!",
                  format('customer %s, %s key "%s": %s since %s, due since %s, taken over %s times', customer_id, operation, key, state,
                         date_trunc('second', first_sent_at), date_trunc('second', due_at), tries) AS "detail!",
                  count(*) OVER () AS "total!"
           FROM open, moment WHERE due_at + make_interval(secs => $1) < moment.now
           ORDER BY due_at, digest LIMIT 100"#,
        grace.as_secs_f64(),
        OPEN_MAX.as_secs_f64(),
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

/// Order against charge. The charge is compared with its capture where the ledger is read.
pub(super) async fn mismatched_orders(tx: &mut PgConnection) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT encode(o.key_digest, 'hex') AS key, ARRAY[o.id::text, c.id::text] AS "ids!",
                  format('order %s says %s %s, its charge %s says %s %s', o.id, o.total_minor, o.currency, c.id, c.amount_minor, c.currency) AS "detail!",
                  count(*) OVER () AS "total!"
           FROM orders AS o JOIN charges AS c ON c.id = o.charge_id
           WHERE o.total_minor <> c.amount_minor OR o.currency <> c.currency
           ORDER BY o.id LIMIT 100"#
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

pub(super) async fn missing_events(tx: &mut PgConnection) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT encode(o.key_digest, 'hex') AS key, ARRAY[o.id::text] AS "ids!",
                  format('order %s has no first event', o.id) AS "detail!", count(*) OVER () AS "total!"
           FROM orders AS o
           WHERE NOT EXISTS (SELECT FROM outbox AS e WHERE e.order_id = o.id AND e.sequence = 1)
           ORDER BY o.id LIMIT 100"#
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

pub(super) async fn events_without_order(tx: &mut PgConnection) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT NULL::text AS key, ARRAY[e.event_id::text, e.order_id::text] AS "ids!",
                  format('event %s (%s) names order %s', e.event_id, e.type, e.order_id) AS "detail!", count(*) OVER () AS "total!"
           FROM outbox AS e WHERE NOT EXISTS (SELECT FROM orders AS o WHERE o.id = e.order_id)
           ORDER BY e.id LIMIT 100"#
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

#[derive(Debug)]
pub(super) struct SucceededCharge {
    pub(super) id: Uuid,
    pub(super) customer_id: i64,
    pub(super) key_digest: Vec<u8>,
    pub(super) amount_minor: i64,
    pub(super) currency: String,
    pub(super) gateway_id: String,
    /// When it was booked, which is after it was captured.
    pub(super) created_at: OffsetDateTime,
}

/// Hands over every succeeded charge, in any order, without keeping them.
pub(super) async fn each_succeeded_charge(
    tx: &mut PgConnection,
    mut with: impl FnMut(SucceededCharge),
) -> sqlx::Result<()> {
    let mut charges = sqlx::query_as!(
        SucceededCharge,
        r#"SELECT id, customer_id, key_digest, amount_minor, currency, gateway_id AS "gateway_id!", created_at
           FROM charges WHERE status = 'succeeded'"#
    )
    .fetch(tx);
    while let Some(charge) = charges.try_next().await? {
        with(charge);
    }
    Ok(())
}

/// What we remember of a key that the gateway knows.
#[derive(Debug)]
pub(super) struct KnownKey {
    pub(super) customer_id: i64,
    pub(super) unresolved: bool,
    pub(super) states: String,
}

/// The records of some keys, over every attached day.
pub(super) async fn known_keys(
    tx: &mut PgConnection,
    digests: &[[u8; 32]],
) -> sqlx::Result<HashMap<Vec<u8>, KnownKey>> {
    let digests: Vec<&[u8]> = digests.iter().map(|digest| &digest[..]).collect();
    let rows = sqlx::query!(
        r#"SELECT digest, max(customer_id) AS "customer_id!", string_agg(state, ', ' ORDER BY day) AS "states!",
                  bool_or(state IN ('in_flight', 'unknown', 'needs_review')) AS "unresolved!"
           FROM idempotency_records WHERE digest = ANY($1) GROUP BY digest"#,
        &digests as &[&[u8]],
    )
    .fetch_all(tx)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            (row.digest, KnownKey { customer_id: row.customer_id, unresolved: row.unresolved, states: row.states })
        })
        .collect())
}
