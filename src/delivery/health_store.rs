//! The SQL of health. Every question is a handful of probes or a count that stops.

use sqlx::PgConnection;

use super::health::{Consumer, Keys, Lease, Outbox, Stage};

/// Both from the small index of what is unsent. Ids are in the order of insertion, so the oldest is the first.
pub(super) async fn outbox(connection: &mut PgConnection, most: i64) -> sqlx::Result<Outbox> {
    sqlx::query_as!(
        Outbox,
        r#"SELECT (SELECT count(*) FROM (SELECT FROM outbox WHERE sent_at IS NULL ORDER BY id LIMIT $1) AS counted) AS "unsent!",
                  (SELECT GREATEST(extract(epoch FROM db_clock() - first.created_at), 0)::float8
                   FROM (SELECT created_at FROM outbox WHERE sent_at IS NULL ORDER BY id LIMIT 1) AS first)
                      AS oldest_unsent_age_s"#,
        most,
    )
    .fetch_one(connection)
    .await
}

/// Offsets have no gaps, so how far behind somebody is needs no look into the log: only the age of the first unread one does.
pub(super) async fn consumers(connection: &mut PgConnection) -> sqlx::Result<Vec<Consumer>> {
    sqlx::query_as!(
        Consumer,
        r#"SELECT c.consumer AS "name!", sum(p.next_offset - c.next_offset)::bigint AS "lag!",
                  -- GREATEST passes over a NULL, and nothing unread has no age.
                  CASE WHEN min(first.occurred_at) IS NOT NULL
                      THEN GREATEST(extract(epoch FROM db_clock() - min(first.occurred_at)), 0)::float8 END AS oldest_unread_age_s
           FROM consumer_offsets AS c
           JOIN log_partitions AS p ON p.partition = c.partition
           LEFT JOIN LATERAL (
               SELECT e.occurred_at FROM event_log AS e
               WHERE e.partition = c.partition AND e."offset" >= c.next_offset AND p.next_offset > c.next_offset
               ORDER BY e."offset" LIMIT 1
           ) AS first ON true
           GROUP BY c.consumer ORDER BY c.consumer"#
    )
    .fetch_all(connection)
    .await
}

/// Every stage, also one that holds nothing: a figure that is missing cannot be watched.
pub(super) async fn stages(connection: &mut PgConnection, most: i64) -> sqlx::Result<Vec<Stage>> {
    sqlx::query_as!(
        Stage,
        r#"SELECT s.stage AS "name!", held.count AS "held!", parked.count AS "parked!"
           FROM (SELECT DISTINCT consumer AS stage FROM consumer_offsets UNION SELECT 'relay') AS s
           CROSS JOIN LATERAL (
               SELECT count(*) FROM (
                   SELECT FROM parked_events AS p WHERE p.stage = s.stage AND p.next_attempt_at IS NOT NULL LIMIT $1
               ) AS counted
           ) AS held
           CROSS JOIN LATERAL (
               SELECT count(*) FROM (
                   SELECT FROM parked_events AS p WHERE p.stage = s.stage AND p.next_attempt_at IS NULL LIMIT $1
               ) AS counted
           ) AS parked
           ORDER BY s.stage"#,
        most,
    )
    .fetch_all(connection)
    .await
}

/// From the small index of unresolved records.
pub(super) async fn keys(connection: &mut PgConnection, most: i64) -> sqlx::Result<Keys> {
    sqlx::query_as!(
        Keys,
        r#"SELECT count(*) FILTER (WHERE state = 'unknown') AS "unknown!",
                  count(*) FILTER (WHERE state = 'needs_review') AS "needs_review!",
                  count(*) FILTER (WHERE state = 'in_flight' AND lease_until < (SELECT db_clock())) AS "in_flight_expired!"
           FROM (
               SELECT state, lease_until FROM idempotency_records
               WHERE state IN ('in_flight', 'unknown', 'needs_review') AND first_sent_at IS NOT NULL LIMIT $1
           ) AS open"#,
        most,
    )
    .fetch_one(connection)
    .await
}

pub(super) async fn leases(connection: &mut PgConnection) -> sqlx::Result<Vec<Lease>> {
    sqlx::query_as!(
        Lease,
        r#"SELECT duty, owner AS "owner!", count(*) AS "slots!" FROM leases
           WHERE owner IS NOT NULL AND lease_until > (SELECT db_clock()) GROUP BY duty, owner ORDER BY duty, owner"#
    )
    .fetch_all(connection)
    .await
}
