//! Effects: what was booked and what was mailed, once, and as it happened.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Kept, Row, batch};
use crate::{
    audit::report::Batch,
    wire::event::{CHARGE_SUCCEEDED, ORDER_CREATED},
};

/// An order is sold once and a charge taken once, so the gateway's account is debited for it once; and credited once for each
/// refund, and debited for that once more if it failed. And each is confirmed once; where the mail service is asked, its own list says that better than our receipts
/// (`mails_are_read`).
pub(crate) async fn repeated_effects(tx: &mut PgConnection, mails_are_read: bool) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"WITH kinds AS (SELECT event_id, type FROM outbox UNION SELECT event_id, type FROM event_log),
           postings AS (
               SELECT l.event_id, l.aggregate_id, l.amount_minor, f.refund_id, f.is_failure
               FROM ledger_entries AS l LEFT JOIN refund_events AS f ON f.event_id = l.event_id WHERE l.account = 'gateway'
           ),
           found AS (
               SELECT aggregate_id, (array_agg(event_id::text ORDER BY event_id))[1:9] AS events,
                      format('%s was booked by %s events', aggregate_id, count(*)) AS detail
               FROM postings WHERE amount_minor > 0 AND refund_id IS NULL GROUP BY aggregate_id HAVING count(*) > 1
               UNION ALL
               SELECT p.aggregate_id, (array_agg(p.event_id::text ORDER BY p.event_id))[1:9],
                      format('the %s refunds of order %s were booked by %s events', f.refunds, p.aggregate_id, count(*))
               FROM postings AS p
               JOIN (
                   SELECT order_id, count(*) AS refunds FROM refunds WHERE status IN ('succeeded', 'failed') GROUP BY order_id
               ) AS f ON f.order_id = p.aggregate_id
               WHERE p.amount_minor < 0 AND p.is_failure IS NOT TRUE GROUP BY p.aggregate_id, f.refunds HAVING count(*) > f.refunds
               UNION ALL
               SELECT r.aggregate_id, (array_agg(r.event_id::text ORDER BY r.event_id))[1:9],
                      format('%s was confirmed by the receipts of %s events', r.aggregate_id, count(*))
               FROM receipts AS r JOIN kinds AS k ON k.event_id = r.event_id
               WHERE NOT $1 AND k.type IN ($2, $3) GROUP BY r.aggregate_id HAVING count(*) > 1
           )
           SELECT NULL::text AS key, aggregate_id::text || events AS "ids!", detail AS "detail!", count(*) OVER () AS "total!"
           FROM found ORDER BY aggregate_id, detail LIMIT 100"#,
        mails_are_read,
        ORDER_CREATED,
        CHARGE_SUCCEEDED,
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

/// A refund's own event credits what it gave back, and the event of its failure debits that again.
///
/// By event: entries that do not sum to zero, one alone among them. By order or charge: what the gateway was debited with is not
/// what was charged, or what it was credited with not what was refunded, or an event was processed that left neither. One
/// finding each, however much of it is wrong; what was booked twice is named as that.
pub(crate) async fn unbalanced_entries(tx: &mut PgConnection) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"WITH postings AS MATERIALIZED (
               SELECT l.event_id, l.aggregate_id, l.amount_minor, l.currency, f.refund_id
               FROM ledger_entries AS l LEFT JOIN refund_events AS f ON f.event_id = l.event_id WHERE l.account = 'gateway'
           ),
           debits AS (
               SELECT aggregate_id, count(*) AS postings, sum(amount_minor) AS amount, min(currency) AS currency
               FROM postings WHERE amount_minor > 0 AND refund_id IS NULL GROUP BY aggregate_id
           ),
           credits AS (
               SELECT p.aggregate_id, count(*) AS postings, COALESCE(max(f.refunds), 0) AS refunds
               FROM postings AS p
               LEFT JOIN (
                   SELECT order_id, count(*) AS refunds FROM refunds WHERE status IN ('succeeded', 'failed') GROUP BY order_id
               ) AS f ON f.order_id = p.aggregate_id
               WHERE p.amount_minor < 0 GROUP BY p.aggregate_id
           ),
           paid AS (
               SELECT o.id, c.id AS charge_id, c.amount_minor, c.currency
               FROM orders AS o JOIN charges AS c ON c.id = o.charge_id AND c.status = 'succeeded'
               UNION ALL
               SELECT id, id, amount_minor, currency FROM charges WHERE status = 'succeeded' AND operation = 'charges.create'
           ),
           wrong AS (
               SELECT aggregate_id, event_id::text AS id,
                      format('the entries of event %s sum to %s %s', event_id, sum(amount_minor), currency) AS because
               FROM ledger_entries GROUP BY aggregate_id, event_id, currency HAVING sum(amount_minor) <> 0
               UNION ALL
               SELECT aggregate_id, event_id::text, format('event %s has one entry', event_id)
               FROM ledger_entries GROUP BY aggregate_id, event_id HAVING count(*) = 1
               UNION ALL
               SELECT p.id, p.charge_id::text, format('the gateway''s account is debited with %s %s, charge %s took %s %s', COALESCE(d.amount, 0),
                                                      COALESCE(d.currency, ''), p.charge_id, p.amount_minor, p.currency)
               FROM paid AS p LEFT JOIN debits AS d ON d.aggregate_id = p.id
               WHERE (d.postings = 1 AND (d.amount <> p.amount_minor OR d.currency <> p.currency))
                  OR (d.aggregate_id IS NULL AND EXISTS (
                          SELECT FROM processed AS e WHERE e.consumer = 'ledger' AND e.aggregate_id = p.id AND e.sequence = 1))
               UNION ALL
               SELECT f.order_id, f.refund_id::text,
                      format('the gateway''s account is credited with %s %s about %s, refund %s %s %s %s back', COALESCE(-p.amount_minor, 0),
                             COALESCE(p.currency, ''), COALESCE(p.aggregate_id, f.order_id), f.refund_id,
                             CASE WHEN f.is_failure THEN 'failed and took' ELSE 'gave' END, abs(f.gateway_minor), f.currency)
               FROM refund_events AS f LEFT JOIN postings AS p ON p.event_id = f.event_id
               WHERE (p.amount_minor <> f.gateway_minor OR p.currency <> f.currency OR p.aggregate_id <> f.order_id
                      OR (p.event_id IS NULL AND EXISTS (SELECT FROM processed AS e WHERE e.consumer = 'ledger' AND e.event_id = f.event_id)))
               UNION ALL
               SELECT p.aggregate_id, p.event_id::text,
                      format('event %s credits the gateway''s account with %s %s, and is no refund''s', p.event_id, -p.amount_minor, p.currency)
               FROM postings AS p JOIN credits AS c ON c.aggregate_id = p.aggregate_id AND NOT (c.postings > c.refunds AND c.refunds > 0)
               WHERE p.amount_minor < 0 AND p.refund_id IS NULL
           )
           SELECT NULL::text AS key, aggregate_id::text || (array_agg(DISTINCT id))[1:9] AS "ids!",
                  format('%s: ', aggregate_id) || string_agg(because, '; ' ORDER BY because) AS "detail!", count(*) OVER () AS "total!"
           FROM wrong GROUP BY aggregate_id ORDER BY aggregate_id LIMIT 100"#
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

/// What the gateway's account holds for orders and charges that are not there.
#[derive(Debug)]
pub(crate) struct OfNobody {
    pub(crate) currency: String,
    pub(crate) booked_minor: i64,
    /// Some of them.
    pub(crate) aggregates: Vec<String>,
}

pub(crate) async fn entries_of_nobody(tx: &mut PgConnection) -> sqlx::Result<Vec<OfNobody>> {
    sqlx::query_as!(
        OfNobody,
        r#"SELECT currency, sum(amount_minor)::bigint AS "booked_minor!", (array_agg(DISTINCT aggregate_id::text))[1:10] AS "aggregates!"
           FROM ledger_entries AS l
           WHERE account = 'gateway' AND NOT EXISTS (SELECT FROM orders AS o WHERE o.id = l.aggregate_id)
             AND NOT EXISTS (
                 SELECT FROM charges AS c WHERE c.id = l.aggregate_id AND c.status = 'succeeded' AND c.operation = 'charges.create')
           GROUP BY currency"#
    )
    .fetch_all(tx)
    .await
}

/// The receipts consumer is through with an event, and there is no receipt of it. While it is not through, the event is on its
/// way, held or lost, and named as that. Where the event is no longer kept, the ledger says that there was one.
///
/// By event, and not by order: an order hears of itself once, of each refund, and of its failure.
pub(crate) async fn unsent_receipts(tx: &mut PgConnection, grace: Duration, kept: &Kept) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"WITH moment AS MATERIALIZED (SELECT db_clock() - make_interval(secs => $1) AS before),
           unconfirmed AS MATERIALIZED (
               SELECT event_id, aggregate_id, bool_or(is_first) AS is_first, bool_or(is_through) AS is_through
               FROM (
                   SELECT d.event_id, d.aggregate_id, d.sequence = 1 AS is_first, true AS is_through FROM processed AS d
                   WHERE d.consumer = 'receipts' AND NOT EXISTS (SELECT FROM receipts AS r WHERE r.event_id = d.event_id)
                   UNION ALL
                   SELECT l.event_id, l.aggregate_id,
                          l.amount_minor > 0 AND NOT EXISTS (SELECT FROM refund_events AS f WHERE f.event_id = l.event_id), false
                   FROM ledger_entries AS l
                   WHERE l.account = 'gateway' AND NOT EXISTS (SELECT FROM receipts AS r WHERE r.event_id = l.event_id)
                     AND NOT EXISTS (SELECT FROM outbox AS e WHERE e.event_id = l.event_id)
                     AND NOT EXISTS (SELECT FROM event_log AS e WHERE e.event_id = l.event_id)
               ) AS either
               GROUP BY event_id, aggregate_id
           ),
           unsent AS (
               SELECT o.key_digest, ARRAY[o.id::text] AS ids, format('order %s', o.id) AS subject, o.created_at AS since, u.event_id, u.is_through
               FROM unconfirmed AS u JOIN orders AS o ON o.id = u.aggregate_id WHERE u.is_first
               UNION ALL
               SELECT c.key_digest, ARRAY[c.id::text], format('charge %s', c.id), c.created_at, u.event_id, u.is_through
               FROM unconfirmed AS u JOIN charges AS c ON c.id = u.aggregate_id AND c.status = 'succeeded' AND c.operation = 'charges.create'
               WHERE u.is_first
               UNION ALL
               SELECT f.key_digest, ARRAY[f.refund_id::text, f.order_id::text],
                      format('%s %s of order %s', CASE WHEN f.is_failure THEN 'failed refund' ELSE 'refund' END, f.refund_id, f.order_id), f.since,
                      u.event_id, u.is_through
               FROM unconfirmed AS u JOIN refund_events AS f ON f.event_id = u.event_id
           )
           SELECT encode(key_digest, 'hex') AS key, ids AS "ids!", subject || ' has no receipt, and nobody holds its event' AS "detail!",
                  count(*) OVER () AS "total!"
           FROM unsent, moment
           WHERE since < moment.before
             AND (is_through OR NOT ((since AT TIME ZONE 'UTC')::date = ANY($2) AND (since AT TIME ZONE 'UTC')::date + 1 = ANY($2)))
             AND NOT EXISTS (SELECT FROM parked_events AS p WHERE p.event_id = unsent.event_id AND p.stage IN ('relay', 'receipts'))
           ORDER BY ids LIMIT 100"#,
        grace.as_secs_f64(),
        &kept.outbox,
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

#[derive(Debug)]
pub(crate) struct Receipt {
    pub(crate) event_id: Uuid,
    /// The order, or the charge that stands alone.
    pub(crate) aggregate: Uuid,
    pub(crate) mail_id: String,
    /// When it was booked, which is after the mail was delivered.
    pub(crate) sent_at: OffsetDateTime,
}

/// Hands over every receipt, in any order, without keeping them.
pub(crate) async fn each_receipt(tx: &mut PgConnection, mut with: impl FnMut(Receipt)) -> sqlx::Result<()> {
    let mut receipts =
        sqlx::query_as!(Receipt, "SELECT event_id, aggregate_id AS aggregate, mail_id, sent_at FROM receipts")
            .fetch(tx);
    while let Some(receipt) = receipts.try_next().await? {
        with(receipt);
    }
    Ok(())
}
