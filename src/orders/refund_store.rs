//! The SQL of what goes back from an order. The order's own row counts it, under its lock: two refunds that race see one
//! another, and a CHECK ends what no statement should let through.
//!
//! Whoever changes records as well locks orders first, records second: [`lock`].

use sqlx::PgConnection;
use uuid::Uuid;

use crate::ids::OrderId;

/// Locks these orders until the transaction ends. Sorted, so that two batches never wait for each other.
pub async fn lock(tx: &mut PgConnection, orders: &[OrderId]) -> sqlx::Result<()> {
    let mut ids: Vec<Uuid> = orders.iter().map(|order| order.0).collect();
    ids.sort_unstable();
    sqlx::query!("SELECT FROM orders WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE", &ids).fetch_all(tx).await?;
    Ok(())
}

/// What came of a wish to hold an amount back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// So much is held back, in minor units.
    Amount(i64),
    /// Only so much is left.
    TooMuch { left_minor: i64 },
}

/// Holds an amount back, or all that is left. An order that is not there has nothing left.
pub async fn reserve(tx: &mut PgConnection, order: OrderId, amount_minor: Option<i64>) -> sqlx::Result<Reserved> {
    // Locked before it is read: in READ COMMITTED the values are then the latest.
    let left = sqlx::query_scalar!(
        r#"SELECT total_minor - refund_reserved_minor AS "left!" FROM orders WHERE id = $1 FOR NO KEY UPDATE"#,
        order.0,
    )
    .fetch_optional(&mut *tx)
    .await?
    .unwrap_or(0);
    let amount = amount_minor.unwrap_or(left);
    if amount <= 0 || amount > left {
        return Ok(Reserved::TooMuch { left_minor: left });
    }
    sqlx::query!("UPDATE orders SET refund_reserved_minor = refund_reserved_minor + $2 WHERE id = $1", order.0, amount)
        .execute(tx)
        .await?;
    Ok(Reserved::Amount(amount))
}

/// How much of an order is neither given back nor held back, in minor units. As of this moment: nothing is locked.
pub async fn left(connection: &mut PgConnection, order: OrderId) -> sqlx::Result<i64> {
    let left = sqlx::query_scalar!(
        r#"SELECT total_minor - refund_reserved_minor AS "left!" FROM orders WHERE id = $1"#,
        order.0
    )
    .fetch_optional(connection)
    .await?;
    Ok(left.unwrap_or(0))
}

/// Holds an amount back no longer: nothing was sent, or the gateway refused.
pub async fn release(tx: &mut PgConnection, order: OrderId, amount_minor: i64) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE orders SET refund_reserved_minor = refund_reserved_minor - $2 WHERE id = $1",
        order.0,
        amount_minor
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// What was given back has come back: it is neither given nor held back any more. The sequence of the event that tells so is
/// the answer.
pub async fn take_back(tx: &mut PgConnection, order: OrderId, amount_minor: i64) -> sqlx::Result<i32> {
    sqlx::query_scalar!(
        "UPDATE orders
         SET refunded_minor = refunded_minor - $2, refund_reserved_minor = refund_reserved_minor - $2, events = events + 1,
             status = CASE WHEN refunded_minor = $2 THEN 'paid' ELSE 'partially_refunded' END
         WHERE id = $1
         RETURNING events",
        order.0,
        amount_minor,
    )
    .fetch_one(tx)
    .await
}

/// What was held back has been given back. The sequence of the event that tells so is the answer.
pub async fn give_back(tx: &mut PgConnection, order: OrderId, amount_minor: i64) -> sqlx::Result<i32> {
    sqlx::query_scalar!(
        "UPDATE orders
         SET refunded_minor = refunded_minor + $2, events = events + 1,
             status = CASE WHEN refunded_minor + $2 < total_minor THEN 'partially_refunded' ELSE 'refunded' END
         WHERE id = $1
         RETURNING events",
        order.0,
        amount_minor,
    )
    .fetch_one(tx)
    .await
}
