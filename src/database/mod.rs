//! The way to PostgreSQL: how a process connects, brings the schema up to date and opens a transaction.

pub mod days;
pub mod embedded;
pub mod group_commit;

use std::time::Duration;

use anyhow::Context;
use sqlx::{
    Connection, Executor, PgConnection, PgPool, Postgres, Transaction,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use time::OffsetDateTime;
use tokio::time::Instant;

use crate::config::DatabaseArgs;

/// Settings of every connection on the order path.
///
/// A new day's partition is empty at midnight and full an hour later, and a prepared statement keeps its first plan. So
/// the plans may not depend on statistics: each of these statements is a handful of index probes, and nothing else is
/// ever right. Compiling them (`jit`) costs more than running them: it halved the measured rate.
const PLAN_SETTINGS: [(&str, &str); 5] = [
    ("jit", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
];

/// Bounds that PostgreSQL keeps for us, in place of time-outs around our futures: a statement that the server ended is over
/// and its locks are free, a future that was dropped leaves it running.
const BOUND_SETTINGS: [(&str, &str); 4] = [
    ("statement_timeout", "5s"),
    ("lock_timeout", "3s"),
    // Whoever is stopped between two statements keeps its locks for this long, and everybody behind it waits: others' keys,
    // lanes, partitions. Between two statements of ours there is no waiting, but there may be a machine that is
    // suspended, swaps or is out of turns, and who is ended for that has its batch to do again. 10 s is twice what a
    // statement may take, three times what a lock is waited for, and below the lease of a claim (15 s): when a late owner's
    // key may be taken over, its locks are gone.
    ("idle_in_transaction_session_timeout", "10s"),
    ("client_min_messages", "error"),
];

/// Longest wait for a connection. Three of them still leave time for an honest 503.
const ACQUIRE_MAX: Duration = Duration::from_secs(1);

/// A connection under load never rests for so long.
const RESTED: Duration = Duration::from_millis(250);

/// A server that has not let one connection in by then will not do so soon.
const PROBE_MAX: Duration = Duration::from_secs(3);
/// And for a pool's first connections: nobody waits for an answer yet, and a machine that starts everything at once is slow.
const START_MAX: Duration = Duration::from_secs(10);

/// A pool for short transactions. The first connection is made at once, so that a wrong URL is said at start.
pub async fn connect(args: &DatabaseArgs, name: &str) -> anyhow::Result<PgPool> {
    let options = probe(&args.database_url).await?;
    let options =
        options.application_name(name).options(PLAN_SETTINGS).options(BOUND_SETTINGS).statement_cache_capacity(128);
    let pool = PgPoolOptions::new()
        .max_connections(args.connections)
        .min_connections(args.connections.min(2))
        .acquire_timeout(ACQUIRE_MAX)
        .idle_timeout(None)
        // One round trip saved per use: only what has rested is asked whether it still lives. A server that was started again
        // leaves nothing but dead ones.
        .test_before_acquire(false)
        .before_acquire(|connection, meta| {
            Box::pin(async move {
                if meta.idle_for >= RESTED {
                    connection.ping().await?;
                }
                Ok(true)
            })
        })
        .connect_lazy_with(options);
    let since = Instant::now();
    loop {
        match pool.acquire().await {
            Ok(_) => return Ok(pool),
            Err(sqlx::Error::PoolTimedOut) if since.elapsed() < START_MAX => {}
            Err(error) => return Err(error).context("cannot connect to PostgreSQL"),
        }
    }
}

/// Reads a URL and makes one plain connection, which says at once why there is none: a pool would try again in silence, and
/// then only say that it gave up.
pub async fn probe(url: &str) -> anyhow::Result<PgConnectOptions> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    anyhow::ensure!(
        matches!(scheme, "postgres" | "postgresql"),
        "the database URL begins with `{scheme}://`: only PostgreSQL is spoken here, postgres://user:password@host:port/database"
    );
    // What sqlx says about a URL never contains its password.
    let options: PgConnectOptions = url.parse().context("the database URL cannot be read")?;
    let connecting = tokio::time::timeout(PROBE_MAX, PgConnection::connect_with(&options));
    let connection = connecting.await.context("PostgreSQL does not answer")?.context("cannot connect to PostgreSQL")?;
    connection.close().await.context("cannot connect to PostgreSQL")?;
    Ok(options)
}

/// Creates and updates the tables. Several processes may call it at once: one works, the others wait.
///
/// On a connection without the bounds of the order path, which is not used again: a table of a million rows is not rewritten
/// in the time of an order, and who waits for another one's migration must not give up for it.
pub async fn migrate(pool: &PgPool) -> anyhow::Result<()> {
    const BOUNDLESS: &str =
        "SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0;
                             SET enable_seqscan = on; SET enable_hashjoin = on";
    let mut connection = pool.acquire().await.context("no database connection to migrate with")?.detach();
    connection.execute(BOUNDLESS).await.context("cannot set up the migration")?;
    sqlx::migrate!("./migrations").run(&mut connection).await.context("cannot bring the database schema up to date")?;
    connection.close().await.context("closing the connection of the migration")
}

/// Whether this came of a database that cannot be reached or cannot work at this moment, as opposed to one that objects to what
/// it was asked: the same question may be answered later.
pub fn is_out_of_reach(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref()).any(out_of_reach)
}

fn out_of_reach(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => true,
        sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(refused) => refused.code().is_some_and(|code| is_passing(&code)),
        _ => false,
    }
}

/// By the first two characters of SQLSTATE: the connection, two transactions in each other's way, no room, and the server's being
/// stopped, started or told to end what it does. And a server that only reads, as after a fail-over, and a lock that was not had.
fn is_passing(code: &str) -> bool {
    matches!(code.get(..2), Some("08" | "40" | "53" | "57")) || matches!(code, "25006" | "55P03")
}

/// The only clock: what the database says it is.
pub async fn clock(pool: &PgPool) -> sqlx::Result<OffsetDateTime> {
    sqlx::query_scalar!(r#"SELECT db_clock() AS "now!""#).fetch_one(pool).await
}

/// Opens a transaction. READ COMMITTED is said aloud because correctness needs it: under REPEATABLE READ a claim that
/// waited for the lock would not see the row the other one committed, and both would execute.
///
/// In a task of its own, because a `BEGIN` whose caller went away half way would leave its connection inside a transaction that
/// sqlx does not count. What this task returns to nobody is rolled back as it is dropped. (Looking at each connection before its
/// use does it too, and costs a round trip per transaction.)
pub async fn begin(pool: &PgPool) -> sqlx::Result<Transaction<'static, Postgres>> {
    let pool = pool.clone();
    tokio::spawn(async move { begin_on_a_living(&pool).await }).await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
}

/// On a connection that turns out to be dead nothing has begun, so the next one is tried, until the pool has shown them all.
async fn begin_on_a_living(pool: &PgPool) -> sqlx::Result<Transaction<'static, Postgres>> {
    for _ in 0..pool.options().get_max_connections() {
        match pool.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED").await {
            Err(error) if is_dead(&error) => {}
            begun => return begun,
        }
    }
    pool.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED").await
}

/// The connection is of no use any more: it broke, or the server's last words on it are that it ends.
fn is_dead(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) => true,
        sqlx::Error::Database(refused) => refused.code().is_some_and(|code| code.starts_with("57P")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_is_gone_is_told_from_one_that_objects() {
        let gone = || sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        for error in [gone(), sqlx::Error::PoolTimedOut, sqlx::Error::PoolClosed, sqlx::Error::WorkerCrashed] {
            let told = error.to_string();
            assert!(is_out_of_reach(&anyhow::Error::new(error).context("looking for an order")), "{told}");
        }
        assert!(!is_out_of_reach(&anyhow::anyhow!("an order in an unknown currency")));
        assert!(!is_out_of_reach(&sqlx::Error::RowNotFound.into()));
        // Shutting down, not up yet, timed out, no more connections, deadlock, only reads; no such table, a failed check, no text.
        for code in ["57P01", "57P03", "57014", "53300", "40P01", "25006", "55P03", "08006"] {
            assert!(is_passing(code), "{code}");
        }
        for code in ["42P01", "23514", "22021", "25001", "5", ""] {
            assert!(!is_passing(code), "{code}");
        }
    }
}
