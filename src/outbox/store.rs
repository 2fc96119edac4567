//! The SQL of the outbox.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::ids::{EventId, OrderId};

/// Lanes that events travel in. All events of one order take the same one, so that they stay in order.
pub const SHARDS: u128 = 64;

/// An event about to exist.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    pub id: EventId,
    pub order: OrderId,
    /// Position among the order's events, from 1.
    pub sequence: i32,
    pub kind: &'static str,
    /// JSON text.
    pub payload: String,
}

/// The lane of an order. The low bits of a version 7 UUID are random, so they are the hash.
fn shard_of(order: OrderId) -> i16 {
    i16::try_from(order.0.as_u128() % SHARDS).unwrap_or_default()
}

pub async fn append(tx: &mut PgConnection, events: &[&NewEvent]) -> sqlx::Result<()> {
    let ids: Vec<Uuid> = events.iter().map(|event| event.id.0).collect();
    let orders: Vec<Uuid> = events.iter().map(|event| event.order.0).collect();
    let sequences: Vec<i32> = events.iter().map(|event| event.sequence).collect();
    let shards: Vec<i16> = events.iter().map(|event| shard_of(event.order)).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind).collect();
    let payloads: Vec<&str> = events.iter().map(|event| event.payload.as_str()).collect();
    sqlx::query!(
        "INSERT INTO outbox (event_id, order_id, sequence, shard, type, payload)
         SELECT event_id, order_id, sequence, shard, type, payload::json
         FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::smallint[], $5::text[], $6::text[])
             AS n(event_id, order_id, sequence, shard, type, payload)",
        &ids,
        &orders,
        &sequences,
        &shards,
        &kinds as &[&str],
        &payloads as &[&str],
    )
    .execute(tx)
    .await?;
    Ok(())
}
