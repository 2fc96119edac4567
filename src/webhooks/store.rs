//! The SQL of the gateway's events.

use std::{collections::HashSet, time::Duration};

use sqlx::PgConnection;

/// An event as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent<'a> {
    pub event_id: &'a str,
    pub kind: &'a str,
    pub gateway_key: Option<&'a str>,
    pub payment_intent: Option<&'a str>,
    pub payload: &'a str,
}

/// Keeps an event. One that is there already stays as it is: it is the same event.
pub async fn insert(tx: &mut PgConnection, event: &NewEvent<'_>) -> sqlx::Result<()> {
    sqlx::query!(
        "INSERT INTO gateway_events (event_id, type, gateway_key, payment_intent, payload) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT DO NOTHING",
        event.event_id,
        event.kind,
        event.gateway_key,
        event.payment_intent,
        event.payload,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// An event that nothing has been made of yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unapplied {
    pub event_id: String,
    pub gateway_key: Option<String>,
    pub payment_intent: Option<String>,
}

/// What is due for a look. It is the caller's until the transaction ends; others look at other events meanwhile.
pub async fn take_unapplied(tx: &mut PgConnection, most: i64) -> sqlx::Result<Vec<Unapplied>> {
    sqlx::query_as!(
        Unapplied,
        "SELECT event_id, gateway_key, payment_intent FROM gateway_events
         WHERE applied_at IS NULL AND look_at <= (SELECT db_clock()) ORDER BY look_at LIMIT $1 FOR UPDATE SKIP LOCKED",
        most,
    )
    .fetch_all(tx)
    .await
}

/// What became of each event.
pub async fn applied(tx: &mut PgConnection, events: &[(&str, &'static str)]) -> sqlx::Result<()> {
    let ids: Vec<&str> = events.iter().map(|(id, _)| *id).collect();
    let outcomes: Vec<&str> = events.iter().map(|(_, outcome)| *outcome).collect();
    sqlx::query!(
        "UPDATE gateway_events AS e SET applied_at = db_clock(), outcome = n.outcome
         FROM unnest($1::text[], $2::text[]) AS n(event_id, outcome) WHERE e.event_id = n.event_id",
        &ids as &[&str],
        &outcomes as &[&str],
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Nothing can be made of these yet: look again after the pause.
pub async fn look_later(tx: &mut PgConnection, events: &[&str], pause: Duration) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE gateway_events AS e SET look_at = db_clock() + make_interval(secs => $2)
         FROM unnest($1::text[]) AS n(event_id) WHERE e.event_id = n.event_id",
        events as &[&str],
        pause.as_secs_f64(),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Forgets the oldest of those that something was made of so long ago. How many is the answer.
pub async fn forget(tx: &mut PgConnection, keep: Duration, most: i64) -> sqlx::Result<u64> {
    let forgotten = sqlx::query!(
        "DELETE FROM gateway_events WHERE event_id = ANY (ARRAY(
             SELECT event_id FROM gateway_events
             WHERE applied_at IS NOT NULL AND applied_at < (SELECT db_clock()) - make_interval(secs => $1)
             ORDER BY applied_at LIMIT $2 FOR UPDATE SKIP LOCKED
         ))",
        keep.as_secs_f64(),
        most,
    )
    .execute(tx)
    .await?;
    Ok(forgotten.rows_affected())
}

/// The payment intents that were named under a key, the latest news first.
pub async fn named(connection: &mut PgConnection, gateway_key: &str, most: i64) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar!(
        r#"SELECT payment_intent AS "payment_intent!" FROM gateway_events
           WHERE gateway_key = $1 AND payment_intent IS NOT NULL
           GROUP BY payment_intent ORDER BY max(received_at) DESC LIMIT $2"#,
        gateway_key,
        most,
    )
    .fetch_all(connection)
    .await
}

/// Which of these keys the gateway named an intent under.
pub async fn named_at_all(tx: &mut PgConnection, gateway_keys: &[String]) -> sqlx::Result<HashSet<String>> {
    let rows = sqlx::query_scalar!(
        r#"SELECT e.gateway_key AS "gateway_key!"
           FROM unnest($1::text[]) AS wanted(gateway_key)
           CROSS JOIN LATERAL (
               SELECT gateway_key FROM gateway_events
               WHERE gateway_events.gateway_key = wanted.gateway_key AND payment_intent IS NOT NULL LIMIT 1
           ) AS e"#,
        gateway_keys,
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().collect())
}
