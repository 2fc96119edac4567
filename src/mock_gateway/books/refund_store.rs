//! Refunds in PostgreSQL.
//!
//! Promise: a refund is written together with the next version of its charge, or not at all; and the charge's own constraint
//! refuses a sum above what it took, whatever the code believes.

use std::sync::Arc;

use sqlx::{Postgres, Transaction, types::Json};

use super::{Committed, rows, store::StoreBooks};
use crate::mock_gateway::{
    clock::{IntentId, RefundId},
    object::{Charge, Reason, Refund},
    paging::{Edge, Window},
};

pub(super) async fn write(
    transaction: &mut Transaction<'_, Postgres>,
    refund: &Refund,
    charge: &Charge,
) -> anyhow::Result<Committed> {
    if next_version(transaction, charge).await? == Committed::Stale {
        return Ok(Committed::Stale);
    }
    sqlx::query!(
        "INSERT INTO mock_gateway.refunds (id, charge, payment_intent, amount, currency, metadata, reason, status)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        refund.id.to_string(),
        refund.charge.to_string(),
        refund.intent.to_string(),
        refund.amount,
        refund.currency.code(),
        Json(&refund.metadata) as _,
        refund.reason.map(Reason::name),
        refund.status.name()
    )
    .execute(&mut **transaction)
    .await?;
    Ok(Committed::Done)
}

pub(super) async fn end(
    transaction: &mut Transaction<'_, Postgres>,
    refund: &Refund,
    charge: &Charge,
) -> anyhow::Result<Committed> {
    if next_version(transaction, charge).await? == Committed::Stale {
        return Ok(Committed::Stale);
    }
    sqlx::query!(
        "UPDATE mock_gateway.refunds SET status = $2 WHERE id = $1",
        refund.id.to_string(),
        refund.status.name()
    )
    .execute(&mut **transaction)
    .await?;
    Ok(Committed::Done)
}

async fn next_version(transaction: &mut Transaction<'_, Postgres>, charge: &Charge) -> sqlx::Result<Committed> {
    let moved = sqlx::query!(
        "UPDATE mock_gateway.charges SET version = $2, amount_refunded = $3 WHERE id = $1 AND version = $2 - 1",
        charge.id.to_string(),
        charge.version,
        charge.amount_refunded
    )
    .execute(&mut **transaction)
    .await?;
    Ok(if moved.rows_affected() == 1 { Committed::Done } else { Committed::Stale })
}

impl StoreBooks {
    pub(super) async fn refund(&self, id: RefundId) -> anyhow::Result<Option<Arc<Refund>>> {
        let row = sqlx::query_as!(
            rows::RefundRow,
            r#"SELECT id, charge, payment_intent, amount, currency, metadata AS "metadata: _", reason, status
               FROM mock_gateway.refunds WHERE id = $1"#,
            id.to_string()
        )
        .fetch_optional(&self.pool)
        .await?;
        row.map(Arc::try_from).transpose()
    }

    pub(super) async fn refunds(
        &self,
        intent: Option<IntentId>,
        window: Window<RefundId>,
        limit: usize,
    ) -> anyhow::Result<Vec<Arc<Refund>>> {
        macro_rules! ordered {
            ($order:tt) => {
                sqlx::query_as!(
                    rows::RefundRow,
                    r#"SELECT id, charge, payment_intent, amount, currency, metadata AS "metadata: _", reason, status
                       FROM mock_gateway.refunds
                       WHERE id >= $1 AND id < $2 AND ($3::text IS NULL OR payment_intent = $3) ORDER BY id "#
                        + $order
                        + " LIMIT $4",
                    window.from.to_string(),
                    window.below.to_string(),
                    intent.map(|intent| intent.to_string()),
                    i64::try_from(limit)?
                )
                .fetch_all(&self.pool)
                .await?
            };
        }
        let found = match window.edge {
            Edge::Newest => ordered!("DESC"),
            Edge::Oldest => ordered!("ASC"),
        };
        found.into_iter().map(Arc::try_from).collect()
    }
}
