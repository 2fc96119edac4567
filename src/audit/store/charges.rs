//! Charges: what our own books say was taken, for a comparison with the gateway's.

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
    /// Whether an order stands on it as paid.
    pub(crate) order_is_paid: bool,
    /// The net of the gateway's account over its order, where that order is the only one and was booked as it was charged.
    pub(crate) booked_minor: Option<i64>,
}

/// Hands over every succeeded charge, in any order, without keeping them.
pub(crate) async fn each_succeeded_charge(
    tx: &mut PgConnection,
    mut with: impl FnMut(SucceededCharge),
) -> sqlx::Result<()> {
    let mut charges = sqlx::query_as!(
        SucceededCharge,
        r#"SELECT c.id AS "id!", c.customer_id AS "customer_id!", c.key_digest AS "key_digest!", c.amount_minor AS "amount_minor!",
                  c.currency AS "currency!", c.gateway_id AS "gateway_id!", c.created_at AS "created_at!",
                  COALESCE(o.is_paid, false) AS "order_is_paid!", b.net AS "booked_minor?"
           FROM charges AS c
           LEFT JOIN (
               SELECT charge_id, bool_or(status = 'paid') AS is_paid, CASE count(*) WHEN 1 THEN (array_agg(id))[1] END AS only_id
               FROM orders GROUP BY charge_id
           ) AS o ON o.charge_id = c.id
           LEFT JOIN (
               SELECT order_id, sum(amount_minor)::bigint AS net, min(currency) AS currency,
                      sum(amount_minor) FILTER (WHERE amount_minor > 0) AS debited
               FROM ledger_entries WHERE account = 'gateway' GROUP BY order_id
           ) AS b ON b.order_id = o.only_id AND b.debited = c.amount_minor AND b.currency = c.currency
           WHERE c.status = 'succeeded'"#
    )
    .fetch(tx);
    while let Some(charge) = charges.try_next().await? {
        with(charge);
    }
    Ok(())
}
