//! Tables that are partitioned by day: made ahead of midnight, dropped when nothing in a day is needed any more.
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

/// A table that is partitioned by its column `day`.
#[derive(Debug, Clone, Copy)]
pub struct ByDay {
    pub table: &'static str,
    /// Storage parameters of each day's partition.
    pub storage: &'static str,
}

/// Whether a day past its time is needed all the same.
pub trait Needed: Sync {
    fn is_needed(&self, connection: &mut PgConnection, day: Date) -> impl Future<Output = anyhow::Result<bool>> + Send;

    /// Days besides those ahead that rows may still come for.
    fn expected(&self, _connection: &mut PgConnection) -> impl Future<Output = anyhow::Result<Vec<Date>>> + Send {
        async { Ok(Vec::new()) }
    }
}

/// What one round of maintenance did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Maintained {
    pub made: Vec<Date>,
    pub dropped: Vec<Date>,
    /// Past their time, but something in them is still needed.
    pub kept: Vec<Date>,
}

/// Makes the days up to [`AHEAD_DAYS`] ahead and drops those that ended longer than `keep` ago, unless they are needed. Only one
/// maintainer works at a time; a second one waits for it, as long as the connection's `lock_timeout` allows.
pub async fn maintain(
    pool: &PgPool,
    days: ByDay,
    keep: std::time::Duration,
    needed: impl Needed,
) -> anyhow::Result<Maintained> {
    let mut connection = pool.acquire().await.context("no database connection for partition maintenance")?;
    sqlx::query!("SELECT pg_advisory_lock($1)", MAINTENANCE_LOCK).execute(&mut *connection).await?;
    let maintained = maintain_alone(&mut connection, days, keep, needed).await;
    let unlocked = sqlx::query!("SELECT pg_advisory_unlock($1)", MAINTENANCE_LOCK).fetch_one(&mut *connection).await;
    if unlocked.is_err() {
        // The lock would outlive this use of the connection; without the connection it cannot.
        drop(connection.detach());
    }
    maintained
}

async fn maintain_alone(
    connection: &mut PgConnection,
    days: ByDay,
    keep: std::time::Duration,
    needed: impl Needed,
) -> anyhow::Result<Maintained> {
    let today = sqlx::query_scalar!(r#"SELECT db_day() AS "day!""#).fetch_one(&mut *connection).await?;
    let mut maintained = Maintained::default();
    let attached = days.attached(connection).await?;
    let mut wanted: Vec<Date> = (0..=AHEAD_DAYS).map(|ahead| today + Duration::days(ahead)).collect();
    wanted.extend(needed.expected(connection).await?);
    for day in wanted {
        if !attached.contains(&day) && !maintained.made.contains(&day) {
            days.make(connection, day).await.with_context(|| format!("making {} of {day}", days.table))?;
            crash_point!(MaintenanceDayMade);
            maintained.made.push(day);
        }
    }
    days.finish_interrupted_drops(connection, today).await?;
    // A row of the last moment of a day is needed for `keep` from then; the day is needed until then.
    let keep = Duration::try_from(keep).unwrap_or(Duration::MAX);
    let now = sqlx::query_scalar!(r#"SELECT db_clock() AS "now!""#).fetch_one(&mut *connection).await?;
    for day in attached {
        let needed_until = (day + Duration::DAY).midnight().assume_utc().saturating_add(keep);
        if needed_until > now {
            continue;
        }
        if needed.is_needed(connection, day).await? {
            tracing::warn!(table = days.table, %day, "a day past its time holds something that is still needed, and is kept");
            maintained.kept.push(day);
        } else {
            match days.drop_day(connection, day).await {
                Ok(()) => maintained.dropped.push(day),
                // A long reader, a backup say, is in the way. Nobody needs the space today; the next round goes on.
                Err(error) => {
                    tracing::warn!(table = days.table, %day, %error, "a day past its time could not be dropped yet")
                }
            }
        }
    }
    Ok(maintained)
}

impl ByDay {
    /// Days from today on that have a partition, today included. Zero means that writes fail now.
    pub async fn ahead(self, pool: &PgPool) -> anyhow::Result<usize> {
        let mut connection = pool.acquire().await.context("no database connection")?;
        let today = sqlx::query_scalar!(r#"SELECT db_day() AS "day!""#).fetch_one(&mut *connection).await?;
        Ok(self.attached(&mut connection).await?.into_iter().filter(|day| *day >= today).count())
    }

    /// The days that have a partition.
    pub async fn attached(self, connection: &mut PgConnection) -> anyhow::Result<Vec<Date>> {
        let names = sqlx::query_scalar!(
            r#"SELECT c.relname AS "name!" FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
               WHERE i.inhparent = to_regclass($1) AND NOT i.inhdetachpending ORDER BY 1"#,
            self.table,
        )
        .fetch_all(connection)
        .await?;
        names.iter().map(|name| self.day_of(name)).collect()
    }

    /// A maintainer may die, or be timed out, in the middle of a drop. What it had begun was decided under this very lock and
    /// from rows that are final for good, so it is finished without asking again. What is still in the way is a warning:
    /// yesterday's leftovers are no reason to refuse customers today.
    async fn finish_interrupted_drops(self, connection: &mut PgConnection, today: Date) -> anyhow::Result<()> {
        let table = self.table;
        let half_detached = sqlx::query_scalar!(
            r#"SELECT c.relname AS "name!" FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
               WHERE i.inhparent = to_regclass($1) AND i.inhdetachpending"#,
            table,
        )
        .fetch_all(&mut *connection)
        .await?;
        for name in half_detached {
            let statement = format!("ALTER TABLE {table} DETACH PARTITION {name} FINALIZE");
            if let Err(error) = connection.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await {
                tracing::warn!(name, %error, "an interrupted detach could not be finished yet");
            }
        }
        let detached = sqlx::query_scalar!(
            r#"SELECT c.relname AS "name!" FROM pg_class AS c
               WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass($1))
                 AND c.relkind = 'r' AND c.relname ~ ('^' || $1 || '_\d{4}_\d{2}_\d{2}$') AND NOT c.relispartition"#,
            table,
        )
        .fetch_all(&mut *connection)
        .await?;
        for name in detached {
            if self.day_of(&name)? < today {
                let statement = format!("DROP TABLE {name}");
                if let Err(error) = connection.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await {
                    tracing::warn!(name, %error, "a detached day could not be dropped yet");
                }
            }
        }
        Ok(())
    }

    fn day_of(self, partition: &str) -> anyhow::Result<Date> {
        let day = partition.strip_prefix(self.table).and_then(|rest| rest.strip_prefix('_')).unwrap_or(partition);
        Date::parse(day, format_description!("[year]_[month]_[day]"))
            .with_context(|| format!("the partition {partition} is not named after a day"))
    }

    fn name_of(self, day: Date) -> String {
        format!("{}_{:04}_{:02}_{:02}", self.table, day.year(), u8::from(day.month()), day.day())
    }

    /// A table beside the parent, then an attach: that takes a lock which lets writes go on, where `CREATE … PARTITION OF`
    /// would stop them all.
    async fn make(self, connection: &mut PgConnection, day: Date) -> sqlx::Result<()> {
        let (table, storage) = (self.table, self.storage);
        let (name, next) = (self.name_of(day), day + Duration::DAY);
        let statement = format!(
            "CREATE TABLE IF NOT EXISTS {name} (
                 LIKE {table} INCLUDING ALL,
                 CONSTRAINT {name}_day CHECK (day >= '{day}' AND day < '{next}')
             ) WITH ({storage});
             ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ('{day}') TO ('{next}');
             ALTER TABLE {name} DROP CONSTRAINT {name}_day"
        );
        connection.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await?;
        Ok(())
    }

    /// Detached concurrently, so that writes go on, and outside any transaction, as PostgreSQL demands. Between the look and
    /// the drop nothing can become needed: new rows belong to today, and what was final stays final.
    async fn drop_day(self, connection: &mut PgConnection, day: Date) -> sqlx::Result<()> {
        let (table, name) = (self.table, self.name_of(day));
        let detach = format!("ALTER TABLE {table} DETACH PARTITION {name} CONCURRENTLY");
        crash_point!(MaintenanceBeforeDetach);
        connection.execute(sqlx::raw_sql(AssertSqlSafe(detach))).await?;
        crash_point!(MaintenanceDetached);
        connection.execute(sqlx::raw_sql(AssertSqlSafe(format!("DROP TABLE {name}")))).await?;
        Ok(())
    }
}
