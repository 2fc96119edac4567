//! The benchmark. Question: what does grouping commits buy, and what does an order cost?
//!
//! Every setting gets a stack of its own, an empty database, the same phases and, after each phase, the same check: as many
//! orders in the database and captures at the gateway as phones were told "201". At the end the whole stack is audited.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::{
    books::{Books, Written},
    drive::{self, Loop, Phase},
    machine::Machine,
    orders::Orders,
    pipeline,
    report::{BUILD, BooksCheck, PhaseReport, Report, Side},
    report_file,
    setting::Setting,
    stand::{RelayFate, Sells, Stand},
    text,
    verdict::Verdict,
};

pub(crate) const BENCH_HELP: &str = "\
Each setting is a batch limit and a number of lanes, the transactions that may run at once: LIMITxLANES. Without lanes, limit 1
gets 8 and any other 1. A transaction pair per order in one single lane would be a serial program, and beating it no feat: the
plain path is given as many lanes as two processors can use, and each side a pool in which no lane waits for a connection.

A rate is held when every order due in the window was answered 201, at the latest 250 ms after the window, and none was dropped.

Examples:
  load bench
  load bench --rate 3500 --seconds 30 --expect-rate 3500 --json bench.json
  load bench --batch-limits 1x1,1x4,1x16,256x1 --closed
  load bench --against http://127.0.0.1:8080 --secret \"$CHECKOUT_SECRET\"

Exit code: 0 held, 1 the audit found something, 2 --expect-rate missed, 3 no valid figures.";

/// What the phones do, in each phase.
#[derive(Debug, Clone, Args)]
pub(crate) struct LoadArgs {
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
    /// Run the open loop even where the closed loop found less than its rate: it can only show a growing queue.
    #[arg(long, conflicts_with = "closed")]
    force_open: bool,
    /// Also write everything that was found to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// Most requests that share a transaction and, after an x, its lanes; one stack for each. Limit 1 is one transaction pair
    /// per order.
    #[arg(long, value_delimiter = ',', default_value = "1x8,256x1", value_name = "LIMIT[xLANES],…")]
    batch_limits: Vec<Setting>,
    /// Exit with 2 unless the open loop of the last batch limit held this many orders per second and dropped none.
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
    /// Exit with 2 when an order costs the harness more than this, in microseconds of CPU time.
    #[arg(long, value_name = "N")]
    expect_cpu_us: Option<f64>,
}

pub(crate) async fn bench(args: BenchArgs, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    if let Some(expected) = args.expect_rate {
        anyhow::ensure!(expected <= args.load.rate, "--expect-rate {expected} is more than --rate {}", args.load.rate);
    }
    args.load.introduce();
    let mut sides = Vec::new();
    if let (Some(url), Some(secret)) = (args.against, args.secret) {
        sides.push(side(Stand::of_others(&url, secret)?, &args.load, &stop).await?);
    } else {
        for setting in args.batch_limits {
            eprintln!("  a stack with {setting}:");
            sides.push(
                side(Stand::stack(Sells::WithKeys, setting, RelayFate::Lives, &stop).await?, &args.load, &stop).await?,
            );
        }
    }
    let report = args.load.report(sides);
    let verdict = Verdict::of(&report, args.expect_rate);
    publish(&report, &verdict, args.load.json)
}

pub(crate) async fn harness(args: HarnessArgs, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    args.load.introduce();
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

    /// What every figure below depends on.
    pub(crate) fn introduce(&self) {
        let (version, machine) = (env!("CARGO_PKG_VERSION"), Machine::read());
        println!("load {version}, {BUILD} build, {machine}; {} connections of the phones", self.connections);
    }

    pub(crate) fn report(&self, sides: Vec<Side>) -> Report {
        Report {
            connections: usize::from(self.connections),
            seconds: self.seconds as f64,
            warmup_seconds: self.warmup_seconds as f64,
            machine: Machine::read(),
            build: BUILD,
            sides,
        }
    }
}

/// Puts one stand through all phases and the audit, and takes it down whatever came of it.
pub(crate) async fn side(stand: Stand, load: &LoadArgs, stop: &CancellationToken) -> anyhow::Result<Side> {
    println!("{}", stand.name);
    let mut side = Side {
        name: stand.name.clone(),
        server: stand.described.clone(),
        phases: Vec::new(),
        skipped: None,
        audit: None,
    };
    if let Some(server) = &side.server {
        println!("{}", text::server(server));
    }
    let done = tokio::select! {
        done = measured(&stand, load, &mut side) => done,
        () = stop.cancelled() => Err(anyhow::anyhow!("stopped before the end")),
    };
    stand.stop().await?;
    done.map(|()| side)
}

async fn measured(stand: &Stand, load: &LoadArgs, side: &mut Side) -> anyhow::Result<()> {
    let orders = Orders::of_customers(load.customers, &stand.secret, stand.server)?;
    for phase in load.phases() {
        if let Some(why) = too_much(&phase, &side.phases).filter(|_| !load.force_open) {
            println!("  {}\n    {why} (--force-open runs it)", phase.looped);
            side.skipped = Some(why);
            continue;
        }
        let report = one_phase(stand, &phase, &orders).await?;
        // A run of many minutes shows what it has.
        print!("{}", text::phase(&report));
        side.phases.push(report);
    }
    if let Some(books) = &stand.books {
        eprintln!("  auditing");
        let found = books.audit().await?;
        println!("  audit: {found}");
        side.audit = Some(found);
    }
    Ok(())
}

/// Drives one phase and follows what comes of it, until everything is delivered and can be counted.
pub(crate) async fn one_phase(stand: &Stand, phase: &Phase, orders: &Orders) -> anyhow::Result<PhaseReport> {
    let before = written(stand.books.as_ref()).await?;
    let driving = drive::run(phase, stand.server, orders, stand.watched());
    let (driven, pipeline) = match &stand.books {
        Some(books) => {
            pipeline::follow(books, phase.warmup, driving).await.map(|(driven, found)| (driven, Some(found)))?
        }
        None => (driving.await?, None),
    };
    let after = written(stand.books.as_ref()).await?;
    let books = before.zip(after).map(|(before, after)| BooksCheck {
        answered: driven.counted.orders,
        orders_in_database: after.orders - before.orders,
        captures_at_gateway: after.captures - before.captures,
        booked_in_ledger: after.booked - before.booked,
        mails: after.mails - before.mails,
    });
    Ok(PhaseReport::new(phase, driven, books, pipeline))
}

/// An open loop beyond the capacity just found would measure its own queue.
fn too_much(phase: &Phase, before: &[PhaseReport]) -> Option<String> {
    let (Loop::Open { rate_per_s }, Some(closed)) = (phase.looped, before.last()) else { return None };
    let capacity = closed.counted.orders_per_s;
    (capacity < f64::from(rate_per_s)).then(|| format!("skipped: capacity {capacity:.0}/s is below the rate"))
}

async fn written(books: Option<&Books>) -> anyhow::Result<Option<Written>> {
    match books {
        Some(books) => books.read().await.map(Some),
        None => Ok(None),
    }
}

pub(crate) fn publish(report: &Report, verdict: &Verdict, json: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    #[derive(Serialize)]
    struct Published<'a> {
        verdict: String,
        cautions: &'a [String],
        #[serde(flatten)]
        report: &'a Report,
    }
    let cautions = report.cautions();
    print!("\n{}\n{}\n", text::table(report), verdict.with_cautions(&cautions));
    if let Some(file) = json {
        let published = Published { verdict: verdict.to_string(), cautions: &cautions, report };
        report_file::write_json(&file, &published)?;
    }
    Ok(verdict.exit_code())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::phase_report;

    #[test]
    fn an_open_loop_is_skipped_when_the_capacity_is_below_its_rate_and_not_otherwise() {
        let phase =
            |looped| Phase { looped, connections: 1, warmup: Duration::ZERO, lasting: Duration::ZERO, queue_limit: 1 };
        let open = phase(Loop::Open { rate_per_s: 3500 });
        let why = too_much(&open, &[phase_report(900.4, Loop::Closed)]);
        assert_eq!(why.as_deref(), Some("skipped: capacity 900/s is below the rate"));
        assert_eq!(too_much(&open, &[phase_report(3500.0, Loop::Closed)]), None);
        assert_eq!(too_much(&open, &[]), None, "nothing is known");
        assert_eq!(too_much(&phase(Loop::Closed), &[phase_report(900.0, Loop::Closed)]), None);
    }
}
