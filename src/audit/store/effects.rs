//! Effects: what was booked and what was mailed, once, and as it happened.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Kept, Row, batch};
use crate::{audit::report::Batch, wire::event::ORDER_CREATED};

/// An order is sold once, so the gateway's account is debited for it once. And it is confirmed once; where the mail service is
/// asked, its own list says that better than our receipts (`mails_are_read`).
pub(crate) async fn repeated_effects(tx: &mut PgConnection, mails_are_read: bool) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"WITH kinds AS (SELECT event_id, type FROM outbox UNION SELECT event_id, type FROM event_log),
           found AS (
               SELECT order_id, (array_agg(event_id::text ORDER BY event_id))[1:9] AS events,
                      format('order %s was booked by %s events', order_id, count(*)) AS detail
               FROM ledger_entries WHERE account = 'gateway' AND amount_minor > 0 GROUP BY order_id HAVING count(*) > 1
               UNION ALL
               SELECT r.order_id, (array_agg(r.event_id::text ORDER BY r.event_id))[1:9],
                      format('order %s was confirmed by the receipts of %s events', r.order_id, count(*))
               FROM receipts AS r JOIN kinds AS k ON k.event_id = r.event_id
               WHERE NOT $1 AND k.type = $2 GROUP BY r.order_id HAVING count(*) > 1
           )
           SELECT NULL::text AS key, order_id::text || events AS "ids!", detail AS "detail!", count(*) OVER () AS "total!"
           FROM found ORDER BY order_id, detail LIMIT 100"#,
        mails_are_read,
        ORDER_CREATED,
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

/// By event: entries that do not sum to zero, one alone among them. By order: what the gateway was debited with is not what
/// was charged, or an event was processed that left no debit. One finding per order, however much of it is wrong; an order
/// that was booked twice is named as that.
pub(crate) async fn unbalanced_entries(tx: &mut PgConnection) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"WITH debits AS (
               SELECT order_id, count(*) AS postings, sum(amount_minor) AS amount, min(currency) AS currency
               FROM ledger_entries WHERE account = 'gateway' AND amount_minor > 0 GROUP BY order_id
           ),
           wrong AS (
               SELECT order_id, event_id::text AS id,
                      format('the entries of event %s sum to %s %s', event_id, sum(amount_minor), currency) AS because
               FROM ledger_entries GROUP BY order_id, event_id, currency HAVING sum(amount_minor) <> 0
               UNION ALL
               SELECT order_id, event_id::text, format('event %s has one entry', event_id)
               FROM ledger_entries GROUP BY order_id, event_id HAVING count(*) = 1
               UNION ALL
               SELECT o.id, c.id::text, format('the gateway''s account is debited with %s %s, charge %s took %s %s', COALESCE(d.amount, 0),
                                               COALESCE(d.currency, ''), c.id, c.amount_minor, c.currency)
               FROM orders AS o
               JOIN charges AS c ON c.id = o.charge_id AND c.status = 'succeeded'
               LEFT JOIN debits AS d ON d.order_id = o.id
               WHERE (d.postings = 1 AND (d.amount <> c.amount_minor OR d.currency <> c.currency))
                  OR (d.order_id IS NULL AND EXISTS (
                          SELECT FROM processed AS p WHERE p.consumer = 'ledger' AND p.order_id = o.id AND p.sequence = 1))
           )
           SELECT NULL::text AS key, order_id::text || (array_agg(DISTINCT id))[1:9] AS "ids!",
                  format('order %s: ', order_id) || string_agg(because, '; ' ORDER BY because) AS "detail!", count(*) OVER () AS "total!"
           FROM wrong GROUP BY order_id ORDER BY order_id LIMIT 100"#
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

/// What the gateway's account holds for orders that are not there.
#[derive(Debug)]
pub(crate) struct OfNobody {
    pub(crate) currency: String,
    pub(crate) booked_minor: i64,
    /// Some of them.
    pub(crate) orders: Vec<String>,
}

pub(crate) async fn entries_of_nobody(tx: &mut PgConnection) -> sqlx::Result<Vec<OfNobody>> {
    sqlx::query_as!(
        OfNobody,
        r#"SELECT currency, sum(amount_minor)::bigint AS "booked_minor!", (array_agg(DISTINCT order_id::text))[1:10] AS "orders!"
           FROM ledger_entries AS l
           WHERE account = 'gateway' AND NOT EXISTS (SELECT FROM orders AS o WHERE o.id = l.order_id)
           GROUP BY currency"#
    )
    .fetch_all(tx)
    .await
}

/// The receipts consumer is through with the order's first event, and there is no receipt. While it is not through, the event
/// is on its way, held or lost, and named as that. Of an order whose event is no longer kept, the ledger says that there was
/// one.
pub(crate) async fn unsent_receipts(tx: &mut PgConnection, grace: Duration, kept: &Kept) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"WITH moment AS MATERIALIZED (SELECT db_clock() - make_interval(secs => $1) AS before)
           SELECT encode(o.key_digest, 'hex') AS key, ARRAY[o.id::text] AS "ids!",
                  format('order %s has no receipt, and nobody holds its event', o.id) AS "detail!", count(*) OVER () AS "total!"
           FROM orders AS o, moment
           WHERE o.created_at < moment.before
             AND NOT EXISTS (SELECT FROM receipts AS r WHERE r.order_id = o.id)
             AND NOT EXISTS (SELECT FROM parked_events AS p WHERE p.order_id = o.id AND p.stage IN ('relay', 'receipts'))
             AND (
                 EXISTS (SELECT FROM processed AS d WHERE d.consumer = 'receipts' AND d.order_id = o.id AND d.sequence = 1)
                 OR (
                     NOT ((o.created_at AT TIME ZONE 'UTC')::date = ANY($2) AND (o.created_at AT TIME ZONE 'UTC')::date + 1 = ANY($2))
                     AND EXISTS (SELECT FROM ledger_entries AS l WHERE l.order_id = o.id)
                     AND NOT EXISTS (SELECT FROM outbox AS e WHERE e.order_id = o.id)
                     AND NOT EXISTS (SELECT FROM event_log AS e WHERE e.order_id = o.id)
                 )
             )
           ORDER BY o.id LIMIT 100"#,
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
    pub(crate) order_id: Uuid,
    pub(crate) mail_id: String,
    /// When it was booked, which is after the mail was delivered.
    pub(crate) sent_at: OffsetDateTime,
}

/// Hands over every receipt, in any order, without keeping them.
pub(crate) async fn each_receipt(tx: &mut PgConnection, mut with: impl FnMut(Receipt)) -> sqlx::Result<()> {
    let mut receipts = sqlx::query_as!(Receipt, "SELECT event_id, order_id, mail_id, sent_at FROM receipts").fetch(tx);
    while let Some(receipt) = receipts.try_next().await? {
        with(receipt);
    }
    Ok(())
}
