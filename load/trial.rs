//! One client in one network, against one stack, judged. Question: what did its customers get, and what did they pay?

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use checkout::phone::{Mode, Network, Patience, Profile};
use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::{
    arrivals::{Arrivals, Law},
    books::{Books, Written},
    cpu::{Accounts, Spent},
    found::{Compared, ModeFound},
    judge::Judged,
    machine::Machine,
    orders::Orders,
    pipeline,
    pool::Pool,
    report::{AuditFound, BUILD},
    setting::Setting,
    stand::{RelayFate, Sells, Stand},
    swarm::{self, Plan},
    told::Counts,
};

/// Sent later than this, attempts were the generator's queue and not the customers' taps.
const SEND_LAG_MAX_MS: f64 = 10.0;
/// A client time-out of less than so many of the server's usual answers would make duplicates that nobody foresaw.
const TIMEOUT_IN_P99S: f64 = 20.0;

/// What every client meets alike.
#[derive(Debug, Clone, Args)]
pub(crate) struct TrialArgs {
    /// Taps due per second.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) rate: u32,
    /// How long taps are measured, in seconds.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// How long taps come before they are measured, in seconds. They are audited like all others.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=600))]
    pub(crate) warmup_seconds: u64,
    /// even: at equal distances, poisson: by chance, as people's.
    #[arg(long, default_value_t = Law::Even)]
    pub(crate) arrivals: Law,
    /// Everything that chance decides.
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
    /// What the network does: none, phones (0.6 % of requests and 0.4 % of answers are lost) or stress, and chances that
    /// differ, as in phones,answer_lost=0.05.
    #[arg(long, default_value = "phones")]
    pub(crate) profile: Profile,
    /// Of a client that never retries: the share of customers who tap again after "failed".
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    pub(crate) manual_retap: f64,
    /// Divides the client's own waits (its time-out of 10 s, its pauses, its horizon of 60 s), never the server's work.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) time_scale: u32,
    /// Keep-alive connections, shared by all phones. In life each has its own: enough that nobody waits for one.
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) connections: u16,
    /// Customers who take turns.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) customers: u32,
    /// Taps that may be without an outcome at once; one more is dropped, and the run is invalid.
    #[arg(long, default_value_t = 40_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) open_max: u32,
    /// Leave the relay alone. Usually it is killed once, between a delivery and its mark.
    #[arg(long)]
    pub(crate) spare_relay: bool,
    /// The data folder of a stack that runs already, instead of one of our own. Nothing of it is killed or measured, and nobody
    /// else may buy there meanwhile: the ledger and the mails are counted as a whole.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "not a number from 0 to 1".to_owned())
}

impl TrialArgs {
    /// As the worked example is told: 0.6 % of requests and 0.4 % of answers are lost.
    pub(crate) fn of_the_story(rate: u32, seconds: u64, seed: u64, time_scale: u32) -> Self {
        Self {
            rate,
            seconds,
            warmup_seconds: 5,
            arrivals: Law::Even,
            seed,
            profile: Profile::PHONES,
            manual_retap: 0.0,
            time_scale,
            connections: 1500,
            customers: 1000,
            open_max: 40_000,
            spare_relay: false,
            data_dir: None,
        }
    }

    fn network(&self) -> Network {
        Network { seed: self.seed, profile: self.profile }
    }

    fn plan(&self, mode: Mode) -> Plan {
        Plan {
            mode,
            network: self.network(),
            patience: Patience::PHONE,
            time_scale: self.time_scale,
            manual_retap: self.manual_retap,
            retry_budget: None,
            warmup: Duration::from_secs(self.warmup_seconds),
            open_max: self.open_max as usize,
        }
    }

    fn arrivals(&self) -> Arrivals {
        let lasting = Duration::from_secs(self.warmup_seconds + self.seconds);
        match self.arrivals {
            Law::Even => Arrivals::even(self.rate, lasting),
            Law::Poisson => Arrivals::poisson(self.rate, lasting, self.network()),
        }
    }

    /// What was compared, with nobody in it yet.
    pub(crate) fn compared(&self) -> Compared {
        let patience = self.plan(Mode::PerIntent).patience();
        Compared {
            seed: self.seed,
            fate_hash: self.network().fate_hash(self.arrivals().count(), patience.attempts_max),
            machine: Machine::read(),
            build: BUILD.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            rate_per_s: self.rate,
            warmup_s: self.warmup_seconds,
            seconds: self.seconds,
            arrivals: self.arrivals.to_string(),
            network: self.profile.chances().into_iter().map(|(name, chance)| (name.to_owned(), chance)).collect(),
            manual_retap: self.manual_retap,
            time_scale: self.time_scale,
            client_timeout_ms: patience.answer_max.as_secs_f64() * 1000.0,
            modes: Vec::new(),
            none_doubles_as_per_attempt: None,
        }
    }
}

/// A client's run with what is not published of it.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) found: ModeFound,
    /// Every intent with more than one order, and how many.
    pub(crate) duplicates: std::collections::BTreeMap<u64, u64>,
}

/// Starts a stack, or takes the one that runs, lets one client loose on it and judges what it left behind.
pub(crate) async fn run(args: &TrialArgs, mode: Mode, stop: &CancellationToken) -> anyhow::Result<Done> {
    let stand = stand(args, mode, stop).await?;
    let done = tokio::select! {
        done = one(&stand, args, mode) => done,
        () = stop.cancelled() => Err(anyhow::anyhow!("stopped before the end")),
    };
    stand.stop().await?;
    done
}

async fn stand(args: &TrialArgs, mode: Mode, stop: &CancellationToken) -> anyhow::Result<Stand> {
    let relay = if args.spare_relay { RelayFate::Lives } else { RelayFate::Killed };
    match (&args.data_dir, mode) {
        (Some(_), Mode::None) => {
            anyhow::bail!("a client without keys needs a server without keys, and the running stack asks for them")
        }
        (Some(folder), _) => Stand::running(folder).await,
        (None, Mode::None) => Stand::stack(Sells::WithoutKeys, setting()?, relay, stop).await,
        (None, _) => Stand::stack(Sells::WithKeys, setting()?, relay, stop).await,
    }
}

/// As a stack groups its commits by itself.
pub(crate) fn setting() -> anyhow::Result<Setting> {
    "256x1".parse().map_err(anyhow::Error::msg)
}

async fn one(stand: &Stand, args: &TrialArgs, mode: Mode) -> anyhow::Result<Done> {
    let books = stand.books.as_ref().context("a stand without books cannot be judged")?;
    let plan = args.plan(mode);
    let orders = Orders::of_customers(args.customers, &stand.secret, stand.server)?;
    let run = orders.run();
    let before = Afterwards::read(books).await?;
    let (counts, spent, began) = drive(stand, books, args, &plan, orders).await?;
    eprintln!("  waiting for what follows from the orders");
    pipeline::until_delivered(books).await?.context("what follows from the orders was not delivered in time")?;
    eprintln!("  auditing");
    let joined = books.by_intent(run, began, stand.is_ours()).await?;
    let mut judged = Judged::of(&plan, args.arrivals().count(), &counts, &joined);
    let duplicates = std::mem::take(&mut judged.duplicates);
    let after = Afterwards::read(books).await?.since(before);
    Ok(Done { found: published(args, &plan, &counts, &spent, judged, &after), duplicates })
}

/// What the books say while everything is at rest.
struct Afterwards {
    stuck_keys: u64,
    repeated_deliveries: u64,
    written: Written,
    audit: AuditFound,
}

impl Afterwards {
    async fn read(books: &Books) -> anyhow::Result<Self> {
        Ok(Self {
            stuck_keys: books.open_keys().await?,
            repeated_deliveries: books.repeated_deliveries().await?,
            written: books.read().await?,
            audit: books.audit().await?,
        })
    }

    /// What came since: a stack that runs already has its own past.
    fn since(self, before: Self) -> Self {
        Self {
            stuck_keys: self.stuck_keys.saturating_sub(before.stuck_keys),
            repeated_deliveries: self.repeated_deliveries - before.repeated_deliveries,
            written: self.written.since(before.written),
            audit: self.audit.since(&before.audit),
        }
    }
}

/// Also when it began, by the database's clock.
async fn drive(
    stand: &Stand,
    books: &Books,
    args: &TrialArgs,
    plan: &Plan,
    orders: Orders,
) -> anyhow::Result<(Counts, Spent, f64)> {
    let pool = Pool::open(stand.server, usize::from(args.connections)).await?;
    let before = Accounts::read(&stand.watched())?;
    let began = books.clock().await?;
    let counts = swarm::run(plan.clone(), args.arrivals(), orders, pool).await?;
    let spent = Accounts::read(&stand.watched())?.since(&before);
    Ok((counts, spent, began))
}

fn published(
    args: &TrialArgs,
    plan: &Plan,
    counts: &Counts,
    spent: &Spent,
    judged: Judged,
    after: &Afterwards,
) -> ModeFound {
    let orders = judged.orders.max(1) as f64;
    let cpu = spent.processes.iter().map(|(name, time)| ((*name).to_owned(), time.as_secs_f64() * 1000.0 / orders));
    let (first, lag) = (counts.first_attempt_ms(), counts.send_lag_ms());
    let invalid_because = invalid(plan, counts, first.p99, lag.p99);
    ModeFound {
        mode: plan.mode.to_string(),
        valid: invalid_because.is_empty(),
        invalid_because,
        broken_promises: broken_promises(plan.mode, &judged, after),
        stuck_keys: after.stuck_keys,
        attempts: counts.attempts,
        requests_with_key: counts.with_key,
        replays: counts.replays,
        conflicts: counts.conflicts,
        timed_out: counts.timed_out,
        dropped: counts.dropped,
        heard: counts.heard.clone(),
        repeated_deliveries: after.repeated_deliveries,
        booked_orders: after.written.booked,
        mails: after.written.mails,
        audit: after.audit.anomalies.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect(),
        offered_per_s: f64::from(args.rate),
        achieved_per_s: (judged.intents as f64) / counts.last_tap.as_secs_f64().max(f64::MIN_POSITIVE),
        send_lag_ms_p99: lag.p99,
        first_attempt_ms_p50: first.p50,
        first_attempt_ms_p99: first.p99,
        send_lag_ms: lag,
        first_attempt_ms: first,
        replay_ms: counts.replay_ms(),
        tap_to_outcome_ms: counts.outcome_ms(),
        cpu_ms_per_order: cpu.collect(),
        seconds: counts.seconds(),
        judged,
    }
}

/// Why the figures would mean nothing.
fn invalid(plan: &Plan, counts: &Counts, first_p99_ms: f64, lag_p99_ms: f64) -> Vec<String> {
    let mut reasons = late(counts.dropped, lag_p99_ms);
    let answer_max_ms = plan.patience().answer_max.as_secs_f64() * 1000.0;
    if answer_max_ms < TIMEOUT_IN_P99S * first_p99_ms {
        reasons
            .push(format!("a client time-out of {answer_max_ms:.0} ms is too near to answers of {first_p99_ms:.0} ms"));
    }
    if counts.timed_out > 0 {
        reasons.push(format!("{} answers took longer than their clients waited", counts.timed_out));
    }
    reasons
}

/// Taps that were not sent when they were due.
pub(crate) fn late(dropped: u64, lag_p99_ms: f64) -> Vec<String> {
    let mut reasons = Vec::new();
    if dropped > 0 {
        reasons.push(format!("{dropped} taps were dropped"));
    }
    if lag_p99_ms > SEND_LAG_MAX_MS {
        reasons.push(format!(
            "send lag p99 {lag_p99_ms:.1} ms, more than {SEND_LAG_MAX_MS} ms: the harness was late, or its connections were all \
             taken by a stack that is too slow"
        ));
    }
    reasons
}

/// A client that is right may have none of these. Of one that is wrong, duplicates are what it promises; but each must have
/// been foreseen, and have its own order, charge, entry and mail.
fn broken_promises(mode: Mode, judged: &Judged, after: &Afterwards) -> Vec<String> {
    let is_right = mode == Mode::PerIntent;
    let mut broken = judged.broken_promises();
    broken.retain(|promise| is_right || !promise.contains("duplicate"));
    let counted = [
        (after.stuck_keys, "keys without an end"),
        (after.written.booked.abs_diff(judged.orders), "orders more or fewer in the ledger"),
        (after.written.mails.abs_diff(judged.orders), "mails more or fewer than orders"),
    ];
    broken.extend(counted.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    let audit = after.audit.anomalies.iter().filter(|(kind, _)| is_right || !is_the_clients_own(kind));
    broken.extend(audit.map(|(kind, count)| format!("audit: {count} {kind}")));
    broken
}

/// What the client's own mistakes make of a server that is right: two orders for one intent are these, and nothing else.
fn is_the_clients_own(kind: &str) -> bool {
    matches!(kind, "duplicate_order" | "duplicate_charge")
}
