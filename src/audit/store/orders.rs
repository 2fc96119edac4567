//! Orders, their charges and their records: the questions about what was bought.

use sqlx::PgConnection;

use super::{Row, batch};
use crate::audit::report::Batch;

pub(crate) async fn duplicate_orders(tx: &mut PgConnection) -> sqlx::Result<Batch> {
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

/// A lost order may show itself twice, by its charge and by its record, and is one all the same.
pub(crate) async fn lost_orders(tx: &mut PgConnection) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"WITH lost AS (
               SELECT c.key_digest AS digest, c.id::text AS id, format('charge %s succeeded', c.id) AS because
               FROM charges AS c
               WHERE c.status = 'succeeded' AND c.operation = 'orders.create' AND NOT EXISTS (SELECT FROM orders AS o WHERE o.key_digest = c.key_digest)
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

pub(crate) async fn uncharged_orders(tx: &mut PgConnection) -> sqlx::Result<Batch> {
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
pub(crate) async fn unrecorded_orders(tx: &mut PgConnection) -> sqlx::Result<Batch> {
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

/// Order against charge. The charge is compared with its capture where the ledger is read.
pub(crate) async fn mismatched_orders(tx: &mut PgConnection) -> sqlx::Result<Batch> {
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
