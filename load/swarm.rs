//! The phones. Question: what does a city of customers do while answers are lost?
//!
//! Every tap is due at its own moment and waits for nobody. From then on a phone obeys the loop of [`obey`], and between it and
//! the server lies the [`Network`], which decides what becomes of each attempt. The phone's code never learns what that was: a
//! request that was never sent and an answer that was thrown away are the same silence, of the same length.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use checkout::phone::{
    Fate, Heard, KeyPolicy, Mode, Network, Outcome, Patience, Turn,
    obey::{Transport, obey},
};
use tokio::time::{MissedTickBehavior, interval, sleep, sleep_until, timeout_at};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    arrivals::Arrivals,
    line::LineBroken,
    orders::Orders,
    pool::Pool,
    progress::Progress,
    told::{Belief, Counts, Tried},
};

/// As the benchmark's ticker: tokio's timer cannot do better.
const TICK: Duration = Duration::from_millis(1);
const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// The second touch of a double tap, and of a customer who taps again, is a tap of its own for the network.
pub(crate) const NEXT_TAP: u64 = 1 << 40;
/// Cut behind the request: long enough to have written it, much too short for an answer.
const RESET_AFTER: Duration = Duration::from_millis(1);
/// How long a customer looks at "failed" before tapping again.
const RETAP_AFTER: Duration = Duration::from_secs(3);

/// A shared budget saves no more retries than this: what was not needed all day is no reason for a storm.
const RETRIES_SAVED_MAX: f64 = 100.0;

/// What the phones do, and through what.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) mode: Mode,
    pub(crate) network: Network,
    /// In life, before the time scale.
    pub(crate) patience: Patience,
    /// The clients' clock runs so many times faster: their waits, and what the customers around them wait for, are shorter.
    /// The server's work takes what it takes.
    pub(crate) time_scale: u32,
    /// Of a client that does not retry: how many of its customers tap again, from 0 to 1.
    pub(crate) manual_retap: f64,
    /// All phones together may retry so often for each tap; `None`: each as it likes.
    pub(crate) retry_budget: Option<f64>,
    pub(crate) warmup: Duration,
    /// Taps that may be without an outcome at once; one more is dropped, and counted.
    pub(crate) open_max: usize,
}

impl Plan {
    /// A client that never retries sends once.
    pub(crate) fn patience(&self) -> Patience {
        let attempts_max = if self.mode.retries() { self.patience.attempts_max } else { 1 };
        Patience { attempts_max, ..self.patience }.scaled(self.time_scale)
    }

    fn scaled(&self, wait: Duration) -> Duration {
        wait / self.time_scale.max(1)
    }

    /// Does the customer of this tap, told that it failed, tap again?
    pub(crate) fn taps_again(&self, tap: u64) -> bool {
        !self.mode.retries() && self.network.jitter(tap, 0) < self.manual_retap
    }
}

#[derive(Debug)]
struct Swarm {
    plan: Plan,
    orders: Orders,
    pool: Pool,
    started: Instant,
    measured_from: Instant,
    counts: Mutex<Counts>,
    open: AtomicUsize,
    retries_left: Mutex<f64>,
}

impl Swarm {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A tap happened: all phones together may retry a little more.
    fn earn(&self) {
        if let Some(share) = self.plan.retry_budget {
            let mut left = self.retries_left.lock().unwrap_or_else(PoisonError::into_inner);
            *left = (*left + share).min(RETRIES_SAVED_MAX);
        }
    }

    fn spend(&self) -> bool {
        let mut left = self.retries_left.lock().unwrap_or_else(PoisonError::into_inner);
        let may = self.plan.retry_budget.is_none() || *left >= 1.0;
        if may {
            *left -= 1.0;
        }
        may
    }
}

/// Lets every tap of the schedule happen, and waits until each has an outcome.
pub(crate) async fn run(plan: Plan, arrivals: Arrivals, orders: Orders, pool: Pool) -> anyhow::Result<Counts> {
    let started = Instant::now();
    let swarm = Arc::new(Swarm {
        measured_from: started + plan.warmup,
        plan,
        orders,
        pool,
        started,
        counts: Mutex::new(Counts::new()?),
        open: AtomicUsize::new(0),
        retries_left: Mutex::new(0.0),
    });
    let phones = TaskTracker::new();
    let progress = tokio::spawn(say_now_and_then(Arc::clone(&swarm), arrivals.count()));
    tick(&swarm, &phones, arrivals).await;
    swarm.counts().last_tap(started.elapsed());
    phones.close();
    phones.wait().await;
    progress.abort();
    let mut counts = swarm.counts();
    Ok(std::mem::replace(&mut *counts, Counts::new()?))
}

async fn say_now_and_then(swarm: Arc<Swarm>, taps: u64) {
    let mut progress = Progress::new(swarm.plan.mode.to_string(), taps, "purchases ended");
    loop {
        sleep(PROGRESS_EVERY).await;
        let open = swarm.open.load(Ordering::Relaxed);
        let (ended, seen) = swarm.counts().so_far();
        progress.show(ended, &format!("{seen}, {open} phones wait"));
    }
}

async fn tick(swarm: &Arc<Swarm>, phones: &TaskTracker, mut arrivals: Arrivals) {
    let mut ticks = interval(TICK);
    // The next tick takes in all that a late one missed.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut next = 0;
    while !arrivals.is_over() {
        ticks.tick().await;
        while let Some(offset) = arrivals.pop_due(swarm.started.elapsed()) {
            let intent = next;
            next += 1;
            if swarm.open.fetch_add(1, Ordering::Relaxed) >= swarm.plan.open_max {
                swarm.open.fetch_sub(1, Ordering::Relaxed);
                swarm.counts().dropped();
                continue;
            }
            swarm.earn();
            let (swarm, due) = (Arc::clone(swarm), swarm.started + offset);
            phones.spawn(async move {
                let belief = customer(&swarm, intent, due).await;
                swarm.counts().ended(intent, due.elapsed(), due >= swarm.measured_from, belief);
                swarm.open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }
}

/// One customer and one purchase, with whatever happens around it.
async fn customer(swarm: &Swarm, intent: u64, due: Instant) -> Belief {
    let plan = &swarm.plan;
    let kept = uuid::Uuid::new_v4().to_string();
    let first = || phone(swarm, intent, intent, due, plan.mode.policy(&kept));
    let again = || phone(swarm, intent, intent + NEXT_TAP, Instant::now(), plan.mode.policy(&kept));
    match plan.network.turn(intent) {
        Turn::Calm | Turn::Tunnel { .. } => {
            let told = first().await;
            if !matches!(told, Belief::Unknown) || !plan.taps_again(intent) {
                return told;
            }
            sleep(plan.scaled(RETAP_AFTER)).await;
            again().await
        }
        Turn::DoubleTap { after } => {
            let second = async {
                sleep_until((due + plan.scaled(after)).into()).await;
                again().await
            };
            let (first, second) = tokio::join!(first(), second);
            first.or(second)
        }
        Turn::AppKilled { after, away } => {
            // Whatever it was waiting for is gone with it, the connection too.
            if let Ok(told) = timeout_at((due + plan.scaled(after)).into(), first()).await {
                return told;
            }
            let (began, took) = (due.saturating_duration_since(swarm.started), due.elapsed());
            swarm.counts().abandoned(intent, began, took);
            sleep(plan.scaled(away)).await;
            again().await
        }
    }
}

/// One tap, until its client stops.
async fn phone(swarm: &Swarm, intent: u64, tap: u64, due: Instant, policy: KeyPolicy) -> Belief {
    let air = Air { swarm, intent, tap, due, attempts: AtomicU32::new(0) };
    let told = obey(&air, &policy, &swarm.plan.patience(), &CancellationToken::new()).await;
    match told.outcome {
        Outcome::Ok(answer) => Belief::Confirmed(answer.location),
        Outcome::Refused { problem, .. } => Belief::Refused(problem.code),
        Outcome::Unknown(_) => Belief::Unknown,
    }
}

/// What lies between one phone and the server.
struct Air<'a> {
    swarm: &'a Swarm,
    intent: u64,
    tap: u64,
    due: Instant,
    attempts: AtomicU32,
}

impl Transport for Air<'_> {
    async fn attempt(&self, key: Option<&str>) -> Heard {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        let began = Instant::now();
        let turn = self.swarm.plan.network.turn(self.intent);
        let fate = match turn {
            Turn::Tunnel { lasting } if began < self.due + self.swarm.plan.scaled(lasting) => Fate::RequestLost,
            _ => self.swarm.plan.network.fate(self.tap, attempt),
        };
        let until = began + self.swarm.plan.patience().answer_max;
        let (sent, mut heard) = self.meet(fate, key, began, until).await;
        if let Heard::Problem { answer, .. } = &mut heard {
            answer.retry_after = answer.retry_after.map(|wait| self.swarm.plan.scaled(wait));
        }
        let tried = Tried {
            intent: self.intent,
            tap: self.tap,
            attempt,
            fate,
            // How late a first attempt leaves is the generator's own honesty; later ones leave when the phone wants them to.
            lag: sent.map(|sent| sent.saturating_duration_since(if attempt == 1 { self.due } else { began })),
            began: began.saturating_duration_since(self.swarm.started),
            took: began.elapsed(),
            key,
            measured: (self.due >= self.swarm.measured_from)
                .then(|| self.due.saturating_duration_since(self.swarm.started)),
            keep: turn != Turn::Calm,
        };
        self.swarm.counts().tried(tried, &heard);
        heard
    }

    fn luck(&self, attempts: u32) -> f64 {
        self.swarm.plan.network.jitter(self.tap, attempts)
    }

    fn may_retry(&self) -> bool {
        self.swarm.spend()
    }
}

impl Air<'_> {
    /// When it left, if it did, and what the phone hears.
    async fn meet(&self, fate: Fate, key: Option<&str>, began: Instant, until: Instant) -> (Option<Instant>, Heard) {
        match fate {
            Fate::Answered => self.exchange(key, until).await,
            Fate::RequestLost => (None, silence(until).await),
            Fate::AnswerLost => (self.exchange(key, until).await.0, silence(until).await),
            Fate::HangUp { after } => self.cut(key, began + after).await,
            Fate::Reset => self.cut(key, began + RESET_AFTER).await,
            Fate::SentTwice => {
                let (one, other) = tokio::join!(self.exchange(key, until), self.exchange(key, until));
                // Whichever brought an outcome; a phone whose copy was told to wait has the other one's answer.
                if matches!(one.1, Heard::Created(_)) { one } else { other }
            }
        }
    }

    async fn exchange(&self, key: Option<&str>, until: Instant) -> (Option<Instant>, Heard) {
        let mut sent = None;
        let talk = async {
            let Some(mut line) = self.swarm.pool.take().await else {
                return Heard::NotSent { why: "no connection".to_owned() };
            };
            sent = Some(Instant::now());
            match line.ask(self.swarm.orders.of_intent(self.intent, key)).await {
                Ok(answer) => {
                    line.keep();
                    Heard::read(answer)
                }
                Err(LineBroken::NoAnswer) => Heard::NoAnswer { why: "the connection ended".to_owned() },
                Err(LineBroken::Truncated { status }) => Heard::Truncated { status },
            }
        };
        let heard = match timeout_at(until.into(), talk).await {
            Ok(heard) => heard,
            Err(_) => nothing(),
        };
        (sent, heard)
    }

    /// The connection is closed at that moment; the phone knows that it knows nothing.
    async fn cut(&self, key: Option<&str>, at: Instant) -> (Option<Instant>, Heard) {
        let (sent, heard) = self.exchange(key, at).await;
        let heard = if heard == nothing() { Heard::NoAnswer { why: "the connection ended".to_owned() } } else { heard };
        (sent, heard)
    }
}

/// What a phone hears when the network lost something on the way, whatever it lost.
async fn silence(until: Instant) -> Heard {
    sleep_until(until.into()).await;
    nothing()
}

fn nothing() -> Heard {
    Heard::NoAnswer { why: "no answer in time".to_owned() }
}
