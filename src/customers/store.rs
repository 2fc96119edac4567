//! The SQL of customers. Setting what is set already changes nothing, not even its time: that is all the idempotency it needs.

use std::collections::HashMap;

use anyhow::Context;
use sqlx::{PgConnection, PgPool};
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

/// The addresses of those of these customers who have set one.
pub async fn emails(tx: &mut PgConnection, customers: &[CustomerId]) -> sqlx::Result<HashMap<CustomerId, String>> {
    let customers: Vec<i64> = customers.iter().map(|customer| customer.0).collect();
    let rows = sqlx::query!("SELECT customer_id, email FROM customers WHERE customer_id = ANY($1)", &customers)
        .fetch_all(tx)
        .await?;
    Ok(rows.into_iter().map(|row| (CustomerId(row.customer_id), row.email)).collect())
}

pub async fn email(pool: &PgPool, customer: CustomerId) -> anyhow::Result<Option<Email>> {
    sqlx::query_as!(Email, "SELECT email, updated_at FROM customers WHERE customer_id = $1", customer.0)
        .fetch_optional(pool)
        .await
        .context("reading an e-mail address")
}
