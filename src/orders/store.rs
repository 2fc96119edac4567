//! The SQL of orders.

use std::collections::HashMap;

use anyhow::Context;
use sqlx::{PgConnection, PgPool, types::Json};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    ids::{ChargeId, CustomerId, OrderId},
    money::Money,
    wire::order::Line,
};

/// An order to be written. The digest of the scope it was asked for under is what makes it unique for good.
#[derive(Debug, Clone, PartialEq)]
pub struct NewOrder {
    pub id: OrderId,
    pub customer: CustomerId,
    pub charge: ChargeId,
    pub key_digest: [u8; 32],
    pub total: Money,
    pub lines: Vec<Line>,
    pub client_reference: Option<String>,
    pub created_at: OffsetDateTime,
}

pub async fn insert(tx: &mut PgConnection, orders: &[&NewOrder]) -> sqlx::Result<()> {
    let ids: Vec<Uuid> = orders.iter().map(|order| order.id.0).collect();
    let customers: Vec<i64> = orders.iter().map(|order| order.customer.0).collect();
    let charges: Vec<Uuid> = orders.iter().map(|order| order.charge.0).collect();
    let digests: Vec<&[u8]> = orders.iter().map(|order| &order.key_digest[..]).collect();
    let totals: Vec<i64> = orders.iter().map(|order| order.total.amount_minor()).collect();
    let currencies: Vec<&str> = orders.iter().map(|order| order.total.currency().code()).collect();
    let lines: Vec<Json<&[Line]>> = orders.iter().map(|order| Json(order.lines.as_slice())).collect();
    let references: Vec<Option<&str>> = orders.iter().map(|order| order.client_reference.as_deref()).collect();
    let created: Vec<OffsetDateTime> = orders.iter().map(|order| order.created_at).collect();
    sqlx::query!(
        "INSERT INTO orders (id, customer_id, charge_id, key_digest, status, total_minor, currency, items, client_reference, created_at)
         SELECT id, customer_id, charge_id, key_digest, 'paid', total_minor, currency, items, client_reference, created_at
         FROM unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::bytea[], $5::bigint[], $6::text[], $7::json[], $8::text[], $9::timestamptz[])
             AS n(id, customer_id, charge_id, key_digest, total_minor, currency, items, client_reference, created_at)",
        &ids,
        &customers,
        &charges,
        &digests as &[&[u8]],
        &totals,
        &currencies as &[&str],
        &lines as &[Json<&[Line]>],
        &references as &[Option<&str>],
        &created,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// What these scopes bought, ever. Asked inside the claim, before anything is sent.
pub async fn bought(tx: &mut PgConnection, digests: &[[u8; 32]]) -> sqlx::Result<HashMap<[u8; 32], Uuid>> {
    let digests: Vec<&[u8]> = digests.iter().map(|digest| &digest[..]).collect();
    let rows = sqlx::query!(
        r#"SELECT o.key_digest AS "key_digest!", o.id AS "id!"
           FROM unnest($1::bytea[]) AS wanted(digest)
           CROSS JOIN LATERAL (SELECT key_digest, id FROM orders WHERE orders.key_digest = wanted.digest LIMIT 1) AS o"#,
        &digests as &[&[u8]],
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().filter_map(|row| Some((row.key_digest.try_into().ok()?, row.id))).collect())
}

/// An order with the charge that paid it.
#[derive(Debug)]
pub struct StoredOrder {
    pub id: Uuid,
    pub status: String,
    pub total_minor: i64,
    pub currency: String,
    pub items: Json<Vec<Line>>,
    pub client_reference: Option<String>,
    pub charge_id: Uuid,
    pub charge_status: String,
    pub gateway_id: Option<String>,
    pub refunded_minor: i64,
    pub created_at: OffsetDateTime,
}

/// One order of this customer. Somebody else's is not found.
pub async fn find(pool: &PgPool, customer: CustomerId, id: OrderId) -> anyhow::Result<Option<StoredOrder>> {
    sqlx::query_as!(
        StoredOrder,
        r#"SELECT o.id, o.status, o.total_minor, o.currency, o.items AS "items: Json<Vec<Line>>", o.client_reference, o.charge_id,
                  c.status AS charge_status, c.gateway_id, o.refunded_minor, o.created_at
           FROM orders AS o JOIN charges AS c ON c.id = o.charge_id
           WHERE o.id = $1 AND o.customer_id = $2"#,
        id.0,
        customer.0,
    )
    .fetch_optional(pool)
    .await
    .context("reading an order")
}

/// The orders of this customer, newest first, from behind `after`.
pub async fn list(
    pool: &PgPool,
    customer: CustomerId,
    after: Option<OrderId>,
    most: i64,
) -> anyhow::Result<Vec<StoredOrder>> {
    sqlx::query_as!(
        StoredOrder,
        r#"SELECT o.id, o.status, o.total_minor, o.currency, o.items AS "items: Json<Vec<Line>>", o.client_reference, o.charge_id,
                  c.status AS charge_status, c.gateway_id, o.refunded_minor, o.created_at
           FROM orders AS o JOIN charges AS c ON c.id = o.charge_id
           WHERE o.customer_id = $1 AND ($2::uuid IS NULL OR o.id < $2)
           ORDER BY o.id DESC LIMIT $3"#,
        customer.0,
        after.map(|id| id.0),
        most,
    )
    .fetch_all(pool)
    .await
    .context("reading orders")
}
