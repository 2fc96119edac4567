//! Refunds: what our own books say went back or is held back for it, among themselves.

use sqlx::PgConnection;

use super::{Row, batch};
use crate::audit::report::Batch;

/// A refund and its completed record are written in one transaction: while both are kept, neither is without the other. One that
/// failed later keeps the answer it had.
pub(crate) async fn lost_refunds(tx: &mut PgConnection) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"WITH lost AS (
               SELECT r.digest, r.resource_id::text AS id,
                      format('the record answers %s with %s, but there is no such refund', r.response_status, COALESCE(r.response_location, 'no location'))
                          AS because
               FROM idempotency_records AS r
               WHERE r.state = 'completed' AND r.operation = 'orders.refund' AND NOT EXISTS (
                   SELECT FROM refunds AS f
                   WHERE f.key_digest = r.digest AND f.status IN ('succeeded', 'failed') AND r.response_location LIKE '%/' || f.id
                     AND position(convert_to(f.id::text, 'UTF8') IN r.response_body) > 0
               )
               UNION ALL
               SELECT f.key_digest, f.id::text, format('refund %s has %s, but the record of its key is %s', f.id, f.status, r.state)
               FROM refunds AS f JOIN idempotency_records AS r ON r.digest = f.key_digest
               WHERE f.status IN ('succeeded', 'failed') AND r.state <> 'completed'
                 AND NOT EXISTS (SELECT FROM idempotency_records AS d WHERE d.digest = r.digest AND (d.state = 'completed' OR d.day > r.day))
           )
           SELECT encode(digest, 'hex') AS key, (array_agg(DISTINCT id))[1:10] AS "ids!", string_agg(because, ' and ' ORDER BY because) AS "detail!",
                  count(*) OVER () AS "total!"
           FROM lost GROUP BY digest ORDER BY digest LIMIT 100"#
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}

/// Orders against their refunds, one finding per order. What an open key has sent is held back, and nothing else is.
pub(crate) async fn mismatched_refunds(tx: &mut PgConnection) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"WITH sums AS (
               SELECT o.id, o.status, o.total_minor, o.refunded_minor, o.refund_reserved_minor, COALESCE(f.back, 0) AS back,
                      COALESCE(f.held, 0) AS held
               FROM orders AS o LEFT JOIN (
                   SELECT order_id, sum(amount_minor) FILTER (WHERE status = 'succeeded') AS back,
                          sum(amount_minor) FILTER (WHERE status IN ('reserved', 'succeeded')) AS held
                   FROM refunds GROUP BY order_id
               ) AS f ON f.order_id = o.id
           ),
           open AS (
               SELECT * FROM idempotency_records
               WHERE operation = 'orders.refund' AND state IN ('in_flight', 'unknown', 'needs_review') AND first_sent_at IS NOT NULL
           ),
           wrong AS (
               SELECT id AS order_id, NULL::text AS id,
                      format('it counts %s as given back and %s as given or held back, its refunds say %s and %s', refunded_minor,
                             refund_reserved_minor, back, held) AS because
               FROM sums WHERE refunded_minor <> back OR refund_reserved_minor <> held
               UNION ALL
               SELECT id, NULL, format('it is %s, and its refunds gave %s of %s back', status, back, total_minor)
               FROM sums
               WHERE status <> CASE WHEN back = 0 THEN 'paid' WHEN back < total_minor THEN 'partially_refunded' ELSE 'refunded' END
               UNION ALL
               SELECT id, NULL, format('it cost %s, and its refunds give or hold %s back', total_minor, held)
               FROM sums WHERE held > total_minor
               UNION ALL
               SELECT o.id, f.id::text, format('it cost %s, and refund %s is in %s', o.currency, f.id, f.currency)
               FROM refunds AS f JOIN orders AS o ON o.id = f.order_id WHERE f.currency <> o.currency
               UNION ALL
               SELECT f.order_id, f.id::text,
                      format('%s is held back for refund %s, whose record is %s', f.amount_minor, f.id, COALESCE((
                          SELECT string_agg(CASE WHEN r.state = 'in_flight' THEN 'given back unsent' ELSE r.state END, ', ' ORDER BY r.day)
                          FROM idempotency_records AS r WHERE r.digest = f.key_digest
                      ), 'no longer there'))
               FROM refunds AS f
               WHERE f.status = 'reserved' AND NOT EXISTS (SELECT FROM open WHERE open.digest = f.key_digest AND open.resource_id = f.id)
               UNION ALL
               SELECT COALESCE(f.order_id, open.resource_id), open.resource_id::text,
                      format('nothing is held back for refund %s, which is %s and whose record is %s', open.resource_id,
                             COALESCE(f.status, 'not there'), open.state)
               FROM open LEFT JOIN refunds AS f ON f.id = open.resource_id
               WHERE f.status IS DISTINCT FROM 'reserved'
           )
           SELECT NULL::text AS key, order_id::text || COALESCE((array_agg(DISTINCT id) FILTER (WHERE id IS NOT NULL))[1:9], '{}') AS "ids!",
                  format('order %s: ', order_id) || string_agg(because, '; ' ORDER BY because) AS "detail!", count(*) OVER () AS "total!"
           FROM wrong GROUP BY order_id ORDER BY order_id LIMIT 100"#
    )
    .fetch_all(tx)
    .await?;
    Ok(batch(rows))
}
