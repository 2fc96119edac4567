//! Events on their way: are they written, did they arrive, in order, and who waits?

use std::{collections::HashSet, time::Duration};

use sqlx::PgConnection;
use uuid::Uuid;

use super::{Kept, Row, batch};
use crate::{audit::report::Batch, wire::event::ORDER_CREATED};

/// Only orders whose day is still kept, and the next one too: an order of the last moment may have an event of the day after.
/// The others are judged by what is in the ledger.
pub(crate) async fn missing_events(tx: &mut PgConnection, kept: &Kept) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT encode(o.key_digest, 'hex') AS key, ARRAY[o.id::text] AS "ids!",
                  format('order %s has no first event', o.id) AS "detail!", count(*) OVER () AS "total!"
           FROM orders AS o
           WHERE (o.created_at AT TIME ZONE 'UTC')::date = ANY($1) AND (o.created_at AT TIME ZONE 'UTC')::date + 1 = ANY($1)
             AND NOT EXISTS (SELECT FROM outbox AS e WHERE e.order_id = o.id AND e.sequence = 1)
           ORDER BY o.id LIMIT 100"#,
        &kept.outbox,
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

pub(crate) async fn events_without_order(tx: &mut PgConnection) -> sqlx::Result<Batch> {
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

/// Where an event ought to be by now, and is not, and nobody holds it.
///
/// The time in the outbox is counted from its birth, the time at a consumer from when the log had it: after an outage the
/// consumers have a backlog, and not a loss. A relay holds an order's events by the first of them, a consumer each by itself.
/// An event of a day that the log no longer keeps had been read by everybody, so it was processed.
///
/// Of an order whose event is nowhere any more, the entries in the ledger are what tells that it was there.
pub(crate) async fn lost_events(tx: &mut PgConnection, grace: Duration, kept: &Kept) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"WITH moment AS MATERIALIZED (SELECT db_clock() - make_interval(secs => $1) AS before),
           logged AS (
               SELECT DISTINCT day, event_id, order_id, sequence, type, occurred_at FROM event_log
           ),
           known AS MATERIALIZED (
               SELECT COALESCE(e.event_id, l.event_id) AS event_id, COALESCE(e.order_id, l.order_id) AS order_id,
                      COALESCE(e.sequence, l.sequence) AS sequence, COALESCE(e.type, l.type) AS type,
                      COALESCE(e.created_at, l.occurred_at) AS since, COALESCE(e.sent_at, e.created_at, l.occurred_at) AS logged_since,
                      l.event_id IS NOT NULL OR (e.sent_at IS NOT NULL AND e.day <> ALL($3)) AS was_logged
               FROM outbox AS e FULL JOIN logged AS l ON l.event_id = e.event_id
           ),
           lost AS (
               SELECT k.event_id, k.order_id, k.type, k.since, 'is not in the log' AS because
               FROM known AS k, moment
               WHERE NOT k.was_logged AND k.since < moment.before
                 AND NOT EXISTS (
                     SELECT FROM parked_events AS p WHERE p.stage = 'relay' AND p.order_id = k.order_id AND p.sequence <= k.sequence
                 )
               UNION ALL
               SELECT k.event_id, k.order_id, k.type, k.since, 'was not processed by ' || c.consumer
               FROM known AS k CROSS JOIN unnest(ARRAY['ledger', 'receipts']) AS c(consumer), moment
               WHERE k.was_logged AND k.logged_since < moment.before
                 AND NOT EXISTS (SELECT FROM processed AS d WHERE d.consumer = c.consumer AND d.event_id = k.event_id)
                 AND NOT EXISTS (SELECT FROM parked_events AS p WHERE p.stage = c.consumer AND p.event_id = k.event_id)
           ),
           found AS (
               SELECT ARRAY[event_id::text, order_id::text] AS ids,
                      format('event %s (%s) of order %s happened at %s and ', event_id, type, order_id, date_trunc('second', since))
                          || string_agg(because, ' and ' ORDER BY because) AS detail
               FROM lost GROUP BY event_id, order_id, type, since
               UNION ALL
               SELECT ARRAY[o.id::text],
                      format('order %s of %s has no ledger entry, and its event is no longer kept', o.id, date_trunc('second', o.created_at))
               FROM orders AS o, moment
               WHERE o.created_at < moment.before
                 AND NOT ((o.created_at AT TIME ZONE 'UTC')::date = ANY($2) AND (o.created_at AT TIME ZONE 'UTC')::date + 1 = ANY($2))
                 AND NOT EXISTS (SELECT FROM ledger_entries AS l WHERE l.order_id = o.id)
                 AND NOT EXISTS (SELECT FROM parked_events AS p WHERE p.order_id = o.id)
                 AND NOT EXISTS (SELECT FROM known AS k WHERE k.order_id = o.id)
           )
           SELECT NULL::text AS key, ids AS "ids!", detail AS "detail!", count(*) OVER () AS "total!" FROM found ORDER BY ids LIMIT 100"#,
        grace.as_secs_f64(),
        &kept.outbox,
        &kept.log,
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

/// Repetitions are allowed, so of each event only the first place in the log counts.
pub(crate) async fn out_of_order(tx: &mut PgConnection) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"WITH firsts AS MATERIALIZED (
               SELECT order_id, sequence, partition, min("offset") AS at FROM event_log GROUP BY order_id, sequence, partition
           ),
           swapped AS (
               SELECT later.order_id, format('the log has %s at %s of partition %s and %s at %s of partition %s', earlier.sequence,
                                             earlier.at, earlier.partition, later.sequence, later.at, later.partition) AS because
               FROM firsts AS later JOIN firsts AS earlier ON earlier.order_id = later.order_id
               WHERE (earlier.sequence < later.sequence AND (earlier.partition <> later.partition OR earlier.at > later.at))
                  OR (earlier.sequence = later.sequence AND earlier.partition < later.partition)
               UNION ALL
               SELECT later.order_id, format('%s applied %s before %s', later.consumer, later.sequence, earlier.sequence)
               FROM processed AS later
               JOIN processed AS earlier ON earlier.consumer = later.consumer AND earlier.order_id = later.order_id
               WHERE earlier.sequence < later.sequence AND earlier.position > later.position
           )
           SELECT NULL::text AS key, ARRAY[order_id::text] AS "ids!",
                  format('order %s: ', order_id) || (array_agg(because ORDER BY because))[1] AS "detail!", count(*) OVER () AS "total!"
           FROM swapped GROUP BY order_id ORDER BY order_id LIMIT 100"#
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

/// What waits for a person, and how much waits behind it. A relay leaves in the outbox what is behind.
pub(crate) async fn parked_events(tx: &mut PgConnection) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT NULL::text AS key, ARRAY[p.event_id::text, p.order_id::text] AS "ids!",
                  format('event %s (%s, %s of order %s) is parked at %s after %s failures, with %s behind it: %s', p.event_id, p.type,
                         p.sequence, p.order_id, p.stage, p.attempts, behind.count, p.error) AS "detail!",
                  count(*) OVER () AS "total!"
           FROM parked_events AS p CROSS JOIN LATERAL (
               SELECT CASE p.stage
                   WHEN 'relay' THEN (
                       SELECT count(*) FROM outbox AS e WHERE e.order_id = p.order_id AND e.sequence > p.sequence AND e.sent_at IS NULL
                   )
                   ELSE (
                       SELECT count(*) FROM parked_events AS b
                       WHERE b.stage = p.stage AND b.order_id = p.order_id AND b.sequence > p.sequence
                   )
               END AS count
           ) AS behind
           WHERE p.next_attempt_at IS NULL
           ORDER BY p.held_at, p.event_id LIMIT 100"#
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

/// Those of these events that an order has one of, as far as their kind is still known.
pub(crate) async fn once_per_order(tx: &mut PgConnection, events: &[Uuid]) -> sqlx::Result<HashSet<Uuid>> {
    let rows = sqlx::query_scalar!(
        r#"SELECT event_id AS "event_id!" FROM outbox WHERE event_id = ANY($1) AND type = $2
           UNION SELECT event_id FROM event_log WHERE event_id = ANY($1) AND type = $2"#,
        events,
        ORDER_CREATED,
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().collect())
}
