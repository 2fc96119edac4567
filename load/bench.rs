//! The benchmark. Question: what does grouping commits buy, and what does an order cost?
//!
//! Every batch limit gets a stack of its own, an empty database, the same phases and, after each phase, the same check: as
//! many orders in the database and captures at the gateway as phones were told "201".

use std::{num::NonZero, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::{
    drive::{self, Loop, Phase},
    orders::Orders,
    report::{BUILD, BooksCheck, PhaseReport, Report, Side},
    stand::{Books, Stand, Written},
    text,
    verdict::Verdict,
};

pub(crate) const BENCH_HELP: &str = "\
Examples:
  load bench
  load bench --rate 3500 --seconds 30 --expect-rate 3500 --json bench.json
  load bench --against http://127.0.0.1:8080 --secret \"$CHECKOUT_SECRET\"

Exit code: 0 held, 1 --expect-rate missed, 3 no valid figures.";

/// What the phones do, in each phase.
#[derive(Debug, Clone, Args)]
struct LoadArgs {
    /// Orders due per second in the open loop.
    #[arg(long, default_value_t = 3500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// How long each phase is measured, in seconds.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// How long each phase runs before it is measured, in seconds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=600))]
    warmup_seconds: u64,
    /// Keep-alive connections, each with one order at a time.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    connections: u16,
    /// Customers who take turns.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    customers: u32,
    /// Orders that may wait for a free connection in the open loop; one more is dropped, and counted.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    queue_limit: u32,
    /// Only the closed loop.
    #[arg(long)]
    closed: bool,
    /// Also write everything that was found to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// Most requests that share a transaction, one stack for each number. 1 is one transaction pair per order.
    #[arg(long, value_delimiter = ',', default_value = "1,256", value_name = "N,…")]
    batch_limits: Vec<NonZero<usize>>,
    /// Exit with 1 unless the open loop of the last batch limit held this many orders per second and dropped none.
    #[arg(long, value_name = "N", conflicts_with = "closed")]
    expect_rate: Option<u32>,
    /// A server that runs already, instead of stacks of our own; its books are not checked.
    #[arg(long, value_name = "URL", requires = "secret", conflicts_with = "batch_limits")]
    against: Option<String>,
    /// The secret that server checks bearer tokens with.
    #[arg(long, env = "CHECKOUT_SECRET", hide_env_values = true)]
    secret: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct HarnessArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// Exit with 1 when an order costs the harness more than this, in microseconds of CPU time.
    #[arg(long, value_name = "N")]
    expect_cpu_us: Option<f64>,
}

pub(crate) async fn bench(args: BenchArgs, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    if let Some(expected) = args.expect_rate {
        anyhow::ensure!(expected <= args.load.rate, "--expect-rate {expected} is more than --rate {}", args.load.rate);
    }
    let mut sides = Vec::new();
    if let (Some(url), Some(secret)) = (args.against, args.secret) {
        sides.push(side(Stand::of_others(&url, secret)?, &args.load, &stop).await?);
    } else {
        for batch_limit in args.batch_limits {
            eprintln!("  a stack with batch limit {batch_limit}:");
            sides.push(side(Stand::stack(batch_limit.get(), &stop).await?, &args.load, &stop).await?);
        }
    }
    let report = args.load.report(sides);
    let verdict = Verdict::of(&report, args.expect_rate);
    publish(&report, &verdict, args.load.json)
}

pub(crate) async fn harness(args: HarnessArgs, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    let report = args.load.report(vec![side(Stand::null_server().await?, &args.load, &stop).await?]);
    let mut verdict = Verdict::of(&report, None);
    if let (Some(most_us), Verdict::Held) = (args.expect_cpu_us, &verdict) {
        let missed = report.too_expensive(most_us);
        if !missed.is_empty() {
            verdict = Verdict::Missed(missed);
        }
    }
    publish(&report, &verdict, args.load.json)
}

impl LoadArgs {
    fn phases(&self) -> Vec<Phase> {
        let open = Loop::Open { rate_per_s: self.rate };
        let loops = if self.closed { vec![Loop::Closed] } else { vec![Loop::Closed, open] };
        let phase = |looped| Phase {
            looped,
            connections: usize::from(self.connections),
            warmup: Duration::from_secs(self.warmup_seconds),
            lasting: Duration::from_secs(self.seconds),
            queue_limit: self.queue_limit as usize,
        };
        loops.into_iter().map(phase).collect()
    }

    fn report(&self, sides: Vec<Side>) -> Report {
        Report {
            connections: usize::from(self.connections),
            seconds: self.seconds as f64,
            warmup_seconds: self.warmup_seconds as f64,
            processors: std::thread::available_parallelism().map_or(1, NonZero::get),
            build: BUILD,
            sides,
        }
    }
}

/// Puts one stand through all phases, and takes it down whatever came of it.
async fn side(stand: Stand, load: &LoadArgs, stop: &CancellationToken) -> anyhow::Result<Side> {
    println!("{}", stand.name);
    let phases = tokio::select! {
        phases = all_phases(&stand, load) => phases,
        () = stop.cancelled() => Err(anyhow::anyhow!("stopped before the end")),
    };
    let name = stand.name.clone();
    stand.stop().await?;
    Ok(Side { name, phases: phases? })
}

async fn all_phases(stand: &Stand, load: &LoadArgs) -> anyhow::Result<Vec<PhaseReport>> {
    let orders = Orders::of_customers(load.customers, &stand.secret, stand.server)?;
    let mut reports = Vec::new();
    for phase in load.phases() {
        let before = written(stand.books.as_ref()).await?;
        let driven = drive::run(&phase, stand.server, &orders, &stand.watched).await?;
        let after = written(stand.books.as_ref()).await?;
        let books = before.zip(after).map(|(before, after)| BooksCheck {
            answered: driven.counted.orders,
            orders_in_database: after.orders - before.orders,
            captures_at_gateway: after.captures - before.captures,
        });
        let report = PhaseReport::new(&phase, driven, books);
        // A run of many minutes shows what it has.
        print!("{}", text::phase(&report));
        reports.push(report);
    }
    Ok(reports)
}

async fn written(books: Option<&Books>) -> anyhow::Result<Option<Written>> {
    match books {
        Some(books) => books.read().await.map(Some),
        None => Ok(None),
    }
}

fn publish(report: &Report, verdict: &Verdict, json: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    #[derive(Serialize)]
    struct Published<'a> {
        verdict: String,
        #[serde(flatten)]
        report: &'a Report,
    }
    print!("\n{}\n{verdict}\n", text::table(report));
    if BUILD == "debug" {
        println!("This is a debug build, several times slower than `cargo build --release --bins`.");
    }
    if let Some(file) = json {
        let text = serde_json::to_string_pretty(&Published { verdict: verdict.to_string(), report })?;
        std::fs::write(&file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(verdict.exit_code())
}
