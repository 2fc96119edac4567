//! The SQL of leases.

use std::time::Duration;

use sqlx::PgConnection;
use uuid::Uuid;

use super::Held;

/// Renews what the owner holds, releases what is more than its share, and takes what is free up to its share: all slots
/// divided by those who seek any, rounded up.
pub async fn hold(tx: &mut PgConnection, duty: &str, owner: Uuid, lease: Duration) -> sqlx::Result<Vec<Held>> {
    let lease_s = lease.as_secs_f64();
    sqlx::query!("DELETE FROM lease_seekers WHERE duty = $1 AND seen_until < db_clock()", duty)
        .execute(&mut *tx)
        .await?;
    sqlx::query!(
        "INSERT INTO lease_seekers (duty, owner, seen_until) VALUES ($1, $2, db_clock() + make_interval(secs => $3))
         ON CONFLICT (duty, owner) DO UPDATE SET seen_until = EXCLUDED.seen_until",
        duty,
        owner,
        lease_s,
    )
    .execute(&mut *tx)
    .await?;
    let share = sqlx::query_scalar!(
        r#"SELECT ceil((SELECT count(*) FROM leases WHERE duty = $1)::float8
                       / (SELECT count(*) FROM lease_seekers WHERE duty = $1))::bigint AS "share!""#,
        duty,
    )
    .fetch_one(&mut *tx)
    .await?;
    sqlx::query!(
        "WITH surplus AS (
             SELECT slot FROM leases WHERE duty = $1 AND owner = $2 AND lease_until > db_clock() ORDER BY slot OFFSET $3
         )
         UPDATE leases SET owner = NULL, lease_until = db_clock() WHERE duty = $1 AND slot IN (SELECT slot FROM surplus)",
        duty,
        owner,
        share,
    )
    .execute(&mut *tx)
    .await?;
    // Ours keep their epoch; a free one gets the next. A lease of our own that ran out is a free one like any other:
    // somebody may have had it in between.
    sqlx::query_as!(
        Held,
        r#"WITH moment AS MATERIALIZED (SELECT db_clock() AS now),
           ours AS MATERIALIZED (
               SELECT slot FROM leases, moment WHERE duty = $1 AND owner = $2 AND lease_until > moment.now
           ),
           free AS MATERIALIZED (
               SELECT slot FROM leases, moment
               WHERE duty = $1 AND lease_until <= moment.now
               ORDER BY slot LIMIT GREATEST($3 - (SELECT count(*) FROM ours), 0)
               FOR UPDATE OF leases SKIP LOCKED
           )
           UPDATE leases AS l
           SET owner = $2, lease_until = moment.now + make_interval(secs => $4),
               epoch = l.epoch + CASE WHEN l.slot IN (SELECT slot FROM free) THEN 1 ELSE 0 END
           FROM moment
           WHERE l.duty = $1 AND (l.slot IN (SELECT slot FROM ours) OR l.slot IN (SELECT slot FROM free))
           RETURNING l.slot, l.epoch"#,
        duty,
        owner,
        share,
        lease_s,
    )
    .fetch_all(tx)
    .await
}

/// Which of these slots are still ours, under the same epoch. Not locked: one may be taken over the moment after, and then two
/// do the same work, which everybody here bears.
pub async fn still_held(tx: &mut PgConnection, duty: &str, owner: Uuid, held: &[Held]) -> sqlx::Result<Vec<i16>> {
    let slots: Vec<i16> = held.iter().map(|held| held.slot).collect();
    let epochs: Vec<i64> = held.iter().map(|held| held.epoch).collect();
    sqlx::query_scalar!(
        "SELECT l.slot FROM leases AS l JOIN unnest($3::smallint[], $4::bigint[]) AS h(slot, epoch) ON l.slot = h.slot AND l.epoch = h.epoch
         WHERE l.duty = $1 AND l.owner = $2",
        duty,
        owner,
        &slots,
        &epochs,
    )
    .fetch_all(tx)
    .await
}

pub async fn release(tx: &mut PgConnection, duty: &str, owner: Uuid) -> sqlx::Result<()> {
    sqlx::query!("DELETE FROM lease_seekers WHERE duty = $1 AND owner = $2", duty, owner).execute(&mut *tx).await?;
    sqlx::query!(
        "UPDATE leases SET owner = NULL, lease_until = db_clock() WHERE duty = $1 AND owner = $2",
        duty,
        owner
    )
    .execute(tx)
    .await?;
    Ok(())
}
