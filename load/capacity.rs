//! `load capacity`: the knee. Question: from which rate on does a queue grow that never ends, and who is at its end first?
//!
//! The rate is doubled until a step fails, then the gap is halved until it is a twentieth; what was found is put to the test
//! for a minute at nine tenths. A step is an open loop: taps come by the clock, whatever the server does.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::{
    bench::one_phase,
    drive::{Loop, Phase},
    machine::Machine,
    orders::Orders,
    report::{AuditFound, BUILD, PhaseReport},
    report_file,
    setting::Setting,
    stand::{RelayFate, Sells, Stand},
    verdict::Verdict,
};

pub(crate) const CAPACITY_HELP: &str = "\
A step passes when no tap was dropped, 99 of 100 orders were bought in time, fewer than 1 in 1,000 answers was no 201, first
attempts took at most 250 ms at p99, and what follows from the orders (relay, ledger, receipts) kept up.

Examples:
  load capacity
  load capacity --expect-rate 4000 --json capacity.json
  load capacity --from 1000 --seconds 5 --confirm-seconds 20

Exit code: 0 found and confirmed, 1 the audit found something, 2 --expect-rate missed, or not confirmed.";

const HELD_SHARE_MIN: f64 = 0.99;
const FAILED_SHARE_MAX: f64 = 0.001;
const P99_MAX_MS: f64 = 250.0;
/// The search ends when the failed step is this much above the one that passed.
const PRECISION: f64 = 1.05;
const CONFIRM_SHARE: f64 = 0.9;
/// Nobody has a machine for more, and a search without an end would be one of the harness' own faults.
const RATE_MAX: u32 = 256_000;

#[derive(Debug, Clone, Args)]
pub(crate) struct CapacityArgs {
    /// The first step's taps per second.
    #[arg(long, default_value_t = 250, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    from: u32,
    /// How long a step is measured, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// How long a step runs before it is measured, in seconds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=600))]
    settle_seconds: u64,
    /// How long nine tenths of the knee are held in the end, in seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    confirm_seconds: u64,
    /// Keep-alive connections, each with one order at a time.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    connections: u16,
    /// Customers who take turns.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    customers: u32,
    /// How the api groups its commits: most requests in a transaction and, after an x, transactions at once.
    #[arg(long, default_value = "256x1", value_name = "LIMIT[xLANES]")]
    batch_limit: Setting,
    /// Exit with 2 unless the knee is at this many orders per second at least.
    #[arg(long, value_name = "N")]
    expect_rate: Option<u32>,
    /// Also write everything that was found to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One rate, tried.
#[derive(Debug, Serialize)]
struct Step {
    rate_per_s: u32,
    passed: bool,
    /// Why not.
    because: Vec<String>,
    #[serde(flatten)]
    phase: PhaseReport,
}

#[derive(Debug, Serialize)]
struct Capacity {
    machine: Machine,
    build: &'static str,
    steps: Vec<Step>,
    /// The highest rate of a step that passed; `null`: none did.
    knee_per_s: Option<u32>,
    /// Nine tenths of it, for longer.
    confirmed: Option<Step>,
    audit: AuditFound,
}

pub(crate) async fn capacity(args: CapacityArgs, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    println!("load {}, {BUILD} build, {}; {}", env!("CARGO_PKG_VERSION"), Machine::read(), args.batch_limit);
    let stand = Stand::stack(Sells::WithKeys, args.batch_limit, RelayFate::Lives, &stop).await?;
    let done = tokio::select! {
        done = search(&stand, &args) => done,
        () = stop.cancelled() => Err(anyhow::anyhow!("stopped before the end")),
    };
    stand.stop().await?;
    let found = done?;
    if let Some(file) = &args.json {
        report_file::write_json(file, &found)?;
    }
    let verdict = verdict(&found, args.expect_rate);
    println!("{}; {verdict}", found.knee());
    Ok(verdict.exit_code())
}

async fn search(stand: &Stand, args: &CapacityArgs) -> anyhow::Result<Capacity> {
    let books = stand.books.as_ref().context("a capacity needs a stack of its own")?;
    let orders = Orders::of_customers(args.customers, &stand.secret, stand.server)?;
    let mut steps: Vec<Step> = Vec::new();
    let (mut knee, mut too_much) = (None, None);
    while let Some(rate) = next(args.from, knee, too_much) {
        let step = step(stand, args, &orders, rate, args.seconds).await?;
        let bound = if step.passed { &mut knee } else { &mut too_much };
        *bound = Some(rate);
        steps.push(step);
    }
    let confirmed = match knee {
        Some(knee) => {
            let rate = (f64::from(knee) * CONFIRM_SHARE) as u32;
            println!("the knee is at {knee}/s; nine tenths of it for {} s:", args.confirm_seconds);
            Some(step(stand, args, &orders, rate.max(1), args.confirm_seconds).await?)
        }
        None => None,
    };
    eprintln!("  auditing");
    let audit = books.audit().await?;
    println!("audit: {audit}");
    Ok(Capacity { machine: Machine::read(), build: BUILD, steps, knee_per_s: knee, confirmed, audit })
}

/// The next rate to try, after the highest that passed and the lowest that did not. `None`: they are near enough.
fn next(from: u32, passed: Option<u32>, failed: Option<u32>) -> Option<u32> {
    match (passed, failed) {
        (None, None) => Some(from),
        (Some(passed), None) => (passed < RATE_MAX).then(|| passed.saturating_mul(2).min(RATE_MAX)),
        // Even the first was too much.
        (None, Some(failed)) => Some(failed / 2).filter(|rate| *rate > 0),
        (Some(passed), Some(failed)) => {
            let between = passed + failed.saturating_sub(passed) / 2;
            (f64::from(failed) > f64::from(passed) * PRECISION && between > passed).then_some(between)
        }
    }
}

async fn step(stand: &Stand, args: &CapacityArgs, orders: &Orders, rate: u32, seconds: u64) -> anyhow::Result<Step> {
    let phase = Phase {
        looped: Loop::Open { rate_per_s: rate },
        connections: usize::from(args.connections),
        warmup: Duration::from_secs(args.settle_seconds),
        lasting: Duration::from_secs(seconds),
        queue_limit: 10_000,
    };
    let report = one_phase(stand, &phase, orders).await?;
    let because = failures(&report, rate);
    let step = Step { rate_per_s: rate, passed: because.is_empty(), because, phase: report };
    println!("{}", line(&step));
    Ok(step)
}

fn failures(report: &PhaseReport, rate: u32) -> Vec<String> {
    let counted = &report.counted;
    let mut because = Vec::new();
    if counted.dropped > 0 {
        because.push(format!("{} dropped", counted.dropped));
    }
    let held = counted.due_on_time as f64 / (counted.due_in_window.max(1) as f64);
    if held < HELD_SHARE_MIN {
        because.push(format!("only {:.1} % bought in time", held * 100.0));
    }
    let failed = counted.errors.values().sum::<u64>() + counted.unanswered;
    if failed as f64 > FAILED_SHARE_MAX * (counted.orders + failed) as f64 {
        because.push(format!("{failed} attempts were not answered 201"));
    }
    if counted.latency_ms.p99 > P99_MAX_MS {
        because.push(format!("p99 {:.0} ms", counted.latency_ms.p99));
    }
    if let Some(behind) = report.pipeline.as_ref().filter(|pipeline| !pipeline.keeps_up(f64::from(rate))) {
        because.push(format!(
            "{} events behind at the end, growing by {:.0}/s",
            behind.at_end.events(),
            behind.growth_per_s
        ));
    }
    because
}

fn line(step: &Step) -> String {
    let (latency, cpu) = (step.phase.counted.latency_ms, &step.phase.cpu);
    let outcome = if step.passed { "passed".to_owned() } else { format!("FAILED: {}", step.because.join("; ")) };
    let each: Vec<_> = cpu.ms_per_order.iter().map(|(name, ms)| format!("{name} {ms:.3}")).collect();
    format!(
        "{:>7}/s  p50 {:>6.1} ms  p99 {:>6.1} ms  CPU {:.3} ms/order ({})  machine {:.0} % busy, {:.0} % for others  {outcome}",
        step.rate_per_s,
        latency.p50,
        latency.p99,
        cpu.ms_per_order_total,
        each.join(", "),
        cpu.machine_busy_percent,
        cpu.others_percent
    )
}

impl Capacity {
    fn knee(&self) -> String {
        self.knee_per_s.map_or("no knee".to_owned(), |knee| format!("knee {knee}/s"))
    }
}

fn verdict(found: &Capacity, expected: Option<u32>) -> Verdict {
    let steps = found.steps.iter().chain(&found.confirmed);
    let mut broken: Vec<_> = steps
        .filter_map(|step| step.phase.books.filter(|books| !books.agrees()))
        .map(|books| books.to_string())
        .collect();
    if !found.audit.anomalies.is_empty() {
        broken.push(format!("audit: {}", found.audit));
    }
    let mut missed = Vec::new();
    match (found.knee_per_s, &found.confirmed) {
        (None, _) => missed.push("not even 1 order per second passed".to_owned()),
        (Some(_), Some(step)) if !step.passed => {
            missed.push(format!("{}/s could not be held for longer: {}", step.rate_per_s, step.because.join("; ")));
        }
        (Some(knee), _) => missed.extend(
            expected.filter(|expected| knee < *expected).map(|expected| format!("knee {knee}/s, expected {expected}")),
        ),
    }
    Verdict::weigh(Vec::new(), broken, missed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(from: u32, capacity: u32) -> (Option<u32>, Vec<u32>) {
        let (mut passed, mut failed, mut tried) = (None, None, Vec::new());
        while let Some(rate) = next(from, passed, failed) {
            assert!(tried.len() < 50, "{tried:?}");
            tried.push(rate);
            if rate <= capacity { passed = Some(rate) } else { failed = Some(rate) }
        }
        (passed, tried)
    }

    #[test]
    fn the_knee_is_found_to_a_twentieth_from_wherever_one_begins() {
        for capacity in [1, 3, 249, 250, 3_999, 4_000, 6_123, 200_000] {
            for from in [1, 250, 10_000] {
                let (knee, tried) = found(from, capacity);
                let knee = knee.unwrap();
                assert!(
                    knee <= capacity && f64::from(capacity) < f64::from(knee + 1) * PRECISION,
                    "{capacity}: {tried:?}"
                );
            }
        }
        assert_eq!(found(250, 4_000).1, [250, 500, 1000, 2000, 4000, 8000, 6000, 5000, 4500, 4250, 4125]);
    }

    #[test]
    fn a_search_ends_where_nothing_passes_and_where_everything_does() {
        assert_eq!(found(250, 0).0, None);
        let (knee, _) = found(250, u32::MAX);
        assert!(knee.unwrap() <= RATE_MAX);
    }
}
