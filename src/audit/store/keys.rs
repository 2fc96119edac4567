//! Idempotency records: the questions about what has no answer yet.

use std::{collections::HashMap, time::Duration};

use sqlx::PgConnection;

use super::{Row, batch};
use crate::audit::report::Batch;

/// After this every key ought to be settled or to wait for a person: 23 hours in which its charge may be sent again, an hour
/// in which the gateway's search may lag behind the last send, and the longest pauses in between.
const OPEN_MAX: Duration = Duration::from_secs(25 * 3600);
/// And a person has this long: a weekend and a day.
const REVIEW_MAX: Duration = Duration::from_secs(72 * 3600);

/// Stuck is due for longer than the grace, where due is what recovery takes for due (`idempotency::claim_store`). What is past
/// the deadline is named there, and a claim that was released unsent is nobody's charge and waits for its client alone.
pub(crate) async fn stuck_keys(tx: &mut PgConnection, grace: Duration) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"WITH moment AS MATERIALIZED (SELECT db_clock() AS now),
           open AS (
               SELECT r.*, COALESCE(r.next_attempt_at, r.lease_until + LEAST(r.tries * r.tries, 300) * interval '1 s') AS due_at
               FROM idempotency_records AS r WHERE r.state IN ('in_flight', 'unknown') AND r.first_sent_at IS NOT NULL
           )
           SELECT encode(digest, 'hex') AS key, ARRAY[resource_id::text] AS "ids!",
                  format('customer %s, %s key "%s": %s since %s, due since %s, taken over %s times', customer_id, operation, key, state,
                         date_trunc('second', first_sent_at), date_trunc('second', due_at), tries) AS "detail!",
                  count(*) OVER () AS "total!"
           FROM open, moment
           WHERE due_at + make_interval(secs => $1) < moment.now AND first_sent_at + make_interval(secs => $1::float8 + $2::float8) >= moment.now
           ORDER BY due_at, digest LIMIT 100"#,
        grace.as_secs_f64(),
        OPEN_MAX.as_secs_f64(),
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

/// Past the deadline is what no program can find out any more, whoever holds it: a lease that is renewed in vain would hide a
/// key for ever. And what a person has not decided in three days, counted from when it had to come before one at the latest:
/// a record does not say when it did.
pub(crate) async fn unresolved_past_deadline(tx: &mut PgConnection, grace: Duration) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"WITH moment AS MATERIALIZED (SELECT db_clock() AS now)
           SELECT encode(digest, 'hex') AS key, ARRAY[resource_id::text] AS "ids!",
                  format('customer %s, %s key "%s": %s, first sent at %s, taken over %s times', customer_id, operation, key, state,
                         date_trunc('second', first_sent_at), tries) AS "detail!",
                  count(*) OVER () AS "total!"
           FROM idempotency_records, moment
           WHERE state IN ('in_flight', 'unknown', 'needs_review')
             AND first_sent_at + make_interval(secs => $2::float8 + CASE state WHEN 'needs_review' THEN $3::float8 ELSE $1::float8 END) < moment.now
           ORDER BY first_sent_at, digest LIMIT 100"#,
        grace.as_secs_f64(),
        OPEN_MAX.as_secs_f64(),
        REVIEW_MAX.as_secs_f64(),
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

/// What we remember of a key that the gateway knows.
#[derive(Debug)]
pub(crate) struct KnownKey {
    pub(crate) customer_id: i64,
    pub(crate) unresolved: bool,
    pub(crate) states: String,
}

/// The records of some keys, over every attached day.
pub(crate) async fn known_keys(
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
