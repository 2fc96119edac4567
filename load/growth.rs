//! `load growth`: a table that is full of live keys. Question: does a claim get slower with every key that is remembered, and what
//! does it cost to forget them?
//!
//! At each size the statements of a claim are timed alone, and orders come by the clock. In the end one day is dropped as the
//! worker drops it, and another is deleted row by row, both under the same load.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use checkout::{
    idempotency::{
        claim_store::{self, NewRecord},
        fingerprint::{CURRENT_VERSION, Fingerprint},
        key::{IdempotencyKey, Operation, Scope},
        partitions, store,
    },
    ids::{AttemptId, CustomerId},
};
use clap::Args;
use hdrhistogram::Histogram;
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use serde::Serialize;
use sqlx::{AssertSqlSafe, Executor, PgPool};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    drive::{self, Driven, Loop, Phase},
    figures::{ms, whole},
    fill::{self, Template},
    machine::Machine,
    measure::Quantiles,
    orders::Orders,
    report::BUILD,
    report_file,
    stand::{RelayFate, Sells, Stand},
    trial,
};

pub(crate) const GROWTH_HELP: &str = "\
A key takes about 3.5 kB: half of each page stays free for its answer. 20 million take about 70 GB of the disk that holds the
temporary folder (TMPDIR chooses it), and most of an hour.

Examples:
  load growth --keys 0,1000000
  load growth --json growth.json

Exit code: 0 measured, 3 not.";

/// Claims and looks that are timed at each size, after as many that are not.
const TIMED: u32 = 2000;
const UNTIMED: u32 = 200;
const LATENCY_MAX_US: u64 = 60_000_000;
/// A claim's lease; nobody will see it.
const LEASE: Duration = Duration::from_secs(15);
/// The worker keeps a day until its last answer has expired. Here the oldest one is old enough now.
const KEPT: Duration = Duration::from_secs(48 * 3600);

#[derive(Debug, Clone, Args)]
pub(crate) struct GrowthArgs {
    /// How many live keys there are, at each size; from small to large.
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_value = "0,5000000,20000000")]
    keys: Vec<u64>,
    /// Orders due per second while it is measured.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// How long orders come at each size, and around a drop and a DELETE, in seconds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Also write everything that was found to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One size of the table.
#[derive(Debug, Serialize)]
struct Size {
    keys: u64,
    table_bytes: i64,
    index_bytes: i64,
    /// Lock, look, insert: the statements of one claim of a new key, in microseconds, without its commit.
    claim_us: Quantiles,
    /// A look at a key that is there, in microseconds.
    look_us: Quantiles,
    /// Orders by the clock, in milliseconds.
    order_ms: Quantiles,
    cpu_ms_per_order: f64,
}

/// One way to forget a day.
#[derive(Debug, Serialize)]
struct Forgotten {
    how: &'static str,
    keys: i64,
    seconds: f64,
    /// Written to the log of changes, the orders' own included.
    wal_bytes: f64,
    /// Given back to the disk.
    freed_bytes: i64,
    order_ms: Quantiles,
}

#[derive(Debug, Serialize)]
struct Growth {
    machine: Machine,
    build: &'static str,
    rate_per_s: u32,
    sizes: Vec<Size>,
    forgotten: Vec<Forgotten>,
}

pub(crate) async fn growth(args: GrowthArgs, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(args.keys.is_sorted(), "--keys goes from small to large: nothing is taken away between two sizes");
    let machine = Machine::read();
    println!("load {}, {BUILD} build, {machine}; {} orders/s", env!("CARGO_PKG_VERSION"), args.rate);
    let stand = Stand::stack(Sells::WithKeys, trial::setting()?, RelayFate::Lives, &stop).await?;
    let done = tokio::select! {
        done = measured(&stand, &args, machine) => done,
        () = stop.cancelled() => Err(anyhow::anyhow!("stopped before the end")),
    };
    stand.stop().await?;
    let found = done?;
    if let Some(file) = &args.json {
        report_file::write_json(file, &found)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn measured(stand: &Stand, args: &GrowthArgs, machine: Machine) -> anyhow::Result<Growth> {
    let database = stand.books.as_ref().context("growth needs a stack of its own")?.database();
    let orders = Orders::of_customers(1000, &stand.secret, stand.server)?;
    // A machine that has just started is slower, and the first order is what all rows are copied from.
    let phase = |seconds| Phase {
        looped: Loop::Open { rate_per_s: args.rate },
        connections: 256,
        warmup: Duration::from_secs(2),
        lasting: Duration::from_secs(seconds),
        queue_limit: 10_000,
    };
    drive::run(&phase(3), stand.server, &orders, stand.watched()).await?;
    let template = Template::read(database).await?;
    let measured = phase(args.seconds);
    let load = || drive::run(&measured, stand.server, &orders, stand.watched());

    let mut found = Growth { machine, build: BUILD, rate_per_s: args.rate, sizes: Vec::new(), forgotten: Vec::new() };
    println!("{SIZES_HEAD}");
    let mut filled = 0;
    for &keys in &args.keys {
        template.fill(database, filled, keys).await?;
        filled = keys;
        settle(database).await?;
        let size = size(database, keys, load).await?;
        println!("{size}");
        found.sizes.push(size);
    }
    if filled > 0 {
        println!("{FORGOTTEN_HEAD}");
        for how in [How::Drop, How::Delete] {
            settle(database).await?;
            let forgotten = how.forget(database, load).await?;
            println!("{forgotten}");
            found.forgotten.push(forgotten);
        }
    }
    Ok(found)
}

/// What PostgreSQL would do about so many new rows later, in the middle of what is measured.
async fn settle(pool: &PgPool) -> anyhow::Result<()> {
    eprintln!("  vacuum, and a checkpoint");
    let mut connection = pool.acquire().await?;
    connection.execute("VACUUM (ANALYZE) idempotency_records").await.context("VACUUM")?;
    connection.execute("CHECKPOINT").await.context("CHECKPOINT")?;
    Ok(())
}

async fn size<L: Future<Output = anyhow::Result<Driven>>>(
    pool: &PgPool,
    keys: u64,
    load: impl Fn() -> L,
) -> anyhow::Result<Size> {
    let (table_bytes, index_bytes) = bytes(pool).await?;
    eprintln!("  timing claims");
    let claim_us = claims_us(pool).await?;
    let look_us = looks_us(pool, keys).await?;
    eprintln!("  orders by the clock");
    let driven = load().await?;
    let cpu: Duration = driven.spent.processes.iter().map(|(_, time)| *time).sum();
    Ok(Size {
        keys,
        table_bytes,
        index_bytes,
        claim_us,
        look_us,
        order_ms: driven.counted.latency_ms,
        cpu_ms_per_order: cpu.as_secs_f64() * 1000.0 / driven.counted.orders_in_window.max(1) as f64,
    })
}

/// Every day of the records.
async fn bytes(pool: &PgPool) -> anyhow::Result<(i64, i64)> {
    let bytes = sqlx::query!(
        r#"SELECT COALESCE(sum(pg_table_size(inhrelid)), 0)::bigint AS "table!",
                  COALESCE(sum(pg_indexes_size(inhrelid)), 0)::bigint AS "index!"
           FROM pg_inherits WHERE inhparent = 'idempotency_records'::regclass"#
    )
    .fetch_one(pool)
    .await
    .context("cannot ask for sizes")?;
    Ok((bytes.table, bytes.index))
}

/// Claims of new keys, one at a time, each taken back: nobody is to go on with it.
async fn claims_us(pool: &PgPool) -> anyhow::Result<Quantiles> {
    timed(async |_| {
        let scope = Scope {
            customer: CustomerId(1),
            operation: Operation::CreateOrder,
            key: IdempotencyKey::parse(Uuid::new_v4().to_string().as_bytes())?,
        };
        let new = NewRecord {
            scope: &scope,
            digest: scope.digest(),
            fingerprint: Fingerprint { version: CURRENT_VERSION, digest: [0; 32] },
            attempt: AttemptId::mint(),
            resource_id: Uuid::new_v4(),
            frozen: "{}",
        };
        let mut tx = pool.begin().await?;
        let began = Instant::now();
        store::lock(&mut tx, &[new.digest]).await?;
        let newest = store::newest(&mut tx, &[new.digest]).await?;
        let claimed = claim_store::insert(&mut tx, &[new], LEASE).await?;
        let took = began.elapsed();
        anyhow::ensure!(newest.records.is_empty() && claimed.len() == 1, "a new key was not new");
        tx.rollback().await?;
        Ok(took)
    })
    .await
}

/// Keys that are there, picked at random.
async fn looks_us(pool: &PgPool, keys: u64) -> anyhow::Result<Quantiles> {
    if keys == 0 {
        return Ok(Quantiles::default());
    }
    timed(async |random| {
        let wanted = [fill::digest(random.random_range(0..keys))];
        let mut connection = pool.acquire().await?;
        let began = Instant::now();
        let newest = store::newest(&mut connection, &wanted).await?;
        let took = began.elapsed();
        anyhow::ensure!(newest.records.len() == 1, "a key that was written is not there");
        Ok(took)
    })
    .await
}

async fn timed(mut one: impl AsyncFnMut(&mut SmallRng) -> anyhow::Result<Duration>) -> anyhow::Result<Quantiles> {
    let mut random = SmallRng::seed_from_u64(42);
    let mut histogram = Histogram::<u64>::new_with_max(LATENCY_MAX_US, 3).context("histogram bounds")?;
    for turn in 0..UNTIMED + TIMED {
        let took = one(&mut random).await?;
        if turn >= UNTIMED {
            histogram.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        }
    }
    Ok(Quantiles::of_whole(&histogram))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// The oldest day, as the worker does it.
    Drop,
    /// The day after, row by row, and the space then given back as far as VACUUM can.
    Delete,
}

impl How {
    async fn forget<L: Future<Output = anyhow::Result<Driven>>>(
        self,
        pool: &PgPool,
        load: impl Fn() -> L,
    ) -> anyhow::Result<Forgotten> {
        let today = fill::today(&mut *pool.acquire().await?).await?;
        let ago = match self {
            Self::Drop => fill::DAYS as i64 - 1,
            Self::Delete => fill::DAYS as i64 - 2,
        };
        let day = today - time::Duration::days(ago);
        let keys = sqlx::query_scalar!(r#"SELECT count(*) AS "keys!" FROM idempotency_records WHERE day = $1"#, day);
        let keys = keys.fetch_one(pool).await?;
        let before = bytes(pool).await?;
        let work = async {
            let (wal, began) = (wal(pool).await?, Instant::now());
            match self {
                Self::Drop => {
                    let maintained = partitions::maintain(pool, KEPT).await?;
                    anyhow::ensure!(maintained.dropped == [day], "dropped {:?}, not {day}", maintained.dropped);
                }
                Self::Delete => {
                    sqlx::query!("DELETE FROM idempotency_records WHERE day = $1", day).execute(pool).await?;
                    let partition = format!("idempotency_records_{}", day.to_string().replace('-', "_"));
                    let vacuum = sqlx::raw_sql(AssertSqlSafe(format!("VACUUM {partition}")));
                    pool.acquire().await?.execute(vacuum).await?;
                }
            }
            anyhow::Ok((began.elapsed().as_secs_f64(), self::wal(pool).await? - wal))
        };
        let (work, driven) = tokio::join!(work, load());
        let ((seconds, wal_bytes), driven) = (work?, driven?);
        let after = bytes(pool).await?;
        Ok(Forgotten {
            how: match self {
                Self::Drop => "drop of a day",
                Self::Delete => "DELETE, VACUUM",
            },
            keys,
            seconds,
            wal_bytes,
            freed_bytes: before.0 + before.1 - after.0 - after.1,
            order_ms: driven.counted.latency_ms,
        })
    }
}

async fn wal(pool: &PgPool) -> anyhow::Result<f64> {
    let bytes = sqlx::query_scalar!(r#"SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8 AS "bytes!""#);
    bytes.fetch_one(pool).await.context("cannot ask for the log's length")
}

const SIZES_HEAD: &str = "
      keys      table      index   claim p50      p99   look p50      p99   order p50      p99   CPU/order";
const FORGOTTEN_HEAD: &str = "
                     keys     took         log      freed   order p50      p99      max";

fn gigabytes(bytes: f64) -> String {
    format!("{:.2} GB", bytes / 1e9)
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let us = |value: f64| format!("{} µs", whole(value));
        write!(
            f,
            "{:>10} {:>10} {:>10} {:>11} {:>8} {:>10} {:>8} {:>8} ms {:>5} ms {:>8.3} ms",
            whole(self.keys as f64),
            gigabytes(self.table_bytes as f64),
            gigabytes(self.index_bytes as f64),
            us(self.claim_us.p50),
            us(self.claim_us.p99),
            us(self.look_us.p50),
            us(self.look_us.p99),
            ms(self.order_ms.p50),
            ms(self.order_ms.p99),
            self.cpu_ms_per_order,
        )
    }
}

impl std::fmt::Display for Forgotten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:<14} {:>10} {:>6.2} s {:>11} {:>10} {:>8} ms {:>5} ms {:>5} ms",
            self.how,
            whole(self.keys as f64),
            self.seconds,
            gigabytes(self.wal_bytes),
            gigabytes(self.freed_bytes as f64),
            ms(self.order_ms.p50),
            ms(self.order_ms.p99),
            ms(self.order_ms.max),
        )
    }
}
