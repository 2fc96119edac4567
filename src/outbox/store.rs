//! The SQL of the outbox.

use std::collections::BTreeMap;

use sqlx::PgConnection;
use time::Date;
use uuid::Uuid;

use crate::{
    ids::{AggregateId, EventId},
    wire::event::Event,
};

/// Lanes that events travel in. All events of one aggregate take the same one, so that they stay in order.
pub const SHARDS: u128 = 64;

/// An event about to exist.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    pub id: EventId,
    pub aggregate: AggregateId,
    /// Position among the events of its aggregate, from 1.
    pub sequence: i32,
    pub kind: &'static str,
    /// JSON text.
    pub payload: String,
}

/// An event that no log has yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Unsent {
    /// Its row.
    pub id: i64,
    pub shard: i16,
    pub event: Event,
}

/// The lane of an aggregate. The low bits of a version 7 UUID are random, so they are the hash.
fn shard_of(aggregate: AggregateId) -> i16 {
    i16::try_from(aggregate.0.as_u128() % SHARDS).unwrap_or_default()
}

pub async fn append(tx: &mut PgConnection, events: &[&NewEvent]) -> sqlx::Result<()> {
    let ids: Vec<Uuid> = events.iter().map(|event| event.id.0).collect();
    let aggregates: Vec<Uuid> = events.iter().map(|event| event.aggregate.0).collect();
    let sequences: Vec<i32> = events.iter().map(|event| event.sequence).collect();
    let shards: Vec<i16> = events.iter().map(|event| shard_of(event.aggregate)).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind).collect();
    let payloads: Vec<&str> = events.iter().map(|event| event.payload.as_str()).collect();
    sqlx::query!(
        "WITH moment AS MATERIALIZED (SELECT db_clock() AS now)
         INSERT INTO outbox (day, event_id, aggregate_id, sequence, shard, type, payload, created_at)
         SELECT (moment.now AT TIME ZONE 'UTC')::date, event_id, aggregate_id, sequence, shard, type, payload::json, moment.now
         FROM moment, unnest($1::uuid[], $2::uuid[], $3::int[], $4::smallint[], $5::text[], $6::text[])
             AS n(event_id, aggregate_id, sequence, shard, type, payload)",
        &ids,
        &aggregates,
        &sequences,
        &shards,
        &kinds as &[&str],
        &payloads as &[&str],
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// The oldest events of these lanes that no log has, at most `most`, without those behind an event that a relay holds.
///
/// By status and never by `id > last`: a lower id may commit after a higher one. In the order of the ids, which of one aggregate
/// are in the order of its events.
pub async fn unsent(
    connection: &mut PgConnection,
    shards: &[i16],
    held: &[AggregateId],
    most: i64,
) -> sqlx::Result<Vec<Unsent>> {
    let held: Vec<Uuid> = held.iter().map(|aggregate| aggregate.0).collect();
    let rows = sqlx::query!(
        r#"SELECT id AS "id!", day AS "day!", event_id AS "event_id!", aggregate_id AS "aggregate_id!", sequence AS "sequence!",
                  shard AS "shard!", type AS "kind!", payload::text AS "payload!", created_at AS "created_at!"
           FROM outbox
           WHERE sent_at IS NULL AND shard = ANY($1) AND aggregate_id <> ALL($2)
           ORDER BY id LIMIT $3"#,
        shards,
        &held,
        most,
    )
    .fetch_all(connection)
    .await?;
    let unsent = rows.into_iter().map(|row| Unsent {
        id: row.id,
        shard: row.shard,
        event: Event {
            id: EventId(row.event_id),
            day: row.day,
            aggregate: AggregateId(row.aggregate_id),
            sequence: row.sequence,
            kind: row.kind,
            payload: row.payload,
            occurred_at: row.created_at,
        },
    });
    Ok(unsent.collect())
}

/// Marks rows as sent: exactly these, never "everything up to". A relay that comes late with what another has marked meanwhile
/// writes nothing.
///
/// That a row is unsent is asked in words that no index knows, and there is one statement per day: so there is no other way to
/// these rows than by their keys. Given one, PostgreSQL compares each of them with all that is unsent, and a backlog could
/// never be marked.
pub async fn mark(tx: &mut PgConnection, sent: &[&Unsent]) -> sqlx::Result<()> {
    let mut days: BTreeMap<Date, Vec<i64>> = BTreeMap::new();
    for unsent in sent {
        days.entry(unsent.event.day).or_default().push(unsent.id);
    }
    for (day, ids) in days {
        sqlx::query!(
            "UPDATE outbox SET sent_at = db_clock() WHERE day = $1 AND id = ANY($2) AND COALESCE(sent_at, 'infinity') = 'infinity'",
            day,
            &ids,
        )
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

/// Whether a day holds an event that is still to be sent.
pub async fn holds_unsent(connection: &mut PgConnection, day: Date) -> sqlx::Result<bool> {
    sqlx::query_scalar!(r#"SELECT EXISTS (SELECT FROM outbox WHERE day = $1 AND sent_at IS NULL) AS "unsent!""#, day)
        .fetch_one(connection)
        .await
}
