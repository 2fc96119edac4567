//! The SQL of parked events.

use sqlx::PgConnection;
use time::{Date, OffsetDateTime};
use uuid::Uuid;

use super::{ATTEMPTS_MAX, Parked, Waiting};
use crate::{
    ids::{AggregateId, EventId},
    wire::event::Event,
};

/// Which of these aggregates have an event held at this stage: their later ones must wait behind it.
pub async fn held_among(
    connection: &mut PgConnection,
    stage: &str,
    aggregates: &[AggregateId],
) -> sqlx::Result<Vec<AggregateId>> {
    let aggregates: Vec<Uuid> = aggregates.iter().map(|aggregate| aggregate.0).collect();
    let rows = sqlx::query_scalar!(
        r#"SELECT a.aggregate_id AS "aggregate_id!" FROM unnest($2::uuid[]) AS a(aggregate_id)
           CROSS JOIN LATERAL (SELECT FROM parked_events WHERE stage = $1 AND aggregate_id = a.aggregate_id LIMIT 1) AS p"#,
        stage,
        &aggregates,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(AggregateId).collect())
}

/// An aggregate with a held event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    pub aggregate: AggregateId,
    /// Whether it must not be tried just now.
    pub resting: bool,
}

/// The aggregates with a held event at this stage, at most `most` of them.
pub async fn held_at(connection: &mut PgConnection, stage: &str, most: i64) -> sqlx::Result<Vec<Held>> {
    let rows = sqlx::query!(
        r#"SELECT aggregate_id, bool_or(next_attempt_at IS NULL OR next_attempt_at > (SELECT db_clock())) AS "resting!"
           FROM parked_events WHERE stage = $1 GROUP BY aggregate_id LIMIT $2"#,
        stage,
        most,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| Held { aggregate: AggregateId(row.aggregate_id), resting: row.resting }).collect())
}

/// Holds events that failed, or counts one more failure of those held already. Each failure makes the next pause longer; after
/// the last one there is none. Returns the events that are parked now.
pub async fn hold_failed(tx: &mut PgConnection, stage: &str, failed: &[(&Event, &str)]) -> sqlx::Result<Vec<EventId>> {
    let mut parked = Vec::new();
    for (event, why) in failed {
        let is_parked = sqlx::query_scalar!(
            r#"INSERT INTO parked_events AS p
                   (stage, event_id, day, aggregate_id, sequence, type, payload, occurred_at, attempts, error, next_attempt_at)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, $9, db_clock() + interval '1 s')
               ON CONFLICT (stage, event_id) DO UPDATE
                   SET attempts = p.attempts + 1, error = EXCLUDED.error,
                       next_attempt_at = CASE WHEN p.attempts + 1 < $10 THEN db_clock() + power(2, p.attempts) * interval '1 s' END
               RETURNING next_attempt_at IS NULL AS "is_parked!""#,
            stage,
            event.id.0,
            event.day,
            event.aggregate.0,
            event.sequence,
            &event.kind,
            &event.payload,
            event.occurred_at,
            why,
            ATTEMPTS_MAX,
        )
        .fetch_one(&mut *tx)
        .await?;
        if is_parked {
            parked.push(event.id);
        }
    }
    Ok(parked)
}

/// Puts events behind the held one of their aggregate.
pub async fn hold_behind(tx: &mut PgConnection, stage: &str, behind: &[&Event]) -> sqlx::Result<()> {
    let ids: Vec<Uuid> = behind.iter().map(|event| event.id.0).collect();
    let days: Vec<Date> = behind.iter().map(|event| event.day).collect();
    let aggregates: Vec<Uuid> = behind.iter().map(|event| event.aggregate.0).collect();
    let sequences: Vec<i32> = behind.iter().map(|event| event.sequence).collect();
    let kinds: Vec<&str> = behind.iter().map(|event| event.kind.as_str()).collect();
    let payloads: Vec<&str> = behind.iter().map(|event| event.payload.as_str()).collect();
    let times: Vec<OffsetDateTime> = behind.iter().map(|event| event.occurred_at).collect();
    sqlx::query!(
        "INSERT INTO parked_events (stage, event_id, day, aggregate_id, sequence, type, payload, occurred_at, attempts, next_attempt_at)
         SELECT $1, event_id, day, aggregate_id, sequence, type, payload, occurred_at, 0, db_clock()
         FROM unnest($2::uuid[], $3::date[], $4::uuid[], $5::int[], $6::text[], $7::text[], $8::timestamptz[])
             AS b(event_id, day, aggregate_id, sequence, type, payload, occurred_at)
         ON CONFLICT DO NOTHING",
        stage,
        &ids,
        &days,
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

/// The first held event of each aggregate, where its time has come: at most `most`, of the aggregates in these partitions. Its
/// partition is the last byte of its id modulo their number. (The scalar subqueries keep the plan: one walk along
/// `parked_events_due`, and one probe per row.)
pub async fn due(
    connection: &mut PgConnection,
    stage: &str,
    partitions: &[i16],
    of: u8,
    most: i64,
) -> sqlx::Result<Vec<Parked>> {
    let partitions: Vec<i32> = partitions.iter().copied().map(i32::from).collect();
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT p.stage, p.event_id, p.day, p.aggregate_id, p.sequence, p.type AS kind, p.payload, p.occurred_at, p.attempts, p.error,
                  p.held_at, p.next_attempt_at
           FROM parked_events AS p
           WHERE p.stage = $1 AND p.next_attempt_at <= (SELECT db_clock())
             AND get_byte(uuid_send(p.aggregate_id), 15) % $2 = ANY($3)
             AND p.sequence = (
                 SELECT min(first.sequence) FROM parked_events AS first WHERE first.stage = $1 AND first.aggregate_id = p.aggregate_id
             )
           ORDER BY p.next_attempt_at LIMIT $4"#,
        stage,
        i32::from(of),
        &partitions,
        most,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(Row::parked).collect())
}

/// Puts the next tries off, without counting the last ones. The longer an event is held, the longer the pause: one that is
/// never answered must not cost everybody the wait for it every few seconds.
pub async fn postpone(tx: &mut PgConnection, stage: &str, events: &[EventId]) -> sqlx::Result<()> {
    let ids: Vec<Uuid> = events.iter().map(|event| event.0).collect();
    sqlx::query!(
        "UPDATE parked_events
         SET next_attempt_at = db_clock() + LEAST(GREATEST((db_clock() - held_at) / 2, interval '5 s'), interval '5 min')
         WHERE stage = $1 AND event_id = ANY($2)",
        stage,
        &ids,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Events that came through leave.
pub async fn release(tx: &mut PgConnection, stage: &str, events: &[EventId]) -> sqlx::Result<()> {
    let ids: Vec<Uuid> = events.iter().map(|event| event.0).collect();
    sqlx::query!("DELETE FROM parked_events WHERE stage = $1 AND event_id = ANY($2)", stage, &ids).execute(tx).await?;
    Ok(())
}

/// What is parked, the longest held first, at most `most`; what waits behind it at the same stage is counted. (Behind an event
/// that a relay holds the others stay in the outbox.)
pub async fn waiting(connection: &mut PgConnection, stage: Option<&str>, most: i64) -> sqlx::Result<Vec<Waiting>> {
    let rows = sqlx::query!(
        r#"SELECT p.stage, p.event_id, p.day, p.aggregate_id, p.sequence, p.type AS kind, p.payload, p.occurred_at, p.attempts, p.error,
                  p.held_at, p.next_attempt_at,
                  (SELECT count(*) FROM parked_events AS b
                   WHERE b.stage = p.stage AND b.aggregate_id = p.aggregate_id AND b.sequence > p.sequence) AS "behind!"
           FROM parked_events AS p
           WHERE p.next_attempt_at IS NULL AND ($1::text IS NULL OR p.stage = $1)
           ORDER BY p.held_at, p.event_id LIMIT $2"#,
        stage,
        most,
    )
    .fetch_all(connection)
    .await?;
    let waiting = rows.into_iter().map(|row| Waiting {
        behind: row.behind,
        first: Row {
            stage: row.stage,
            event_id: row.event_id,
            day: row.day,
            aggregate_id: row.aggregate_id,
            sequence: row.sequence,
            kind: row.kind,
            payload: row.payload,
            occurred_at: row.occurred_at,
            attempts: row.attempts,
            error: row.error,
            held_at: row.held_at,
            next_attempt_at: row.next_attempt_at,
        }
        .parked(),
    });
    Ok(waiting.collect())
}

pub(super) async fn redrive(tx: &mut PgConnection, stage: Option<&str>, event: Option<EventId>) -> sqlx::Result<u64> {
    let redriven = sqlx::query!(
        "UPDATE parked_events SET attempts = 1, next_attempt_at = db_clock()
         WHERE next_attempt_at IS NULL AND ($1::text IS NULL OR stage = $1) AND ($2::uuid IS NULL OR event_id = $2)",
        stage,
        event.map(|event| event.0),
    )
    .execute(tx)
    .await?;
    Ok(redriven.rows_affected())
}

/// Whether an event of this day is held anywhere.
pub async fn holds_any(connection: &mut PgConnection, day: Date) -> sqlx::Result<bool> {
    sqlx::query_scalar!(r#"SELECT EXISTS (SELECT FROM parked_events WHERE day = $1) AS "held!""#, day)
        .fetch_one(connection)
        .await
}

struct Row {
    stage: String,
    event_id: Uuid,
    day: Date,
    aggregate_id: Uuid,
    sequence: i32,
    kind: String,
    payload: String,
    occurred_at: OffsetDateTime,
    attempts: i32,
    error: Option<String>,
    held_at: OffsetDateTime,
    next_attempt_at: Option<OffsetDateTime>,
}

impl Row {
    fn parked(self) -> Parked {
        Parked {
            stage: self.stage,
            event: Event {
                id: EventId(self.event_id),
                day: self.day,
                aggregate: AggregateId(self.aggregate_id),
                sequence: self.sequence,
                kind: self.kind,
                payload: self.payload,
                occurred_at: self.occurred_at,
            },
            attempts: self.attempts,
            error: self.error,
            parked: self.next_attempt_at.is_none(),
            held_since: self.held_at,
        }
    }
}
