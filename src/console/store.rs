//! The SQL of the pages. Every question is bounded, so that looking at a busy checkout does not slow it down.

use anyhow::Context;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    delivery::health::Health,
    idempotency::record::State,
    parking::{self, Waiting},
};

/// Parked events shown.
const PARKED_MAX: i64 = 50;
/// Rows counted before a count stops being exact.
const COUNTED_MAX: i64 = 50_000;

#[derive(Debug)]
pub(super) struct Books {
    pub(super) counts: Counts,
    pub(super) open: Vec<OpenRecord>,
    pub(super) orders: Vec<Order>,
    pub(super) health: Health,
    pub(super) parked: Vec<Waiting>,
}

/// Records by state.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) by_state: Vec<(State, i64)>,
    /// Whether there are more final records than were counted. The open ones are always counted to the last.
    pub(super) more: bool,
}

/// A record without a final answer. Times are what the database's clock says is left or past, in seconds.
#[derive(Debug)]
pub(super) struct OpenRecord {
    pub(super) state: String,
    pub(super) customer_id: i64,
    pub(super) operation: String,
    pub(super) key: String,
    pub(super) fence: i32,
    pub(super) tries: i32,
    pub(super) maybe_sent: bool,
    pub(super) age_s: f64,
    pub(super) due_in_s: Option<f64>,
}

#[derive(Debug)]
pub(super) struct Order {
    pub(super) id: Uuid,
    pub(super) customer_id: i64,
    pub(super) client_reference: Option<String>,
    pub(super) total_minor: i64,
    pub(super) currency: String,
    pub(super) created_at: OffsetDateTime,
    pub(super) key: Option<String>,
    pub(super) record_state: Option<String>,
    pub(super) charge_status: Option<String>,
    pub(super) gateway_id: Option<String>,
}

/// Whether the database answers at all.
pub(super) async fn reach(pool: &PgPool) -> sqlx::Result<()> {
    sqlx::query_scalar!(r#"SELECT 1 AS "one!""#).fetch_one(pool).await.map(drop)
}

/// All that the first page shows of the database.
pub(super) async fn books(pool: &PgPool) -> anyhow::Result<Books> {
    let health = Health::read(pool).await?;
    let mut connection = pool.acquire().await.context("no database connection")?;
    Ok(Books {
        health,
        counts: counts(&mut connection).await.context("counting records")?,
        open: open_records(&mut connection).await.context("reading open records")?,
        orders: newest_orders(&mut connection).await.context("reading orders")?,
        parked: parking::store::waiting(&mut connection, None, PARKED_MAX).await.context("reading parked events")?,
    })
}

/// The open states come from their own small index; what was released unsent is not open. The final ones are counted up to a bound: there may be millions.
async fn counts(connection: &mut PgConnection) -> sqlx::Result<Counts> {
    let rows = sqlx::query!(
        r#"SELECT state AS "state!", count(*) AS "count!"
           FROM idempotency_records WHERE state IN ('in_flight', 'unknown', 'needs_review') AND first_sent_at IS NOT NULL GROUP BY state
           UNION ALL
           SELECT state, count(*) FROM (SELECT state FROM idempotency_records LIMIT $1) AS counted
           WHERE state IN ('completed', 'failed') GROUP BY state"#,
        COUNTED_MAX,
    )
    .fetch_all(connection)
    .await?;
    let of = |state: State| rows.iter().find(|row| row.state == state.name()).map_or(0, |row| row.count);
    let by_state: Vec<_> = State::ALL.into_iter().map(|state| (state, of(state))).collect();
    let more = by_state.iter().map(|(_, count)| count).sum::<i64>() >= COUNTED_MAX;
    Ok(Counts { by_state, more })
}

async fn open_records(connection: &mut PgConnection) -> sqlx::Result<Vec<OpenRecord>> {
    sqlx::query_as!(
        OpenRecord,
        r#"WITH moment AS MATERIALIZED (SELECT db_clock() AS now)
           SELECT r.state AS "state!", r.customer_id AS "customer_id!", r.operation AS "operation!", r.key AS "key!", r.fence AS "fence!",
                  r.tries AS "tries!", r.first_sent_at IS NOT NULL AS "maybe_sent!",
                  extract(epoch FROM moment.now - r.created_at)::float8 AS "age_s!",
                  extract(epoch FROM COALESCE(r.next_attempt_at, r.lease_until) - moment.now)::float8 AS due_in_s
           FROM idempotency_records AS r, moment
           WHERE r.state IN ('in_flight', 'unknown', 'needs_review') AND r.first_sent_at IS NOT NULL
           ORDER BY r.created_at DESC LIMIT 50"#
    )
    .fetch_all(connection)
    .await
}

/// Ids are ordered by time, so the newest orders are the end of the primary key.
async fn newest_orders(connection: &mut PgConnection) -> sqlx::Result<Vec<Order>> {
    sqlx::query_as!(
        Order,
        r#"SELECT o.id AS "id!", o.customer_id AS "customer_id!", o.client_reference, o.total_minor AS "total_minor!",
                  o.currency AS "currency!", o.created_at AS "created_at!", r.key AS "key?", r.state AS "record_state?",
                  c.status AS "charge_status?", c.gateway_id
           FROM (SELECT * FROM orders ORDER BY id DESC LIMIT 50) AS o
           LEFT JOIN charges AS c ON c.id = o.charge_id
           LEFT JOIN LATERAL (
               SELECT key, state FROM idempotency_records WHERE digest = o.key_digest ORDER BY day DESC LIMIT 1
           ) AS r ON true
           ORDER BY o.id DESC"#
    )
    .fetch_all(connection)
    .await
}
