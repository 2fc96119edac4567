//! The SQL of refunds. One at a time, not by the batch: each changes the row of its order, and the next one on the same order
//! must see that.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use anyhow::Context;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    ids::{CustomerId, EventId, OrderId, RefundId},
    money::Money,
};

/// A refund whose amount is held back.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRefund {
    pub id: RefundId,
    pub order: OrderId,
    pub customer: CustomerId,
    pub key_digest: [u8; 32],
    pub amount: Money,
}

/// When it was is the answer.
pub async fn insert(tx: &mut PgConnection, refund: &NewRefund) -> sqlx::Result<OffsetDateTime> {
    sqlx::query_scalar!(
        "INSERT INTO refunds (id, order_id, customer_id, key_digest, amount_minor, currency, status)
         VALUES ($1, $2, $3, $4, $5, $6, 'reserved') RETURNING created_at",
        refund.id.0,
        refund.order.0,
        refund.customer.0,
        &refund.key_digest[..],
        refund.amount.amount_minor(),
        refund.amount.currency().code(),
    )
    .fetch_one(tx)
    .await
}

/// Holds an amount back for it once more, after it was given up unsent.
pub async fn reserve_again(tx: &mut PgConnection, id: RefundId, amount_minor: i64) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE refunds SET status = 'reserved', amount_minor = $2 WHERE id = $1 AND status = 'released'",
        id.0,
        amount_minor,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Nothing was sent, and nothing is held back any more. False: that was so already, and must not be counted twice.
pub async fn release(tx: &mut PgConnection, id: RefundId) -> sqlx::Result<bool> {
    let ended = sqlx::query!("UPDATE refunds SET status = 'released' WHERE id = $1 AND status = 'reserved'", id.0)
        .execute(tx)
        .await?;
    Ok(ended.rows_affected() == 1)
}

/// What the gateway gave back, as the gateway says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenBack<'a> {
    pub gateway_id: &'a str,
    pub amount_minor: i64,
    /// The customer's bank has not confirmed it.
    pub pending: bool,
    /// The event that tells of it.
    pub event: EventId,
}

/// What was held back for it until now is the answer. `None`: its outcome was written down before.
pub async fn succeed(tx: &mut PgConnection, id: RefundId, given: GivenBack<'_>) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        "UPDATE refunds SET status = 'succeeded', gateway_id = $2, amount_minor = $3, event_id = $4, pending = $5, finished_at = db_clock(),
             look_at = db_clock() + CASE WHEN $5 THEN interval '1 hour' ELSE interval '1 day' END
         FROM (SELECT amount_minor FROM refunds WHERE id = $1 AND status = 'reserved' FOR NO KEY UPDATE) AS held
         WHERE id = $1
         RETURNING held.amount_minor",
        id.0,
        given.gateway_id,
        given.amount_minor,
        given.event.0,
        given.pending,
    )
    .fetch_optional(tx)
    .await
}

/// A refund that was given back, as the gateway is asked about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    pub id: RefundId,
    pub order: OrderId,
    pub customer: CustomerId,
    pub gateway_id: String,
    pub amount_minor: i64,
    pub currency: String,
    pub finished_at: OffsetDateTime,
    /// Whoever looks has it until then. Another moment in its row is news that came meanwhile.
    pub look_at: OffsetDateTime,
}

/// What is due for a look at the gateway, the longest due first. It is the caller's for this long.
pub async fn take_due(tx: &mut PgConnection, most: i64, lease: Duration) -> sqlx::Result<Vec<Due>> {
    let rows = sqlx::query!(
        r#"UPDATE refunds AS r SET look_at = db_clock() + make_interval(secs => $2)
           FROM (
               SELECT id FROM refunds WHERE status = 'succeeded' AND look_at <= (SELECT db_clock())
               ORDER BY look_at LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED
           ) AS due
           WHERE r.id = due.id
           RETURNING r.id, r.order_id, r.customer_id, r.gateway_id AS "gateway_id!", r.amount_minor, r.currency,
                     r.finished_at AS "finished_at!", r.look_at AS "look_at!""#,
        most,
        lease.as_secs_f64(),
    )
    .fetch_all(tx)
    .await?;
    let due = rows.into_iter().map(|row| Due {
        id: RefundId(row.id),
        order: OrderId(row.order_id),
        customer: CustomerId(row.customer_id),
        gateway_id: row.gateway_id,
        amount_minor: row.amount_minor,
        currency: row.currency,
        finished_at: row.finished_at,
        look_at: row.look_at,
    });
    Ok(due.collect())
}

/// The gateway still counts it as given back. When to look again: never, if that is not said. If there was news while the gateway
/// was asked, its answer may be older than that, and nothing is written: the row is due.
pub async fn still_given(
    tx: &mut PgConnection,
    due: &Due,
    pending: bool,
    look_at: Option<OffsetDateTime>,
) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE refunds SET pending = $2, look_at = $4 WHERE id = $1 AND status = 'succeeded' AND look_at = $3",
        due.id.0,
        pending,
        due.look_at,
        look_at,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// It failed although it had been given back. False: that is known already, and must not be counted twice.
pub async fn fail(tx: &mut PgConnection, id: RefundId, event: EventId) -> sqlx::Result<bool> {
    let failed = sqlx::query!(
        "UPDATE refunds SET status = 'failed', pending = false, failed_at = db_clock(), failure_event_id = $2, look_at = NULL
         WHERE id = $1 AND status = 'succeeded'",
        id.0,
        event.0,
    )
    .execute(tx)
    .await?;
    Ok(failed.rows_affected() == 1)
}

/// There is news of what was given back under these keys: it is due for a look. Under which it was is the answer.
pub async fn look_now(tx: &mut PgConnection, digests: &[[u8; 32]]) -> sqlx::Result<HashSet<[u8; 32]>> {
    let digests: Vec<&[u8]> = digests.iter().map(|digest| &digest[..]).collect();
    let rows = sqlx::query_scalar!(
        "UPDATE refunds AS r SET look_at = db_clock()
         FROM (
             SELECT id FROM refunds WHERE key_digest = ANY($1) AND status = 'succeeded' ORDER BY id FOR NO KEY UPDATE
         ) AS told
         WHERE r.id = told.id
         RETURNING r.key_digest",
        &digests as &[&[u8]],
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().filter_map(|digest| digest.try_into().ok()).collect())
}

/// Those that the gateway calls by these names are due for a look.
pub async fn look_now_at(tx: &mut PgConnection, gateway_ids: &[&str]) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE refunds AS r SET look_at = db_clock()
         FROM (
             SELECT id FROM refunds WHERE gateway_id = ANY($1) AND status = 'succeeded' ORDER BY id FOR NO KEY UPDATE
         ) AS told
         WHERE r.id = told.id",
        gateway_ids as &[&str],
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// What our books say of a refund that has an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    GivenBack { pending: bool },
    Failed,
    Refused,
}

impl Known {
    fn read(status: &str, pending: bool) -> Option<Self> {
        match status {
            "succeeded" => Some(Self::GivenBack { pending }),
            "failed" => Some(Self::Failed),
            "refused" => Some(Self::Refused),
            _ => None,
        }
    }
}

/// What is known of those that the gateway calls by these names.
pub async fn known_by_name(tx: &mut PgConnection, gateway_ids: &[&str]) -> sqlx::Result<HashMap<String, Known>> {
    let rows = sqlx::query!(
        r#"SELECT gateway_id AS "gateway_id!", status, pending FROM refunds WHERE gateway_id = ANY($1)"#,
        gateway_ids as &[&str],
    )
    .fetch_all(tx)
    .await?;
    let known = rows.into_iter().filter_map(|row| Some((row.gateway_id, Known::read(&row.status, row.pending)?)));
    Ok(known.collect())
}

/// What is known under these keys; of one that was refused and ran anew, what it gave back. Two questions, since each has an
/// index of its own.
pub async fn known_by_key(tx: &mut PgConnection, digests: &[[u8; 32]]) -> sqlx::Result<HashMap<[u8; 32], Known>> {
    let digests: Vec<&[u8]> = digests.iter().map(|digest| &digest[..]).collect();
    let rows = sqlx::query!(
        r#"SELECT key_digest AS "key_digest!", status AS "status!", pending AS "pending!" FROM (
               SELECT id, key_digest, status, pending FROM refunds
               WHERE key_digest = ANY($1) AND status IN ('succeeded', 'failed')
               UNION ALL
               SELECT id, key_digest, status, pending FROM refunds WHERE key_digest = ANY($1) AND status = 'refused'
           ) AS known
           ORDER BY (status <> 'refused'), id"#,
        &digests as &[&[u8]],
    )
    .fetch_all(tx)
    .await?;
    let known = |digest: Vec<u8>, status: &str, pending| Some((digest.try_into().ok()?, Known::read(status, pending)?));
    // Of two the later counts.
    Ok(rows.into_iter().filter_map(|row| known(row.key_digest, &row.status, row.pending)).collect())
}

/// False: its outcome was written down before.
pub async fn refuse(tx: &mut PgConnection, id: RefundId, refusal: &str) -> sqlx::Result<bool> {
    let ended = sqlx::query!(
        "UPDATE refunds SET status = 'refused', refusal = $2, finished_at = db_clock() WHERE id = $1 AND status = 'reserved'",
        id.0,
        refusal,
    )
    .execute(tx)
    .await?;
    Ok(ended.rows_affected() == 1)
}

/// What these scopes gave back, or tried to, ever, and of which order.
pub async fn given_back(
    tx: &mut PgConnection,
    digests: &[[u8; 32]],
) -> sqlx::Result<HashMap<[u8; 32], (OrderId, RefundId)>> {
    let digests: Vec<&[u8]> = digests.iter().map(|digest| &digest[..]).collect();
    let rows = sqlx::query!(
        r#"SELECT r.key_digest AS "key_digest!", r.order_id AS "order_id!", r.id AS "id!"
           FROM unnest($1::bytea[]) AS wanted(digest)
           CROSS JOIN LATERAL (
               SELECT key_digest, order_id, id FROM refunds
               WHERE refunds.key_digest = wanted.digest AND status IN ('reserved', 'succeeded', 'failed') LIMIT 1
           ) AS r"#,
        &digests as &[&[u8]],
    )
    .fetch_all(tx)
    .await?;
    let of_row = |digest: Vec<u8>, order, id| Some((digest.try_into().ok()?, (OrderId(order), RefundId(id))));
    Ok(rows.into_iter().filter_map(|row| of_row(row.key_digest, row.order_id, row.id)).collect())
}

/// A refund as its customer sees it.
#[derive(Debug)]
pub struct StoredRefund {
    pub id: Uuid,
    pub order_id: Uuid,
    pub status: String,
    /// Of one that succeeded: the customer's bank has not confirmed it.
    pub pending: bool,
    pub amount_minor: i64,
    pub currency: String,
    pub gateway_id: Option<String>,
    pub created_at: OffsetDateTime,
}

/// One refund of an order of this customer. What was given up unsent is none, and somebody else's is not found.
pub async fn find(
    pool: &PgPool,
    customer: CustomerId,
    order: OrderId,
    id: RefundId,
) -> anyhow::Result<Option<StoredRefund>> {
    sqlx::query_as!(
        StoredRefund,
        "SELECT id, order_id, status, pending, amount_minor, currency, gateway_id, created_at FROM refunds
         WHERE id = $1 AND order_id = $2 AND customer_id = $3 AND status <> 'released'",
        id.0,
        order.0,
        customer.0,
    )
    .fetch_optional(pool)
    .await
    .context("reading a refund")
}

/// The refunds of one order, newest first, from behind `after`.
pub async fn list(
    pool: &PgPool,
    order: OrderId,
    after: Option<RefundId>,
    most: i64,
) -> anyhow::Result<Vec<StoredRefund>> {
    sqlx::query_as!(
        StoredRefund,
        "SELECT id, order_id, status, pending, amount_minor, currency, gateway_id, created_at FROM refunds
         WHERE order_id = $1 AND status <> 'released' AND ($2::uuid IS NULL OR id < $2)
         ORDER BY id DESC LIMIT $3",
        order.0,
        after.map(|id| id.0),
        most,
    )
    .fetch_all(pool)
    .await
    .context("reading refunds")
}
