//! The SQL of the inbox.

use std::collections::HashSet;

use sqlx::PgConnection;
use time::Date;
use uuid::Uuid;

use crate::{ids::EventId, wire::event::Event};

/// The next offset of each of these partitions.
pub async fn offsets(
    connection: &mut PgConnection,
    consumer: &str,
    partitions: &[i16],
) -> sqlx::Result<Vec<(i16, i64)>> {
    let rows = sqlx::query!(
        "SELECT partition, next_offset FROM consumer_offsets WHERE consumer = $1 AND partition = ANY($2) ORDER BY partition",
        consumer,
        partitions,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| (row.partition, row.next_offset)).collect())
}

/// How far every consumer is, at worst, in each partition.
pub async fn slowest(connection: &mut PgConnection) -> sqlx::Result<Vec<(i16, i64)>> {
    let rows = sqlx::query!(
        r#"SELECT partition, min(next_offset) AS "next_offset!" FROM consumer_offsets GROUP BY partition ORDER BY partition"#
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| (row.partition, row.next_offset)).collect())
}

/// Acknowledges everything before these offsets. It never goes back: a late owner's word is true, only old.
pub async fn acknowledge(tx: &mut PgConnection, consumer: &str, next: &[(i16, i64)]) -> sqlx::Result<()> {
    let partitions: Vec<i16> = next.iter().map(|(partition, _)| *partition).collect();
    let offsets: Vec<i64> = next.iter().map(|(_, offset)| *offset).collect();
    sqlx::query!(
        "UPDATE consumer_offsets AS c SET next_offset = n.next
         FROM unnest($2::smallint[], $3::bigint[]) AS n(partition, next)
         WHERE c.consumer = $1 AND c.partition = n.partition AND c.next_offset < n.next",
        consumer,
        &partitions,
        &offsets,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Which of these events the consumer has applied already.
pub async fn applied(
    connection: &mut PgConnection,
    consumer: &str,
    events: &[&Event],
) -> sqlx::Result<HashSet<EventId>> {
    let days: Vec<Date> = events.iter().map(|event| event.day).collect();
    let ids: Vec<Uuid> = events.iter().map(|event| event.id.0).collect();
    let rows = sqlx::query_scalar!(
        r#"SELECT p.event_id AS "event_id!" FROM unnest($2::date[], $3::uuid[]) AS e(day, event_id)
           CROSS JOIN LATERAL (
               SELECT event_id FROM processed WHERE consumer = $1 AND event_id = e.event_id AND day = e.day LIMIT 1
           ) AS p"#,
        consumer,
        &days,
        &ids,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(EventId).collect())
}

/// Remembers events as applied, and returns those that were not before: only their effects may happen in this transaction.
pub async fn take(tx: &mut PgConnection, consumer: &str, events: &[&Event]) -> sqlx::Result<HashSet<EventId>> {
    let days: Vec<Date> = events.iter().map(|event| event.day).collect();
    let ids: Vec<Uuid> = events.iter().map(|event| event.id.0).collect();
    let aggregates: Vec<Uuid> = events.iter().map(|event| event.aggregate.0).collect();
    let sequences: Vec<i32> = events.iter().map(|event| event.sequence).collect();
    let rows = sqlx::query_scalar!(
        "INSERT INTO processed (day, consumer, event_id, aggregate_id, sequence)
         SELECT day, $1, event_id, aggregate_id, sequence
         FROM unnest($2::date[], $3::uuid[], $4::uuid[], $5::int[]) AS e(day, event_id, aggregate_id, sequence)
         ON CONFLICT DO NOTHING
         RETURNING event_id",
        consumer,
        &days,
        &ids,
        &aggregates,
        &sequences,
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().map(EventId).collect())
}
