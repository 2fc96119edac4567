//! Day partitions: made ahead of midnight, dropped when nothing in them is needed any more.
//!
//! There is no default partition: a row that found no day of its own would make the day impossible to attach later. So days
//! are made [`AHEAD_DAYS`] in advance, and readiness says how many are left.

use anyhow::Context;
use sqlx::{AssertSqlSafe, Executor, PgConnection, PgPool};
use time::{Date, Duration, macros::format_description};

use crate::crash_point::crash_point;

/// Days that are made in advance: a weekend with every worker down, and one more.
pub const AHEAD_DAYS: i64 = 3;

/// One advisory lock for all maintainers, held by a session. The number is only a name.
const MAINTENANCE_LOCK: i64 = 0x6461_7973;

/// What one round of maintenance did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Maintained {
    pub made: Vec<Date>,
    pub dropped: Vec<Date>,
    /// Past their time, but a record in them is open or still replayed.
    pub kept: Vec<Date>,
}

/// Makes the days up to [`AHEAD_DAYS`] ahead and drops those past `expiry`. Only one maintainer works at a time; a second one
/// waits for it, as long as the connection's `lock_timeout` allows.
pub async fn maintain(pool: &PgPool, expiry: std::time::Duration) -> anyhow::Result<Maintained> {
    let mut connection = pool.acquire().await.context("no database connection for partition maintenance")?;
    sqlx::query!("SELECT pg_advisory_lock($1)", MAINTENANCE_LOCK).execute(&mut *connection).await?;
    let maintained = maintain_alone(&mut connection, expiry).await;
    let unlocked = sqlx::query!("SELECT pg_advisory_unlock($1)", MAINTENANCE_LOCK).fetch_one(&mut *connection).await;
    if unlocked.is_err() {
        // The lock would outlive this use of the connection; without the connection it cannot.
        drop(connection.detach());
    }
    maintained
}

async fn maintain_alone(connection: &mut PgConnection, expiry: std::time::Duration) -> anyhow::Result<Maintained> {
    let today = sqlx::query_scalar!(r#"SELECT db_day() AS "day!""#).fetch_one(&mut *connection).await?;
    let mut maintained = Maintained::default();
    let attached = attached_days(connection).await?;
    for ahead in 0..=AHEAD_DAYS {
        let day = today + Duration::days(ahead);
        if !attached.contains(&day) {
            make(connection, day).await.with_context(|| format!("making the partition of {day}"))?;
            crash_point!(MaintenanceDayMade);
            maintained.made.push(day);
        }
    }
    finish_interrupted_drops(connection, today).await?;
    // A record made in the last moment of a day expires `expiry` later; the day is needed until then.
    let replayed_s = expiry.as_secs_f64();
    let expiry = Duration::try_from(expiry).unwrap_or(Duration::MAX);
    let now = sqlx::query_scalar!(r#"SELECT db_clock() AS "now!""#).fetch_one(&mut *connection).await?;
    for day in attached {
        let needed_until = (day + Duration::DAY).midnight().assume_utc().saturating_add(expiry);
        if needed_until > now {
            continue;
        }
        if is_needed(connection, day, replayed_s).await? {
            tracing::warn!(%day, "a day past its expiry holds an open key, or an answer that is still replayed, and is kept");
            maintained.kept.push(day);
        } else {
            match drop_day(connection, day).await {
                Ok(()) => maintained.dropped.push(day),
                // A long reader, a backup say, is in the way. Nobody needs the space today; the next round goes on.
                Err(error) => tracing::warn!(%day, %error, "a day past its expiry could not be dropped yet"),
            }
        }
    }
    Ok(maintained)
}

/// Days from today on that have a partition, today included. Zero means that claims fail now.
pub async fn days_ahead(pool: &PgPool) -> anyhow::Result<usize> {
    let mut connection = pool.acquire().await.context("no database connection")?;
    let today = sqlx::query_scalar!(r#"SELECT db_day() AS "day!""#).fetch_one(&mut *connection).await?;
    Ok(attached_days(&mut connection).await?.into_iter().filter(|day| *day >= today).count())
}

async fn attached_days(connection: &mut PgConnection) -> anyhow::Result<Vec<Date>> {
    let names = sqlx::query_scalar!(
        r#"SELECT c.relname AS "name!" FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
           WHERE i.inhparent = 'idempotency_records'::regclass AND NOT i.inhdetachpending ORDER BY 1"#
    )
    .fetch_all(connection)
    .await?;
    names.iter().map(|name| day_of(name)).collect()
}

/// A maintainer may die, or be timed out, in the middle of a drop. What it had begun was decided under this very lock and
/// from records that are final for good, so it is finished without asking again. What is still in the way is a warning:
/// yesterday's leftovers are no reason to refuse customers today.
async fn finish_interrupted_drops(connection: &mut PgConnection, today: Date) -> anyhow::Result<()> {
    let half_detached = sqlx::query_scalar!(
        r#"SELECT c.relname AS "name!" FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
           WHERE i.inhparent = 'idempotency_records'::regclass AND i.inhdetachpending"#
    )
    .fetch_all(&mut *connection)
    .await?;
    for name in half_detached {
        let statement = format!("ALTER TABLE idempotency_records DETACH PARTITION {name} FINALIZE");
        if let Err(error) = connection.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await {
            tracing::warn!(name, %error, "an interrupted detach could not be finished yet");
        }
    }
    let detached = sqlx::query_scalar!(
        r#"SELECT c.relname AS "name!" FROM pg_class AS c
           WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'idempotency_records'::regclass)
             AND c.relkind = 'r' AND c.relname ~ '^idempotency_records_\d{4}_\d{2}_\d{2}$' AND NOT c.relispartition"#
    )
    .fetch_all(&mut *connection)
    .await?;
    for name in detached {
        if day_of(&name)? < today {
            let statement = format!("DROP TABLE {name}");
            if let Err(error) = connection.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await {
                tracing::warn!(name, %error, "a detached day could not be dropped yet");
            }
        }
    }
    Ok(())
}

fn day_of(partition: &str) -> anyhow::Result<Date> {
    let day = partition.strip_prefix("idempotency_records_").unwrap_or(partition);
    Date::parse(day, format_description!("[year]_[month]_[day]"))
        .with_context(|| format!("the partition {partition} is not named after a day"))
}

fn name_of(day: Date) -> String {
    format!("idempotency_records_{:04}_{:02}_{:02}", day.year(), u8::from(day.month()), day.day())
}

/// A table beside the parent, then an attach: that takes a lock which lets claims go on, where `CREATE … PARTITION OF` would
/// stop them all.
async fn make(connection: &mut PgConnection, day: Date) -> sqlx::Result<()> {
    let (name, next) = (name_of(day), day + Duration::DAY);
    // Half of each page stays free: a record grows from its request to its answer, and the update then stays on its page.
    let statement = format!(
        "CREATE TABLE IF NOT EXISTS {name} (
             LIKE idempotency_records INCLUDING ALL,
             CONSTRAINT {name}_day CHECK (day >= '{day}' AND day < '{next}')
         ) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);
         ALTER TABLE idempotency_records ATTACH PARTITION {name} FOR VALUES FROM ('{day}') TO ('{next}');
         ALTER TABLE {name} DROP CONSTRAINT {name}_day"
    );
    connection.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await?;
    Ok(())
}

/// Whether a day holds a key whose outcome is open (one that was given back unsent is not), or an answer that came so late
/// that it is still replayed.
async fn is_needed(connection: &mut PgConnection, day: Date, replayed_s: f64) -> anyhow::Result<bool> {
    let found = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM idempotency_records
                           WHERE day = $1 AND state IN ('in_flight', 'unknown', 'needs_review') AND first_sent_at IS NOT NULL)
               OR EXISTS (SELECT FROM idempotency_records
                           WHERE day = $1 AND finished_at > db_clock() - make_interval(secs => $2)) AS "found!""#,
        day,
        replayed_s,
    )
    .fetch_one(connection)
    .await?;
    Ok(found)
}

/// Detached concurrently, so that claims go on, and outside any transaction, as PostgreSQL demands. Between the look and the
/// drop nothing can become open: new records belong to today, and a final record stays final.
async fn drop_day(connection: &mut PgConnection, day: Date) -> sqlx::Result<()> {
    let name = name_of(day);
    let detach = format!("ALTER TABLE idempotency_records DETACH PARTITION {name} CONCURRENTLY");
    crash_point!(MaintenanceBeforeDetach);
    connection.execute(sqlx::raw_sql(AssertSqlSafe(detach))).await?;
    crash_point!(MaintenanceDetached);
    connection.execute(sqlx::raw_sql(AssertSqlSafe(format!("DROP TABLE {name}")))).await?;
    Ok(())
}
