//! One phase of load against one server. Question: closed or open, what is the difference?
//!
//! In the closed loop every connection sends its next order when the last one is answered: it finds the capacity, and its
//! latency says little, because a slow server slows its own callers down. In the open loop orders come by the clock,
//! as they do from people.
//!
//! Everything ends with the window: what was not sent shortly after it is given up and counted.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context;
use rand::rngs::SmallRng;
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep, sleep_until, timeout},
};

use crate::{
    arrivals::Arrivals,
    cpu::{Accounts, Spent, Watched},
    line::Line,
    measure::{Counted, Ended, ON_TIME, Taken, Tally, window},
    orders::Orders,
    queue::{Put, Queue},
};

/// Tokio's timer cannot do better, and 3 or 4 orders due within one millisecond are sent together.
const TICK: Duration = Duration::from_millis(1);
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// Longer than the server's own limits on an answer: what is open this long after the window will stay open.
const DRAIN_MAX: Duration = Duration::from_secs(30);
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// How orders follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loop {
    Closed,
    Open { rate_per_s: u32 },
}

impl std::fmt::Display for Loop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("closed loop"),
            Self::Open { rate_per_s } => write!(f, "open loop at {rate_per_s}/s"),
        }
    }
}

/// What to do.
#[derive(Debug, Clone)]
pub(crate) struct Phase {
    pub(crate) looped: Loop,
    pub(crate) connections: usize,
    pub(crate) warmup: Duration,
    pub(crate) lasting: Duration,
    /// Orders that may wait for a free connection.
    pub(crate) queue_limit: usize,
}

/// What came of it.
#[derive(Debug, Clone)]
pub(crate) struct Driven {
    pub(crate) counted: Counted,
    pub(crate) spent: Spent,
}

/// What all tasks of a phase share.
#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    orders: Orders,
    tally: Mutex<Tally>,
    queue: Queue,
    /// After this no new order is sent in the closed loop.
    until: Instant,
}

impl Shared {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the phase to its end, drain included. Send from a single-threaded runtime: the tasks share everything.
pub(crate) async fn run(
    phase: &Phase,
    server: SocketAddr,
    orders: &Orders,
    watched: Vec<Watched>,
) -> anyhow::Result<Driven> {
    let mut lines = Vec::with_capacity(phase.connections);
    for _ in 0..phase.connections {
        lines.push(Line::connect(server).await?);
    }
    let started = Instant::now();
    let window = window(started, phase.warmup, phase.lasting);
    let shared = Arc::new(Shared {
        server,
        orders: orders.clone(),
        tally: Mutex::new(Tally::new(window.clone())?),
        queue: Queue::new(phase.queue_limit),
        until: window.end,
    });
    let mut tasks = JoinSet::new();
    for line in lines {
        let shared = Arc::clone(&shared);
        match phase.looped {
            Loop::Closed => tasks.spawn(closed(shared, line)),
            Loop::Open { .. } => tasks.spawn(open(shared, line)),
        };
    }
    if let Loop::Open { rate_per_s } = phase.looped {
        let arrivals = Arrivals::even(rate_per_s, phase.warmup + phase.lasting);
        tasks.spawn(tick(Arc::clone(&shared), arrivals, started, phase.connections));
    }
    sleep_until(window.start.into()).await;
    let before = accounts(&watched).await?;
    watch(phase, &shared, started).await;
    shared.tally().window_ended(shared.queue.waiting());
    let after = accounts(&watched).await?;
    // What is answered later than this changes no figure, so what was not even sent by then is given up: an overloaded server
    // would be busy with it for as long again.
    sleep_until((window.end + ON_TIME).into()).await;
    let abandoned = shared.queue.abandon();
    drain(phase, &shared, &mut tasks).await;
    let counted = shared.tally().close(abandoned + shared.queue.waiting());
    Ok(Driven { counted, spent: after.since(&before) })
}

/// Waits for the answers that are under way. What is open at the end is cut off, and stays unanswered.
async fn drain(phase: &Phase, shared: &Shared, tasks: &mut JoinSet<()>) {
    let since = Instant::now();
    while timeout(PROGRESS_EVERY, async { while tasks.join_next().await.is_some() {} }).await.is_err() {
        let (waited_s, open) = (since.elapsed().as_secs(), shared.tally().open());
        eprintln!("  {}: {open} orders without an answer {waited_s} s after the last tap", phase.looped);
        if since.elapsed() >= DRAIN_MAX {
            return tasks.shutdown().await;
        }
    }
}

/// Reading all of `/proc` takes milliseconds, and orders are due meanwhile.
async fn accounts(watched: &[Watched]) -> anyhow::Result<Accounts> {
    let watched = watched.to_vec();
    tokio::task::spawn_blocking(move || Accounts::read(&watched)).await.context("reading the CPU accounts")?
}

/// Says now and then how it goes, until the window ends.
async fn watch(phase: &Phase, shared: &Shared, started: Instant) {
    loop {
        let left = shared.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        sleep(left.min(PROGRESS_EVERY)).await;
        let (answered, dropped) = {
            let tally = shared.tally();
            (tally.answered(), tally.dropped_so_far())
        };
        let waiting = shared.queue.waiting();
        let elapsed_s = started.elapsed().as_secs();
        eprintln!("  {}: {elapsed_s} s, {answered} answered, {waiting} queued, {dropped} dropped", phase.looped);
    }
}

/// Puts every order in the queue when it is due, whatever the server does.
async fn tick(shared: Arc<Shared>, mut arrivals: Arrivals, started: Instant, takers: usize) {
    let mut ticks = interval(TICK);
    // The next tick takes in all that a late one missed.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while !arrivals.is_over() {
        ticks.tick().await;
        let now = Instant::now();
        while let Some(offset) = arrivals.pop_due(now.duration_since(started)) {
            let due = started + offset;
            let mut tally = shared.tally();
            tally.scheduled(due);
            tally.ticked(due, now);
            if shared.queue.put(due) == Put::Full {
                tally.dropped();
            }
        }
    }
    shared.queue.close(takers);
}

async fn open(shared: Arc<Shared>, line: Line) {
    let (mut line, mut random) = (Some(line), rand::make_rng());
    while let Some(due) = shared.queue.take().await {
        send(&shared, &mut line, &mut random, due).await;
    }
}

async fn closed(shared: Arc<Shared>, line: Line) {
    let (mut line, mut random) = (Some(line), rand::make_rng());
    loop {
        let now = Instant::now();
        if now >= shared.until {
            return;
        }
        shared.tally().scheduled(now);
        send(&shared, &mut line, &mut random, now).await;
    }
}

/// One order from due to done, over the line or, where that broke, over a new one.
async fn send(shared: &Shared, line: &mut Option<Line>, random: &mut SmallRng, due: Instant) {
    shared.tally().sending();
    let ready = match line {
        Some(line) => line.is_ready().await,
        None => false,
    };
    if !ready {
        *line = Line::connect(shared.server).await.ok();
    }
    let sent = Instant::now();
    let ended = match line {
        Some(line) => line.exchange(shared.orders.next(random)).await,
        None => Ended::NotConnected,
    };
    shared.tally().record(Taken { due, sent, done: Instant::now(), ended });
    match ended {
        Ended::Status(_) => {}
        Ended::Broken => *line = None,
        // A server that is gone would otherwise be asked as fast as a processor can ask.
        Ended::NotConnected => sleep(RECONNECT_PAUSE).await,
    }
}

#[cfg(test)]
mod tests;
