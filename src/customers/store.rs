//! The SQL of customers. Setting what is set already changes nothing, not even its time: that is all the idempotency it needs.

use anyhow::Context;
use sqlx::PgPool;
use time::OffsetDateTime;

use crate::{database, ids::CustomerId};

#[derive(Debug, Clone, PartialEq)]
pub struct Email {
    pub email: String,
    pub updated_at: OffsetDateTime,
}

pub async fn set_email(pool: &PgPool, customer: CustomerId, email: &str) -> anyhow::Result<Email> {
    let mut tx = database::begin(pool).await?;
    // Not in one statement: an update that changes nothing returns nothing.
    sqlx::query!(
        "INSERT INTO customers (customer_id, email) VALUES ($1, $2)
         ON CONFLICT (customer_id) DO UPDATE SET email = excluded.email, updated_at = excluded.updated_at
         WHERE customers.email <> excluded.email",
        customer.0,
        email,
    )
    .execute(&mut *tx)
    .await
    .context("setting an e-mail address")?;
    let set = sqlx::query_as!(Email, "SELECT email, updated_at FROM customers WHERE customer_id = $1", customer.0)
        .fetch_one(&mut *tx)
        .await
        .context("reading an e-mail address")?;
    tx.commit().await?;
    Ok(set)
}

pub async fn email(pool: &PgPool, customer: CustomerId) -> anyhow::Result<Option<Email>> {
    sqlx::query_as!(Email, "SELECT email, updated_at FROM customers WHERE customer_id = $1", customer.0)
        .fetch_optional(pool)
        .await
        .context("reading an e-mail address")
}
