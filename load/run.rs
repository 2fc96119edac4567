//! `load run`: one client, one network, one stack. Question: what did its customers get, and what did they pay?

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use checkout::phone::{Mode, Network, Patience, Profile};
use clap::Args;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::{
    arrivals::Arrivals,
    cpu::{Accounts, Spent},
    judge::Judged,
    machine::Machine,
    orders::Orders,
    pipeline,
    pool::Pool,
    report::{AuditFound, BUILD},
    stand::Stand,
    swarm::{self, Plan},
    told::{Counts, Curve},
};

pub(crate) const RUN_HELP: &str = "\
The network between a phone and the api is a pure function of the seed, so the number of orders that a client will make is known
before the run; what the books say afterwards must be the same, purchase by purchase.

Modes: per-attempt (the bug that shipped: a new key with every retry), per-tap, per-intent (right), never-retry, sticky.

Examples:
  load run --rate 500 --seconds 20
  load run --mode per-attempt --rate 500 --seconds 20 --time-scale 10
  load run --profile stress --rate 200 --seconds 20 --time-scale 10

Exit code: 0 every promise held, 1 the audit found something, 3 the figures mean nothing.";

/// Sent later than this, attempts were the generator's queue and not the customers' taps.
const SEND_LAG_MAX_MS: f64 = 10.0;
/// A client time-out of less than so many of the server's usual answers would make duplicates that nobody foresaw.
const TIMEOUT_IN_P99S: f64 = 20.0;

#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    /// Taps due per second.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// How long taps are measured, in seconds.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// How long taps come before they are measured, in seconds. They are audited like all others.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=600))]
    warmup_seconds: u64,
    /// How the client keeps its keys.
    #[arg(long, default_value_t = Mode::PerIntent)]
    mode: Mode,
    /// Everything that chance decides.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// What the network does: none, phones (0.6 % of requests and 0.4 % of answers are lost) or stress.
    #[arg(long, default_value = "phones", value_parser = profile)]
    profile: Profile,
    /// Of a client that never retries: the share of customers who tap again after "failed".
    #[arg(long, default_value_t = 0.0)]
    manual_retap: f64,
    /// Divides the client's own waits (its time-out of 10 s, its pauses, its horizon of 60 s), never the server's work.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    time_scale: u32,
    /// Keep-alive connections, shared by all phones.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    connections: u16,
    /// Customers who take turns.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    customers: u32,
    /// Taps that may be without an outcome at once; one more is dropped, and the run is invalid.
    #[arg(long, default_value_t = 40_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    open_max: u32,
    /// Also write everything that was found to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn profile(name: &str) -> Result<Profile, String> {
    match name {
        "none" => Ok(Profile::NONE),
        "phones" => Ok(Profile::PHONES),
        "stress" => Ok(Profile::STRESS),
        _ => Err("not one of none, phones, stress".to_owned()),
    }
}

impl RunArgs {
    fn plan(&self) -> Plan {
        Plan {
            mode: self.mode,
            network: Network { seed: self.seed, profile: self.profile },
            patience: Patience::PHONE,
            time_scale: self.time_scale,
            manual_retap: self.manual_retap,
            warmup: Duration::from_secs(self.warmup_seconds),
            open_max: self.open_max as usize,
        }
    }

    fn arrivals(&self) -> Arrivals {
        Arrivals::even(self.rate, Duration::from_secs(self.warmup_seconds + self.seconds))
    }

    fn taps(&self) -> u64 {
        u64::from(self.rate) * (self.warmup_seconds + self.seconds)
    }
}

/// One mode's run, as it is published.
#[derive(Debug, Serialize)]
struct Ran {
    mode: String,
    valid: bool,
    invalid_because: Vec<String>,
    seed: u64,
    fate_hash: String,
    machine: Machine,
    build: &'static str,
    time_scale: u32,
    offered_per_s: f64,
    achieved_per_s: f64,
    dropped: u64,
    attempts: u64,
    requests_with_key: u64,
    replays: u64,
    conflicts: u64,
    timed_out: u64,
    send_lag_ms: Curve,
    first_attempt_ms: Curve,
    replay_ms: Curve,
    tap_to_outcome_ms: Curve,
    heard: std::collections::BTreeMap<String, u64>,
    cpu_ms_per_order: std::collections::BTreeMap<String, f64>,
    #[serde(flatten)]
    judged: Judged,
    audit: AuditFound,
}

pub(crate) async fn run(args: RunArgs, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        args.mode != Mode::None,
        "a client without keys needs a server without keys, and this one asks for them"
    );
    let stand = Stand::stack("256x1".parse().map_err(anyhow::Error::msg)?, &stop).await?;
    let done = tokio::select! {
        done = one(&stand, &args) => done,
        () = stop.cancelled() => Err(anyhow::anyhow!("stopped before the end")),
    };
    stand.stop().await?;
    let ran = done?;
    print!("{}", text(&ran));
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&ran)?;
        std::fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(verdict(&ran))
}

async fn one(stand: &Stand, args: &RunArgs) -> anyhow::Result<Ran> {
    let books = stand.books.as_ref().context("a stand without books cannot be judged")?;
    let plan = args.plan();
    let orders = Orders::of_customers(args.customers, &stand.secret, stand.server)?;
    let (counts, spent) = drive(stand, stand.server, args, &plan, orders).await?;
    eprintln!("  waiting for what follows from the orders");
    pipeline::until_delivered(books).await?.context("what follows from the orders was not delivered in time")?;
    eprintln!("  auditing");
    let judged = Judged::of(&plan, args.taps(), &counts, &books.by_intent().await?);
    let audit = books.audit().await?;
    Ok(published(args, &plan, &counts, &spent, judged, audit))
}

async fn drive(
    stand: &Stand,
    server: SocketAddr,
    args: &RunArgs,
    plan: &Plan,
    orders: Orders,
) -> anyhow::Result<(Counts, Spent)> {
    let pool = Pool::open(server, usize::from(args.connections)).await?;
    let before = Accounts::read(&stand.watched)?;
    let counts = swarm::run(plan.clone(), args.arrivals(), orders, pool).await?;
    let spent = Accounts::read(&stand.watched)?.since(&before);
    Ok((counts, spent))
}

fn published(args: &RunArgs, plan: &Plan, counts: &Counts, spent: &Spent, judged: Judged, audit: AuditFound) -> Ran {
    let orders = judged.orders.max(1) as f64;
    let cpu = spent.processes.iter().map(|(name, time)| ((*name).to_owned(), time.as_secs_f64() * 1000.0 / orders));
    let offered = f64::from(args.rate);
    let (first, lag) = (counts.first_attempt_ms(), counts.send_lag_ms());
    let mut invalid = Vec::new();
    if counts.dropped > 0 {
        invalid.push(format!("{} taps were dropped", counts.dropped));
    }
    if lag.p99 > SEND_LAG_MAX_MS {
        invalid.push(format!("send lag p99 {:.1} ms: the generator was late itself", lag.p99));
    }
    let answer_max_ms = plan.patience().answer_max.as_secs_f64() * 1000.0;
    if answer_max_ms < TIMEOUT_IN_P99S * first.p99 {
        invalid
            .push(format!("a client time-out of {answer_max_ms:.0} ms is too near to answers of {:.0} ms", first.p99));
    }
    if counts.timed_out > 0 {
        invalid.push(format!("{} answers took longer than their clients waited", counts.timed_out));
    }
    Ran {
        mode: plan.mode.to_string(),
        valid: invalid.is_empty(),
        invalid_because: invalid,
        seed: args.seed,
        fate_hash: plan.network.fate_hash(args.taps(), plan.patience().attempts_max),
        machine: Machine::read(),
        build: BUILD,
        time_scale: args.time_scale,
        offered_per_s: offered,
        achieved_per_s: judged.intents as f64 / counts.last_tap.as_secs_f64().max(f64::MIN_POSITIVE),
        dropped: counts.dropped,
        attempts: counts.attempts,
        requests_with_key: counts.with_key,
        replays: counts.replays,
        conflicts: counts.conflicts,
        timed_out: counts.timed_out,
        send_lag_ms: lag,
        first_attempt_ms: first,
        replay_ms: counts.replay_ms(),
        tap_to_outcome_ms: counts.outcome_ms(),
        heard: counts.heard.clone(),
        cpu_ms_per_order: cpu.collect(),
        judged,
        audit,
    }
}

/// What the client's own mistakes make of a server that is right: two orders for one intent are these, and nothing else.
fn is_the_clients_own(kind: &str) -> bool {
    matches!(kind, "duplicate_order" | "duplicate_charge")
}

fn verdict(ran: &Ran) -> ExitCode {
    if !ran.valid {
        return ExitCode::from(3);
    }
    if failures(ran).is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// A client that is right may have none of these; of one that is wrong, the duplicates that were foreseen are no surprise.
fn failures(ran: &Ran) -> Vec<String> {
    let right = matches!(ran.mode.as_str(), "per-intent");
    let mut failures = ran.judged.broken_promises();
    if !right {
        failures.retain(|failure| !failure.contains("duplicate"));
    }
    let audit = ran.audit.anomalies.iter().filter(|(kind, _)| right || !is_the_clients_own(kind));
    failures.extend(audit.map(|(kind, count)| format!("audit: {count} {kind}")));
    failures
}

fn text(ran: &Ran) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    let judged = &ran.judged;
    let row = |text: &mut String, name: &str, value: String| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {name:<26} {value}");
    };
    let _ =
        writeln!(text, "{}, seed {}, fate {}, {} build, {}", ran.mode, ran.seed, ran.fate_hash, ran.build, ran.machine);
    if ran.time_scale > 1 {
        row(&mut text, "TIME SCALE", format!("the clients' waits are {} times shorter than in life", ran.time_scale));
    }
    row(
        &mut text,
        "taps",
        format!(
            "{} at {:.0}/s offered, {:.0}/s achieved, {} dropped",
            judged.intents, ran.offered_per_s, ran.achieved_per_s, ran.dropped
        ),
    );
    row(
        &mut text,
        "attempts",
        format!(
            "{}, {} replays, {} told to wait, {} timed out unforeseen",
            ran.attempts, ran.replays, ran.conflicts, ran.timed_out
        ),
    );
    row(&mut text, "orders", format!("{} for {} intents", judged.orders, judged.intents));
    let delta = judged.duplicate_orders as i128
        - judged.duplicate_orders_of_races as i128
        - judged.predicted_duplicate_orders as i128;
    row(
        &mut text,
        "duplicate orders",
        format!(
            "{}, {} foreseen, difference {delta}; {} purchases were races with {}",
            judged.duplicate_orders, judged.predicted_duplicate_orders, judged.raced, judged.duplicate_orders_of_races
        ),
    );
    row(&mut text, "duplicate charges", judged.duplicate_charges.to_string());
    row(
        &mut text,
        "lost / orphans / strangers",
        format!("{} / {} / {}", judged.lost_orders, judged.orphan_charges, judged.strangers),
    );
    row(&mut text, "charged untold / missed", format!("{} / {}", judged.charged_untold, judged.missed_sales));
    for (name, curve) in [
        ("first attempt", ran.first_attempt_ms),
        ("replay", ran.replay_ms),
        ("tap to outcome", ran.tap_to_outcome_ms),
        ("send lag", ran.send_lag_ms),
    ] {
        row(
            &mut text,
            name,
            format!(
                "p50 {:.1} ms, p99 {:.1} ms, p99.9 {:.1} ms, max {:.1} ms of {}",
                curve.p50, curve.p99, curve.p999, curve.max, curve.count
            ),
        );
    }
    let cpu: Vec<_> = ran.cpu_ms_per_order.iter().map(|(name, ms)| format!("{name} {ms:.3}")).collect();
    row(&mut text, "CPU ms per order", cpu.join(", "));
    row(&mut text, "audit", ran.audit.to_string());
    for offending in &judged.offending {
        let _ = writeln!(text, "  intent-{}: {}", offending.intent, offending.why);
        for line in &offending.timeline {
            let _ = writeln!(text, "    {line}");
        }
    }
    let failures = failures(ran);
    let verdict = match (ran.valid, failures.is_empty()) {
        (false, _) => format!("INVALID: {}", ran.invalid_because.join("; ")),
        (true, true) => "every promise held".to_owned(),
        (true, false) => format!("FAIL: {}", failures.join("; ")),
    };
    let _ = writeln!(text, "{verdict}");
    text
}
