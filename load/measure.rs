//! What happened to each order, added up. Question: which number may be believed?
//!
//! An order's latency starts when it was *due*, not when it could be sent: a wait for a free connection is a wait that the
//! customer feels (leaving it out is called coordinated omission). Warm-up orders are in the totals, which are checked
//! against the database, and not in the latencies.
//!
//! The throughput counts answers within the window, whenever they were due. Whether a rate was held is another question: it
//! asks of every order that was due in the window whether it was bought, and no later than [`ON_TIME`] after the window.

use std::{
    collections::BTreeMap,
    ops::Range,
    time::{Duration, Instant},
};

use anyhow::Context;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Longest latency told apart from longer ones.
const LATENCY_MAX_US: u64 = 120_000_000;
/// How long after the window its last orders may be answered. A server that falls behind by one part in a hundred is later
/// than this after half a minute.
pub(crate) const ON_TIME: Duration = Duration::from_millis(250);
/// Percentiles are right to one part in a thousand.
const DIGITS: u8 = 3;

/// How one order ended, as the phone sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ended {
    /// Answered, with this status.
    Status(u16),
    /// The connection broke before the whole answer was there.
    Broken,
    /// There was no connection to send it on.
    NotConnected,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(status) => status.fmt(f),
            Self::Broken => f.write_str("connection broken"),
            Self::NotConnected => f.write_str("not connected"),
        }
    }
}

/// The three moments of an order that matter, and its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) due: Instant,
    pub(crate) sent: Instant,
    pub(crate) done: Instant,
    pub(crate) ended: Ended,
}

/// The running account of one phase.
#[derive(Debug)]
pub(crate) struct Tally {
    window: Range<Instant>,
    latency: Histogram<u64>,
    send_lag: Histogram<u64>,
    ticker_lag: Histogram<u64>,
    ended: BTreeMap<Ended, u64>,
    sent: u64,
    answered: u64,
    done_in_window: u64,
    due_in_window: u64,
    due_on_time: u64,
    dropped: u64,
    backlog: Backlog,
}

impl Tally {
    pub(crate) fn new(window: Range<Instant>) -> anyhow::Result<Self> {
        let histogram = || Histogram::new_with_max(LATENCY_MAX_US, DIGITS).context("histogram bounds");
        Ok(Self {
            window,
            latency: histogram()?,
            send_lag: histogram()?,
            ticker_lag: histogram()?,
            ended: BTreeMap::new(),
            sent: 0,
            answered: 0,
            done_in_window: 0,
            due_in_window: 0,
            due_on_time: 0,
            dropped: 0,
            backlog: Backlog::default(),
        })
    }

    /// An order of the schedule, whatever will become of it.
    pub(crate) fn scheduled(&mut self, due: Instant) {
        self.due_in_window += u64::from(self.window.contains(&due));
    }

    /// An order that is about to be sent. Every such call must be followed by one of [`Tally::record`], or the order
    /// counts as unanswered.
    pub(crate) fn sending(&mut self) {
        self.sent += 1;
    }

    pub(crate) fn record(&mut self, taken: Taken) {
        self.answered += 1;
        *self.ended.entry(taken.ended).or_default() += 1;
        if taken.ended != Ended::Status(201) {
            return;
        }
        if self.window.contains(&taken.done) {
            self.done_in_window += 1;
        }
        if self.window.contains(&taken.due) {
            self.latency.saturating_record(microseconds(taken.due, taken.done));
            self.send_lag.saturating_record(microseconds(taken.due, taken.sent));
            self.due_on_time += u64::from(taken.done <= self.window.end + ON_TIME);
        }
    }

    /// How late the ticker itself was with an order: the part of the send lag that is the harness's own fault.
    pub(crate) fn ticked(&mut self, due: Instant, now: Instant) {
        if self.window.contains(&due) {
            self.ticker_lag.saturating_record(microseconds(due, now));
        }
    }

    /// An order that found the queue full. It was never sent.
    pub(crate) fn dropped(&mut self) {
        self.dropped += 1;
    }

    /// The end of the window: what is open now is the backlog.
    pub(crate) fn window_ended(&mut self, queued: u64) {
        self.backlog = Backlog { queued, unanswered: self.open() };
    }

    /// Sent and not answered.
    pub(crate) fn open(&self) -> u64 {
        self.sent - self.answered
    }

    pub(crate) fn answered(&self) -> u64 {
        self.answered
    }

    pub(crate) fn dropped_so_far(&self) -> u64 {
        self.dropped
    }

    /// Closes the account. `never_sent` orders were due and never got a connection.
    pub(crate) fn close(&self, never_sent: u64) -> Counted {
        let orders = self.ended.get(&Ended::Status(201)).copied().unwrap_or(0);
        let errors = self.ended.iter().filter(|(ended, _)| **ended != Ended::Status(201));
        let window_s = (self.window.end - self.window.start).as_secs_f64();
        Counted {
            orders,
            orders_in_window: self.done_in_window,
            orders_per_s: self.done_in_window as f64 / window_s.max(f64::MIN_POSITIVE),
            latency_ms: Quantiles::of(&self.latency),
            send_lag_ms: Quantiles::of(&self.send_lag),
            ticker_lag_ms: Quantiles::of(&self.ticker_lag),
            dropped: self.dropped,
            due_in_window: self.due_in_window,
            due_on_time: self.due_on_time,
            held_per_s: self.due_on_time as f64 / window_s.max(f64::MIN_POSITIVE),
            backlog: self.backlog,
            unanswered: self.open() + never_sent,
            errors: errors.map(|(ended, count)| (ended.to_string(), *count)).collect(),
        }
    }
}

/// The account of one phase, closed.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Counted {
    /// All orders answered 201, warm-up and drain included: what the database must hold.
    pub(crate) orders: u64,
    pub(crate) orders_in_window: u64,
    pub(crate) orders_per_s: f64,
    /// From due to the last byte of the answer.
    pub(crate) latency_ms: Quantiles,
    /// From due to sent.
    pub(crate) send_lag_ms: Quantiles,
    /// From due to noticed by the ticker.
    pub(crate) ticker_lag_ms: Quantiles,
    pub(crate) dropped: u64,
    /// Orders the schedule had for the window.
    pub(crate) due_in_window: u64,
    /// Those of them that were answered 201, and no later than [`ON_TIME`] after the window.
    pub(crate) due_on_time: u64,
    /// The rate that was held: those orders by the window's length.
    pub(crate) held_per_s: f64,
    pub(crate) backlog: Backlog,
    /// Sent and never answered, or given up after the window without having been sent.
    pub(crate) unanswered: u64,
    pub(crate) errors: BTreeMap<String, u64>,
}

/// What was left to do when the window ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Backlog {
    pub(crate) queued: u64,
    pub(crate) unanswered: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Quantiles {
    fn of(histogram: &Histogram<u64>) -> Self {
        let ms = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        Self { p50: ms(0.5), p90: ms(0.9), p99: ms(0.99), max: histogram.max() as f64 / 1000.0 }
    }

    /// As it was recorded.
    pub(crate) fn of_whole(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64;
        Self { p50: at(0.5), p90: at(0.9), p99: at(0.99), max: histogram.max() as f64 }
    }
}

fn microseconds(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_micros()).unwrap_or(u64::MAX)
}

/// The window of a phase that started at `started`.
pub(crate) fn window(started: Instant, warmup: Duration, lasting: Duration) -> Range<Instant> {
    started + warmup..started + warmup + lasting
}

#[cfg(test)]
mod tests;
