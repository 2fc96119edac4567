//! Events in PostgreSQL.
//!
//! Promise: an event commits with the change it tells of, and stays pending until its delivery was confirmed, through any kill.

use std::sync::Arc;

use anyhow::Context;
use sqlx::{Postgres, Transaction};

use super::{rows, store::StoreBooks};
use crate::mock_gateway::{
    clock::EventId,
    events::{Event, EventKind, KeptEvent},
    paging::{Edge, Window},
};

pub(super) async fn write(transaction: &mut Transaction<'_, Postgres>, kept: &KeptEvent) -> anyhow::Result<()> {
    let event = &*kept.event;
    sqlx::query!(
        "INSERT INTO mock_gateway.events (id, type, payment_intent, object, request_id, idempotency_key, pending)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        event.id.to_string(),
        event.kind.name(),
        event.intent().to_string(),
        serde_json::to_vec(&event.object).context("an event's object")?,
        &*event.request_id,
        event.key.as_deref(),
        kept.pending
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

impl StoreBooks {
    pub(super) async fn event(&self, id: EventId) -> anyhow::Result<Option<KeptEvent>> {
        let row = sqlx::query_as!(
            rows::EventRow,
            "SELECT id, type AS kind, payment_intent, object, request_id, idempotency_key, pending
             FROM mock_gateway.events WHERE id = $1",
            id.to_string()
        )
        .fetch_optional(&self.pool)
        .await?;
        row.map(KeptEvent::try_from).transpose()
    }

    pub(super) async fn events(
        &self,
        kinds: &[EventKind],
        window: Window<EventId>,
        limit: usize,
    ) -> anyhow::Result<Vec<KeptEvent>> {
        let kinds: Vec<String> = kinds.iter().map(|kind| kind.name().to_owned()).collect();
        macro_rules! ordered {
            ($order:tt) => {
                sqlx::query_as!(
                    rows::EventRow,
                    "SELECT id, type AS kind, payment_intent, object, request_id, idempotency_key, pending
                     FROM mock_gateway.events
                     WHERE id >= $1 AND id < $2 AND type = ANY($3) ORDER BY id "
                        + $order
                        + " LIMIT $4",
                    window.from.to_string(),
                    window.below.to_string(),
                    &kinds,
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
        found.into_iter().map(KeptEvent::try_from).collect()
    }

    pub(super) async fn pending_events(&self, limit: usize) -> anyhow::Result<Vec<Arc<Event>>> {
        let found = sqlx::query_as!(
            rows::EventRow,
            "SELECT id, type AS kind, payment_intent, object, request_id, idempotency_key, pending
             FROM mock_gateway.events WHERE pending ORDER BY id LIMIT $1",
            i64::try_from(limit)?
        )
        .fetch_all(&self.pool)
        .await?;
        found.into_iter().map(|row| Ok(KeptEvent::try_from(row)?.event)).collect()
    }

    pub(super) async fn count_pending_events(&self) -> anyhow::Result<u64> {
        let count = sqlx::query_scalar!(r#"SELECT count(*) AS "count!" FROM mock_gateway.events WHERE pending"#)
            .fetch_one(&self.pool)
            .await?;
        Ok(u64::try_from(count)?)
    }

    pub(super) async fn settle_events(&self, ids: &[EventId]) -> anyhow::Result<()> {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let mut transaction = self.pool.begin().await?;
        sqlx::query!("UPDATE mock_gateway.events SET pending = false WHERE id = ANY($1)", &ids)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(())
    }

    pub(super) async fn settle_all_events(&self) -> anyhow::Result<()> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query!("UPDATE mock_gateway.events SET pending = false WHERE pending").execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(())
    }
}
