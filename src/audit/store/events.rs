//! Events on their way: are they written, did they arrive, in order, and who waits?

use std::{collections::HashSet, time::Duration};

use sqlx::PgConnection;
use uuid::Uuid;

use super::{Kept, Row, batch};
use crate::{
    audit::report::Batch,
    wire::event::{CHARGE_SUCCEEDED, ORDER_CREATED, ORDER_REFUNDED, REFUND_FAILED},
};

/// Only of days that are still kept, and the next one too: what happened in the last moment may have an event of the day after.
/// The others are judged by what is in the ledger.
pub(crate) async fn missing_events(tx: &mut PgConnection, kept: &Kept) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"WITH first AS (
               SELECT key_digest, id, format('order %s', id) AS subject, created_at AS since FROM orders
               UNION ALL
               SELECT key_digest, id, format('charge %s', id), created_at FROM charges
               WHERE status = 'succeeded' AND operation = 'charges.create'
           ),
           missing AS (
               SELECT key_digest, ARRAY[id::text] AS ids, subject || ' has no first event' AS detail, since FROM first
               WHERE NOT EXISTS (SELECT FROM outbox AS e WHERE e.aggregate_id = first.id AND e.sequence = 1)
               UNION ALL
               SELECT key_digest, ARRAY[refund_id::text, order_id::text, event_id::text],
                      format('%s %s of order %s has no event', CASE WHEN is_failure THEN 'failed refund' ELSE 'refund' END, refund_id, order_id), since
               FROM refund_events AS f
               WHERE NOT EXISTS (SELECT FROM outbox AS e WHERE e.event_id = f.event_id AND e.aggregate_id = f.order_id)
           )
           SELECT encode(key_digest, 'hex') AS key, ids AS "ids!", detail AS "detail!", count(*) OVER () AS "total!"
           FROM missing
           WHERE (since AT TIME ZONE 'UTC')::date = ANY($1) AND (since AT TIME ZONE 'UTC')::date + 1 = ANY($1)
           ORDER BY ids LIMIT 100"#,
        &kept.outbox,
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

/// An event of a refund is that refund's own, which names it.
pub(crate) async fn events_without_order(tx: &mut PgConnection) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT NULL::text AS key, ARRAY[e.event_id::text, e.aggregate_id::text] AS "ids!",
                  format('event %s (%s) is about %s, and nothing there explains it', e.event_id, e.type, e.aggregate_id) AS "detail!",
                  count(*) OVER () AS "total!"
           FROM outbox AS e
           LEFT JOIN orders AS o ON o.id = e.aggregate_id
           LEFT JOIN charges AS c ON c.id = e.aggregate_id AND c.operation = 'charges.create' AND c.status = 'succeeded'
           LEFT JOIN refund_events AS f ON f.event_id = e.event_id AND f.order_id = e.aggregate_id AND f.is_failure = (e.type = $3)
           WHERE CASE WHEN e.type = $1 THEN c.id IS NULL WHEN e.type IN ($2, $3) THEN f.event_id IS NULL ELSE o.id IS NULL END
           ORDER BY e.id LIMIT 100"#,
        CHARGE_SUCCEEDED,
        ORDER_REFUNDED,
        REFUND_FAILED,
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

/// Where an event ought to be by now, and is not, and nobody holds it.
///
/// The time in the outbox is counted from its birth, the time at a consumer from when the log had it: after an outage the
/// consumers have a backlog, and not a loss. A relay holds the events of an aggregate by the first of them, a consumer each
/// by itself.
/// An event of a day that the log no longer keeps had been read by everybody, so it was processed.
///
/// Of an order, a charge or a refund whose event is nowhere any more, the entries in the ledger are what tells that it was there.
pub(crate) async fn lost_events(tx: &mut PgConnection, grace: Duration, kept: &Kept) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"WITH moment AS MATERIALIZED (SELECT db_clock() - make_interval(secs => $1) AS before),
           logged AS (
               SELECT DISTINCT day, event_id, aggregate_id, sequence, type, occurred_at FROM event_log
           ),
           known AS MATERIALIZED (
               SELECT COALESCE(e.event_id, l.event_id) AS event_id, COALESCE(e.aggregate_id, l.aggregate_id) AS aggregate_id,
                      COALESCE(e.sequence, l.sequence) AS sequence, COALESCE(e.type, l.type) AS type,
                      COALESCE(e.created_at, l.occurred_at) AS since, COALESCE(e.sent_at, e.created_at, l.occurred_at) AS logged_since,
                      l.event_id IS NOT NULL OR (e.sent_at IS NOT NULL AND e.day <> ALL($3)) AS was_logged
               FROM outbox AS e FULL JOIN logged AS l ON l.event_id = e.event_id
           ),
           lost AS (
               SELECT k.event_id, k.aggregate_id, k.type, k.since, 'is not in the log' AS because
               FROM known AS k, moment
               WHERE NOT k.was_logged AND k.since < moment.before
                 AND NOT EXISTS (
                     SELECT FROM parked_events AS p WHERE p.stage = 'relay' AND p.aggregate_id = k.aggregate_id AND p.sequence <= k.sequence
                 )
               UNION ALL
               SELECT k.event_id, k.aggregate_id, k.type, k.since, 'was not processed by ' || c.consumer
               FROM known AS k CROSS JOIN unnest(ARRAY['ledger', 'receipts']) AS c(consumer), moment
               WHERE k.was_logged AND k.logged_since < moment.before
                 AND NOT EXISTS (SELECT FROM processed AS d WHERE d.consumer = c.consumer AND d.event_id = k.event_id)
                 AND NOT EXISTS (SELECT FROM parked_events AS p WHERE p.stage = c.consumer AND p.event_id = k.event_id)
           ),
           -- Of each what its first event, or the refund's own, must have left in the ledger.
           sold AS (
               SELECT id, format('order %s', id) AS subject, created_at AS since FROM orders
               UNION ALL
               SELECT id, format('charge %s', id), created_at FROM charges WHERE status = 'succeeded' AND operation = 'charges.create'
           ),
           unbooked AS (
               SELECT id, id AS aggregate_id, subject, since FROM sold
               WHERE NOT EXISTS (
                         SELECT FROM ledger_entries AS l
                         WHERE l.aggregate_id = sold.id AND l.account = 'gateway' AND l.amount_minor > 0
                           AND NOT EXISTS (SELECT FROM refund_events AS f WHERE f.event_id = l.event_id))
                 AND NOT EXISTS (SELECT FROM known AS k WHERE k.aggregate_id = sold.id AND k.sequence = 1)
               UNION ALL
               SELECT refund_id, order_id,
                      format('%s %s of order %s', CASE WHEN is_failure THEN 'failed refund' ELSE 'refund' END, refund_id, order_id), since
               FROM refund_events AS f
               WHERE NOT EXISTS (SELECT FROM ledger_entries AS l WHERE l.event_id = f.event_id)
                 AND NOT EXISTS (SELECT FROM known AS k WHERE k.event_id = f.event_id)
           ),
           found AS (
               SELECT ARRAY[event_id::text, aggregate_id::text] AS ids,
                      format('event %s (%s about %s) happened at %s and ', event_id, type, aggregate_id, date_trunc('second', since))
                          || string_agg(because, ' and ' ORDER BY because) AS detail
               FROM lost GROUP BY event_id, aggregate_id, type, since
               UNION ALL
               SELECT ARRAY[u.id::text],
                      format('%s of %s has no ledger entry, and its event is no longer kept', u.subject, date_trunc('second', u.since))
               FROM unbooked AS u, moment
               WHERE u.since < moment.before
                 AND NOT ((u.since AT TIME ZONE 'UTC')::date = ANY($2) AND (u.since AT TIME ZONE 'UTC')::date + 1 = ANY($2))
                 AND NOT EXISTS (SELECT FROM parked_events AS p WHERE p.aggregate_id = u.aggregate_id)
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
               SELECT aggregate_id, sequence, partition, min("offset") AS at FROM event_log GROUP BY aggregate_id, sequence, partition
           ),
           swapped AS (
               SELECT later.aggregate_id, format('the log has %s at %s of partition %s and %s at %s of partition %s', earlier.sequence,
                                             earlier.at, earlier.partition, later.sequence, later.at, later.partition) AS because
               FROM firsts AS later JOIN firsts AS earlier ON earlier.aggregate_id = later.aggregate_id
               WHERE (earlier.sequence < later.sequence AND (earlier.partition <> later.partition OR earlier.at > later.at))
                  OR (earlier.sequence = later.sequence AND earlier.partition < later.partition)
               UNION ALL
               SELECT later.aggregate_id, format('%s applied %s before %s', later.consumer, later.sequence, earlier.sequence)
               FROM processed AS later
               JOIN processed AS earlier ON earlier.consumer = later.consumer AND earlier.aggregate_id = later.aggregate_id
               WHERE earlier.sequence < later.sequence AND earlier.position > later.position
           )
           SELECT NULL::text AS key, ARRAY[aggregate_id::text] AS "ids!",
                  format('the events about %s: ', aggregate_id) || (array_agg(because ORDER BY because))[1] AS "detail!", count(*) OVER () AS "total!"
           FROM swapped GROUP BY aggregate_id ORDER BY aggregate_id LIMIT 100"#
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

/// What waits for a person, and how much waits behind it. A relay leaves in the outbox what is behind.
pub(crate) async fn parked_events(tx: &mut PgConnection) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT NULL::text AS key, ARRAY[p.event_id::text, p.aggregate_id::text] AS "ids!",
                  format('event %s (%s, %s about %s) is parked at %s after %s failures, with %s behind it: %s', p.event_id, p.type,
                         p.sequence, p.aggregate_id, p.stage, p.attempts, behind.count, p.error) AS "detail!",
                  count(*) OVER () AS "total!"
           FROM parked_events AS p CROSS JOIN LATERAL (
               SELECT CASE p.stage
                   WHEN 'relay' THEN (
                       SELECT count(*) FROM outbox AS e WHERE e.aggregate_id = p.aggregate_id AND e.sequence > p.sequence AND e.sent_at IS NULL
                   )
                   ELSE (
                       SELECT count(*) FROM parked_events AS b
                       WHERE b.stage = p.stage AND b.aggregate_id = p.aggregate_id AND b.sequence > p.sequence
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

/// Those of these events that an aggregate has one of, as far as their kind is still known.
pub(crate) async fn only_once(tx: &mut PgConnection, events: &[Uuid]) -> sqlx::Result<HashSet<Uuid>> {
    let rows = sqlx::query_scalar!(
        r#"SELECT event_id AS "event_id!" FROM outbox WHERE event_id = ANY($1) AND type IN ($2, $3)
           UNION SELECT event_id FROM event_log WHERE event_id = ANY($1) AND type IN ($2, $3)"#,
        events,
        ORDER_CREATED,
        CHARGE_SUCCEEDED,
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().collect())
}
