//! The SQL of the log.

use std::collections::HashMap;

use sqlx::PgConnection;
use time::{Date, OffsetDateTime};
use uuid::Uuid;

use super::{Delivered, partition_of};
use crate::{
    ids::{AggregateId, EventId},
    wire::event::Event,
};

/// Appends under the locks of the partitions, which are held until the commit.
pub(super) async fn append(tx: &mut PgConnection, events: &[&Event]) -> sqlx::Result<()> {
    let mut counts: HashMap<i16, i64> = HashMap::new();
    for event in events {
        *counts.entry(partition_of(event.aggregate)).or_default() += 1;
    }
    let mut next = reserve(&mut *tx, &counts).await?;

    let partitions: Vec<i16> = events.iter().map(|event| partition_of(event.aggregate)).collect();
    let offsets: Vec<i64> = partitions
        .iter()
        .map(|partition| {
            let offset = next.entry(*partition).or_default();
            *offset += 1;
            *offset - 1
        })
        .collect();
    let days: Vec<Date> = events.iter().map(|event| event.day).collect();
    let ids: Vec<Uuid> = events.iter().map(|event| event.id.0).collect();
    let aggregates: Vec<Uuid> = events.iter().map(|event| event.aggregate.0).collect();
    let sequences: Vec<i32> = events.iter().map(|event| event.sequence).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    let payloads: Vec<&str> = events.iter().map(|event| event.payload.as_str()).collect();
    let times: Vec<OffsetDateTime> = events.iter().map(|event| event.occurred_at).collect();
    sqlx::query!(
        r#"INSERT INTO event_log (day, partition, "offset", event_id, aggregate_id, sequence, type, payload, occurred_at)
           SELECT * FROM unnest($1::date[], $2::smallint[], $3::bigint[], $4::uuid[], $5::uuid[], $6::int[], $7::text[], $8::text[],
                                $9::timestamptz[])"#,
        &days,
        &partitions,
        &offsets,
        &ids,
        &aggregates,
        &sequences,
        &kinds as &[&str],
        &payloads as &[&str],
        &times,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Takes as many offsets as are wanted, and returns the first of each partition. In the order of the partitions, so that two
/// publishers never wait for each other in a ring.
async fn reserve(tx: &mut PgConnection, counts: &HashMap<i16, i64>) -> sqlx::Result<HashMap<i16, i64>> {
    let mut partitions: Vec<i16> = counts.keys().copied().collect();
    partitions.sort_unstable();
    let wanted: Vec<i64> = partitions.iter().map(|partition| counts[partition]).collect();
    let rows = sqlx::query!(
        r#"WITH locked AS MATERIALIZED (
               SELECT partition, next_offset FROM log_partitions WHERE partition = ANY($1) ORDER BY partition FOR UPDATE
           )
           UPDATE log_partitions AS p SET next_offset = locked.next_offset + w.wanted
           FROM locked, unnest($1::smallint[], $2::bigint[]) AS w(partition, wanted)
           WHERE p.partition = locked.partition AND w.partition = locked.partition
           RETURNING p.partition, locked.next_offset AS "first!""#,
        &partitions,
        &wanted,
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().map(|row| (row.partition, row.first)).collect())
}

pub(super) async fn fetch(
    connection: &mut PgConnection,
    from: &[(i16, i64)],
    each: i64,
) -> sqlx::Result<Vec<Delivered>> {
    let partitions: Vec<i16> = from.iter().map(|(partition, _)| *partition).collect();
    let offsets: Vec<i64> = from.iter().map(|(_, offset)| *offset).collect();
    let rows = sqlx::query!(
        r#"SELECT l.partition AS "partition!", l."offset" AS "offset!", l.day AS "day!", l.event_id AS "event_id!",
                  l.aggregate_id AS "aggregate_id!", l.sequence AS "sequence!", l.type AS "kind!", l.payload AS "payload!",
                  l.occurred_at AS "occurred_at!"
           FROM unnest($1::smallint[], $2::bigint[]) AS w(partition, first)
           CROSS JOIN LATERAL (
               SELECT * FROM event_log AS e WHERE e.partition = w.partition AND e."offset" >= w.first ORDER BY e."offset" LIMIT $3
           ) AS l
           ORDER BY l.partition, l."offset""#,
        &partitions,
        &offsets,
        each,
    )
    .fetch_all(connection)
    .await?;
    let delivered = rows.into_iter().map(|row| Delivered {
        partition: row.partition,
        offset: row.offset,
        event: Event {
            id: EventId(row.event_id),
            day: row.day,
            aggregate: AggregateId(row.aggregate_id),
            sequence: row.sequence,
            kind: row.kind,
            payload: row.payload,
            occurred_at: row.occurred_at,
        },
    });
    Ok(delivered.collect())
}

/// Whether a day holds an event at or behind one of these offsets: somebody has not read it yet.
pub async fn holds_unread(connection: &mut PgConnection, day: Date, read: &[(i16, i64)]) -> sqlx::Result<bool> {
    let partitions: Vec<i16> = read.iter().map(|(partition, _)| *partition).collect();
    let offsets: Vec<i64> = read.iter().map(|(_, offset)| *offset).collect();
    sqlx::query_scalar!(
        r#"SELECT EXISTS (
               SELECT FROM unnest($2::smallint[], $3::bigint[]) AS r(partition, next)
               JOIN event_log AS e ON e.partition = r.partition AND e."offset" >= r.next WHERE e.day = $1
           ) AS "unread!""#,
        day,
        &partitions,
        &offsets,
    )
    .fetch_one(connection)
    .await
}
