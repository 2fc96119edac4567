//! Charges: what our own books say was taken, for a comparison with the gateway's.

use std::ops::RangeInclusive;

use futures_util::TryStreamExt as _;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Row, batch};
use crate::audit::report::Batch;

pub(crate) async fn duplicate_charges(tx: &mut PgConnection) -> sqlx::Result<Batch> {
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

/// Charges that stand alone. Each and its completed record are written in one transaction: while both are kept, neither is
/// without the other. (Behind an order's charge stands the order, which is looked for by itself.)
pub(crate) async fn lost_charges(tx: &mut PgConnection) -> sqlx::Result<Batch> {
    let rows = sqlx::query_as!(
        Row,
        r#"WITH lost AS (
               SELECT r.digest, r.resource_id::text AS id,
                      format('the record answers %s with %s, but there is no such charge', r.response_status, COALESCE(r.response_location, 'no location'))
                          AS because
               FROM idempotency_records AS r
               WHERE r.state = 'completed' AND r.operation = 'charges.create' AND NOT EXISTS (
                   SELECT FROM charges AS c
                   WHERE c.key_digest = r.digest AND c.status = 'succeeded' AND r.response_location LIKE '%/' || c.id
                     AND position(convert_to(c.id::text, 'UTF8') IN r.response_body) > 0
               )
               UNION ALL
               SELECT c.key_digest, c.id::text, format('charge %s succeeded, but the record of its key is %s', c.id, r.state)
               FROM charges AS c JOIN idempotency_records AS r ON r.digest = c.key_digest
               WHERE c.status = 'succeeded' AND c.operation = 'charges.create' AND r.state <> 'completed'
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

#[derive(Debug)]
pub(crate) struct SucceededCharge {
    pub(crate) id: Uuid,
    pub(crate) customer_id: i64,
    pub(crate) key_digest: Vec<u8>,
    pub(crate) amount_minor: i64,
    pub(crate) currency: String,
    pub(crate) gateway_id: String,
    /// When it was booked, which is after it was captured.
    pub(crate) created_at: OffsetDateTime,
    /// What the gateway may say went back of its capture: what our refunds had given back before it was asked, and at most
    /// also those that are open, or ended or failed later.
    pub(crate) went_back: RangeInclusive<i64>,
    /// Where its order is the only one, or it stands alone; and charge and refunds were booked as they were.
    pub(crate) booked: Option<Booked>,
}

/// The gateway's account over one order, or one charge that stands alone.
#[derive(Debug)]
pub(crate) struct Booked {
    pub(crate) net_minor: i64,
    /// Of the refunds that are booked: what they gave back, less what failed.
    pub(crate) back_minor: i64,
}

/// Hands over every succeeded charge, in any order, without keeping them. `asked_at`: when the gateway was asked for its
/// ledger.
pub(crate) async fn each_succeeded_charge(
    tx: &mut PgConnection,
    asked_at: OffsetDateTime,
    mut with: impl FnMut(SucceededCharge),
) -> sqlx::Result<()> {
    let mut charges = sqlx::query!(
        r#"SELECT c.id AS "id!", c.customer_id AS "customer_id!", c.key_digest AS "key_digest!", c.amount_minor AS "amount_minor!",
                  c.currency AS "currency!", c.gateway_id AS "gateway_id!", c.created_at AS "created_at!",
                  COALESCE(r.least, 0) AS "least!", COALESCE(r.most, 0) AS "most!", b.net AS "net?", b.back AS "back?"
           FROM charges AS c
           LEFT JOIN (
               SELECT of.gateway_id, COALESCE(sum(f.amount_minor) FILTER (WHERE f.finished_at < $1 AND f.status <> 'failed'), 0)::bigint AS least,
                      sum(f.amount_minor)::bigint AS most
               FROM refunds AS f JOIN orders AS o ON o.id = f.order_id JOIN charges AS of ON of.id = o.charge_id
               WHERE f.status IN ('reserved', 'succeeded') OR f.failed_at >= $1 GROUP BY of.gateway_id
           ) AS r ON r.gateway_id = c.gateway_id
           LEFT JOIN (
               SELECT charge_id, CASE count(*) WHEN 1 THEN (array_agg(id))[1] END AS only_id FROM orders GROUP BY charge_id
           ) AS o ON o.charge_id = c.id
           LEFT JOIN (
               SELECT l.aggregate_id, sum(l.amount_minor)::bigint AS net, min(l.currency) AS currency, COALESCE(-sum(f.gateway_minor), 0)::bigint AS back,
                      sum(l.amount_minor) FILTER (WHERE f.event_id IS NULL) AS taken
               FROM ledger_entries AS l LEFT JOIN refund_events AS f ON f.event_id = l.event_id AND f.order_id = l.aggregate_id
               WHERE l.account = 'gateway' GROUP BY l.aggregate_id
           ) AS b ON b.aggregate_id = CASE c.operation WHEN 'charges.create' THEN c.id ELSE o.only_id END
                 AND b.taken = c.amount_minor AND b.net = c.amount_minor - b.back AND b.currency = c.currency
           WHERE c.status = 'succeeded'"#,
        asked_at,
    )
    .fetch(tx);
    while let Some(charge) = charges.try_next().await? {
        let booked = charge.net.zip(charge.back);
        with(SucceededCharge {
            id: charge.id,
            customer_id: charge.customer_id,
            key_digest: charge.key_digest,
            amount_minor: charge.amount_minor,
            currency: charge.currency,
            gateway_id: charge.gateway_id,
            created_at: charge.created_at,
            went_back: charge.least..=charge.most,
            booked: booked.map(|(net_minor, back_minor)| Booked { net_minor, back_minor }),
        });
    }
    Ok(())
}
