//! `load storm`: the server stands still for ten seconds. Question: what do its clients' retries add to the trouble, and what
//! do they cost when each is a replay and not a purchase?
//!
//! One process of the stack is paused (SIGSTOP: its connections stay, and nothing comes back) under a steady rate of taps, and
//! goes on. Every policy meets that on a stack of its own. Whatever the policy does to the server, one key is one order.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use checkout::{
    phone::{Mode, Network, Pacing, Patience, Profile},
    stop::{Signal, send},
};
use clap::{Args, ValueEnum};
use serde::Serialize;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    arrivals::Arrivals,
    books::Books,
    cpu::{Accounts, Spent},
    figures::{ms, whole},
    found::Curve,
    judge::Judged,
    machine::Machine,
    orders::Orders,
    pipeline,
    pool::Pool,
    report::{AuditFound, BUILD},
    report_file,
    stand::{RelayFate, Sells, Stand},
    swarm::{self, Plan},
    told::Counts,
    trial,
    verdict::Verdict,
};

pub(crate) const STORM_HELP: &str = "\
Policies: at-once (no pause), fixed (1 s), exponential (doubles, all together), jitter (any part of what doubles), obedient (jitter,
and Retry-After is heeded: the phone of this repository), budget (obedient, and all clients together retry for a tenth of the
taps). Each may try 6 times within a minute and waits 10 s for an answer.

Examples:
  load storm
  load storm --who api --rate 200
  load storm --policies at-once,obedient --stall-seconds 4 --seconds 15 --rate 50 --json storm.json

Exit code: 0 one key was one order under every policy, 1 the audit found something, 3 the figures mean nothing.";

/// The first pause of every policy.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// Of the taps, how many may be followed by a retry when all clients share a budget.
const BUDGET: f64 = 0.1;
/// It is over when no more is sent than this many times what is tapped.
const CALM: f64 = 1.1;
/// What nobody was told is found out by recovery: after a lease of 15 s, and pauses between its looks.
const RECOVERED_MAX: Duration = Duration::from_secs(120);
const RECOVERED_LOOK: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, Args)]
pub(crate) struct StormArgs {
    /// Taps due per second.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// How long taps come, in seconds, the stall among them.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// When the stall begins, in seconds after the first tap.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=3600))]
    stall_at: u64,
    /// How long it lasts, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    stall_seconds: u64,
    /// Who stands still.
    #[arg(long, value_enum, default_value_t = Who::Gateway)]
    who: Who,
    /// The clients, in this order.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "POLICY,…",
        default_value = "at-once,fixed,exponential,jitter,obedient,budget"
    )]
    policies: Vec<Policy>,
    /// Keep-alive connections: a phone that waits for an answer holds one. The api keeps at most 4,096, and closes behind each
    /// answer when a quarter of them is left.
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u16).range(1..=3000))]
    connections: u16,
    /// Everything that chance decides.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Also write everything that was found to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Who {
    Gateway,
    Api,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Policy {
    AtOnce,
    Fixed,
    Exponential,
    Jitter,
    Obedient,
    Budget,
}

impl Policy {
    fn patience(self) -> Patience {
        let (pacing, heeds_retry_after) = match self {
            Self::AtOnce => (Pacing::AtOnce, false),
            Self::Fixed => (Pacing::Fixed, false),
            Self::Exponential => (Pacing::Exponential, false),
            Self::Jitter => (Pacing::FullJitter, false),
            Self::Obedient | Self::Budget => (Pacing::FullJitter, true),
        };
        Patience { pacing, heeds_retry_after, pause_first: PAUSE_FIRST, ..Patience::PHONE }
    }

    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

impl Who {
    /// As the stack calls its process.
    fn process(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Api => "api",
        }
    }
}

/// One policy's storm.
#[derive(Debug, Serialize)]
struct Storm {
    policy: Policy,
    invalid_because: Vec<String>,
    broken_promises: Vec<String>,
    taps: u64,
    attempts: u64,
    attempts_per_tap: f64,
    most_attempts_per_s: u64,
    attempts_by_second: Vec<u64>,
    /// From the end of the stall until no more was sent than was tapped; 0: it never was.
    calm_after_s: u64,
    /// Bought, and the customer knows.
    confirmed: u64,
    /// Bought, and the customer was told nothing before the client gave up.
    charged_untold: u64,
    /// Not bought.
    missed_sales: u64,
    duplicate_orders: u64,
    duplicate_charges: u64,
    lost_orders: u64,
    orphan_charges: u64,
    stuck_keys: u64,
    replays: u64,
    conflicts: u64,
    /// What was heard, by its words.
    heard: std::collections::BTreeMap<String, u64>,
    send_lag_ms: Curve,
    tap_to_outcome_ms: Curve,
    api_cpu_ms_per_tap: f64,
    audit: AuditFound,
}

#[derive(Debug, Serialize)]
struct Storms {
    machine: Machine,
    build: &'static str,
    rate_per_s: u32,
    who: Who,
    stall_at_s: u64,
    stall_s: u64,
    storms: Vec<Storm>,
}

pub(crate) async fn storm(args: StormArgs, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(args.stall_at + args.stall_seconds <= args.seconds, "the stall must end before the taps do");
    let machine = Machine::read();
    println!("load {}, {BUILD} build, {machine}", env!("CARGO_PKG_VERSION"));
    let (rate, who, from, lasting) = (args.rate, args.who.process(), args.stall_at, args.stall_seconds);
    println!("{rate} taps/s for {} s; the {who} stands still for {lasting} s from {from} s on\n{HEAD}", args.seconds);
    let mut storms = Vec::new();
    for &policy in &args.policies {
        eprintln!("  a stack for {}:", policy.name());
        let storm = weather(&args, policy, &stop).await?;
        // A run of many minutes shows what it has.
        println!("{storm}");
        storms.push(storm);
    }
    let found =
        Storms { machine, build: BUILD, rate_per_s: rate, who: args.who, stall_at_s: from, stall_s: lasting, storms };
    if let Some(file) = &args.json {
        report_file::write_json(file, &found)?;
    }
    let each = |of: fn(&Storm) -> &Vec<String>| {
        let said = |storm| of(storm).iter().map(move |reason| format!("{}: {reason}", Storm::name(storm)));
        found.storms.iter().flat_map(said).collect()
    };
    let verdict =
        Verdict::weigh(each(|storm| &storm.invalid_because), each(|storm| &storm.broken_promises), Vec::new());
    println!("\n{verdict}");
    Ok(verdict.exit_code())
}

async fn weather(args: &StormArgs, policy: Policy, stop: &CancellationToken) -> anyhow::Result<Storm> {
    let stand = Stand::stack(Sells::WithKeys, trial::setting()?, RelayFate::Lives, stop).await?;
    let done = tokio::select! {
        done = measured(&stand, args, policy) => done,
        () = stop.cancelled() => Err(anyhow::anyhow!("stopped before the end")),
    };
    stand.stop().await?;
    done
}

async fn measured(stand: &Stand, args: &StormArgs, policy: Policy) -> anyhow::Result<Storm> {
    let books = stand.books.as_ref().context("a storm needs a stack of its own")?;
    let plan = Plan {
        mode: Mode::PerIntent,
        network: Network { seed: args.seed, profile: Profile::NONE },
        patience: policy.patience(),
        time_scale: 1,
        manual_retap: 0.0,
        retry_budget: (policy == Policy::Budget).then_some(BUDGET),
        warmup: Duration::ZERO,
        open_max: usize::MAX,
    };
    let arrivals = || Arrivals::even(args.rate, Duration::from_secs(args.seconds));
    let orders = Orders::of_customers(1000, &stand.secret, stand.server)?;
    let run = orders.run();
    let pool = Pool::open(stand.server, usize::from(args.connections)).await?;
    let began = books.clock().await?;
    let before = Accounts::read(&stand.watched())?;
    let (counts, stalled) =
        tokio::join!(swarm::run(plan.clone(), arrivals(), orders, pool), stall(stand, args.who, args));
    let counts = counts?;
    stalled?;
    let spent = Accounts::read(&stand.watched())?.since(&before);
    eprintln!("  waiting for what nobody was told, and what follows from the orders");
    until_recovered(books).await?;
    pipeline::until_delivered(books).await?.context("what follows from the orders was not delivered in time")?;
    let joined = books.by_intent(run, began, stand.is_ours()).await?;
    let judged = Judged::of(&plan, arrivals().count(), &counts, &joined);
    let (stuck_keys, audit) = (books.open_keys().await?, books.audit().await?);
    Ok(found(args, policy, &counts, &spent, &judged, stuck_keys, audit))
}

/// A process that is paused, until this is dropped: nothing of ours is left standing still.
struct Paused(u32);

impl Drop for Paused {
    fn drop(&mut self) {
        send(self.0, Signal::Continue);
    }
}

async fn stall(stand: &Stand, who: Who, args: &StormArgs) -> anyhow::Result<()> {
    let pid = stand.pid_of(who.process()).context("who is to stand still does not run")?;
    sleep(Duration::from_secs(args.stall_at)).await;
    anyhow::ensure!(send(pid, Signal::Stop), "the {} cannot be paused", who.process());
    let _paused = Paused(pid);
    sleep(Duration::from_secs(args.stall_seconds)).await;
    Ok(())
}

async fn until_recovered(books: &Books) -> anyhow::Result<()> {
    let from = Instant::now();
    while books.open_keys().await? > 0 && from.elapsed() < RECOVERED_MAX {
        sleep(RECOVERED_LOOK).await;
    }
    Ok(())
}

fn found(
    args: &StormArgs,
    policy: Policy,
    counts: &Counts,
    spent: &Spent,
    judged: &Judged,
    stuck_keys: u64,
    audit: AuditFound,
) -> Storm {
    let taps = judged.intents.max(1) as f64;
    let api = spent.processes.iter().find(|(name, _)| *name == "api").map_or(0.0, |(_, time)| time.as_secs_f64());
    let lag = counts.send_lag_ms();
    let storm = Storm {
        policy,
        invalid_because: trial::late(counts.dropped, lag.p99),
        broken_promises: Vec::new(),
        taps: judged.intents,
        attempts: counts.attempts,
        attempts_per_tap: counts.attempts as f64 / taps,
        most_attempts_per_s: counts.by_second.iter().copied().max().unwrap_or_default(),
        calm_after_s: calm_after_s(&counts.by_second, args.rate, args.stall_at + args.stall_seconds),
        attempts_by_second: counts.by_second.clone(),
        confirmed: judged.intents - judged.charged_untold - judged.missed_sales,
        charged_untold: judged.charged_untold,
        missed_sales: judged.missed_sales,
        duplicate_orders: judged.duplicate_orders,
        duplicate_charges: judged.duplicate_charges,
        lost_orders: judged.lost_orders,
        orphan_charges: judged.orphan_charges,
        stuck_keys,
        replays: counts.replays,
        conflicts: counts.conflicts,
        heard: counts.heard.clone(),
        send_lag_ms: lag,
        tap_to_outcome_ms: counts.outcome_ms(),
        api_cpu_ms_per_tap: api * 1000.0 / taps,
        audit,
    };
    Storm { broken_promises: broken_promises(&storm, judged), ..storm }
}

/// Seconds from the end of the stall to the end of the last second in which more was sent than is tapped.
fn calm_after_s(by_second: &[u64], rate_per_s: u32, stall_ends_s: u64) -> u64 {
    let loud = |count: &u64| *count as f64 > CALM * f64::from(rate_per_s);
    let last = by_second.iter().rposition(loud).map_or(0, |second| second as u64 + 1);
    last.saturating_sub(stall_ends_s)
}

/// Who gave up may have bought or not: that is the policy's price. Twice, or for nothing, is nobody's.
fn broken_promises(storm: &Storm, judged: &Judged) -> Vec<String> {
    let counted = [
        (storm.duplicate_orders, "duplicate orders"),
        (storm.duplicate_charges, "duplicate charges"),
        (storm.lost_orders, "lost orders"),
        (storm.orphan_charges, "orphan charges"),
        (judged.strangers, "orders or captures of no intent"),
        (storm.stuck_keys, "keys without an end"),
    ];
    let counted = counted.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let audit = storm.audit.anomalies.iter().map(|(kind, count)| format!("audit: {count} {kind}"));
    counted.chain(audit).collect()
}

const HEAD: &str = "
policy        attempts   per tap   most/s   calm after   told paid   untold   not bought   twice   p99 to the outcome   api CPU/tap";
/// Eight heights, for what was sent in each second.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

impl Storm {
    fn name(storm: &Self) -> String {
        storm.policy.name()
    }

    fn heights(&self) -> String {
        let most = self.most_attempts_per_s.max(1);
        let height = |count: &u64| HEIGHTS[((count * 7).div_ceil(most) as usize).min(7)];
        self.attempts_by_second.iter().map(height).collect()
    }
}

impl std::fmt::Display for Storm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{:<12} {:>9} {:>9.2} {:>8} {:>10} s {:>11} {:>8} {:>12} {:>7} {:>17} ms {:>10.3} ms",
            self.policy.name(),
            whole(self.attempts as f64),
            self.attempts_per_tap,
            whole(self.most_attempts_per_s as f64),
            self.calm_after_s,
            whole(self.confirmed as f64),
            whole(self.charged_untold as f64),
            whole(self.missed_sales as f64),
            self.duplicate_orders,
            ms(self.tap_to_outcome_ms.p99),
            self.api_cpu_ms_per_tap,
        )?;
        let most = self.heard.iter().filter(|(words, _)| *words != "201").collect::<Vec<_>>();
        let heard: Vec<_> = most.iter().map(|(words, count)| format!("{count} × {words}")).collect();
        writeln!(f, "  {}", self.heights())?;
        write!(f, "  heard besides 201: {}", if heard.is_empty() { "nothing".to_owned() } else { heard.join(", ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_calm_behind_the_last_second_that_was_loud() {
        let by_second = [100, 100, 110, 400, 100, 300, 105, 20];
        assert_eq!(calm_after_s(&by_second, 100, 4), 2);
        assert_eq!(calm_after_s(&by_second, 100, 6), 0);
        assert_eq!(calm_after_s(&[100, 90], 100, 1), 0);
        assert_eq!(calm_after_s(&[], 100, 1), 0);
    }

    #[test]
    fn only_the_obedient_hear_what_they_are_asked_for() {
        let asked = Some(Duration::from_secs(7));
        let pauses = |policy: Policy| policy.patience().pause(2, asked, 0.5).as_millis();
        let of = Policy::value_variants().iter().map(|policy| (policy.name(), pauses(*policy)));
        let expected = [
            ("at-once", 0),
            ("fixed", 1000),
            ("exponential", 2000),
            ("jitter", 1000),
            ("obedient", 8000),
            ("budget", 8000),
        ];
        assert!(of.eq(expected.map(|(name, pause)| (name.to_owned(), pause))));
    }
}
