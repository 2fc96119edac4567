//! What happened to each order, added up. Question: which number may be believed?
//!
//! An order's latency starts when it was *due*, not when it could be sent: a wait for a free connection is a wait that the
//! customer feels (leaving it out is called coordinated omission). Warm-up orders are in the totals, which are checked
//! against the database, and not in the latencies.

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
    dropped: u64,
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
            dropped: 0,
        })
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

    pub(crate) fn answered(&self) -> u64 {
        self.answered
    }

    pub(crate) fn dropped_so_far(&self) -> u64 {
        self.dropped
    }

    /// Closes the account. `left_queued` orders were due and never got a connection.
    pub(crate) fn close(&self, left_queued: u64) -> Counted {
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
            unanswered: self.sent - self.answered + left_queued,
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
    pub(crate) unanswered: u64,
    pub(crate) errors: BTreeMap<String, u64>,
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
}

fn microseconds(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_micros()).unwrap_or(u64::MAX)
}

/// The window of a phase that started at `started`.
pub(crate) fn window(started: Instant, warmup: Duration, lasting: Duration) -> Range<Instant> {
    started + warmup..started + warmup + lasting
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn tally(started: Instant) -> Tally {
        Tally::new(window(started, 1000 * MS, 1000 * MS)).unwrap()
    }

    fn take(tally: &mut Tally, started: Instant, due: u32, sent: u32, done: u32, ended: Ended) {
        tally.sending();
        tally.record(Taken { due: started + due * MS, sent: started + sent * MS, done: started + done * MS, ended });
    }

    #[test]
    fn latency_starts_when_the_order_was_due_not_when_it_was_sent() {
        let started = Instant::now();
        let mut tally = tally(started);
        // Waited 300 ms for a connection, was answered 20 ms after it got one.
        take(&mut tally, started, 1100, 1400, 1420, Ended::Status(201));
        let counted = tally.close(0);
        assert!((counted.latency_ms.p50 - 320.0).abs() < 0.5, "{:?}", counted.latency_ms);
        assert!((counted.send_lag_ms.max - 300.0).abs() < 0.5, "{:?}", counted.send_lag_ms);
    }

    #[test]
    fn warm_up_and_drain_are_in_the_totals_and_not_in_the_figures() {
        let started = Instant::now();
        let mut tally = tally(started);
        take(&mut tally, started, 10, 10, 900, Ended::Status(201)); // warm-up
        take(&mut tally, started, 990, 990, 1010, Ended::Status(201)); // due before, done inside: throughput only
        take(&mut tally, started, 1500, 1500, 1504, Ended::Status(201)); // inside
        take(&mut tally, started, 1999, 1999, 2500, Ended::Status(201)); // due inside, done after: latency only
        let counted = tally.close(0);
        assert_eq!((counted.orders, counted.orders_in_window), (4, 2));
        assert!((counted.orders_per_s - 2.0).abs() < 1e-9);
        assert!((counted.latency_ms.max - 501.0).abs() < 1.0, "{:?}", counted.latency_ms);
        assert!((counted.latency_ms.p50 - 4.0).abs() < 0.1, "{:?}", counted.latency_ms);
    }

    #[test]
    fn a_quick_refusal_is_an_error_and_not_a_fast_order() {
        let started = Instant::now();
        let mut tally = tally(started);
        take(&mut tally, started, 1100, 1100, 1101, Ended::Status(503));
        take(&mut tally, started, 1100, 1100, 1101, Ended::Broken);
        take(&mut tally, started, 1100, 1100, 1150, Ended::Status(201));
        let counted = tally.close(0);
        assert_eq!((counted.orders, counted.orders_in_window), (1, 1));
        assert_eq!(counted.errors, BTreeMap::from([("503".to_owned(), 1), ("connection broken".to_owned(), 1)]));
        assert!((counted.latency_ms.p50 - 50.0).abs() < 0.1);
    }

    #[test]
    fn what_was_sent_and_never_answered_is_counted_with_what_stayed_queued() {
        let started = Instant::now();
        let mut tally = tally(started);
        tally.sending();
        tally.sending();
        tally.dropped();
        take(&mut tally, started, 1100, 1100, 1150, Ended::Status(201));
        let counted = tally.close(5);
        assert_eq!((counted.orders, counted.unanswered, counted.dropped), (1, 7, 1));
    }
}
