//! What the phones were told, added up. Question: what did the customers see?
//!
//! Three clocks, each with its own honesty: how late an attempt left (the generator's), how long an answer took (the server's),
//! and from the touch of the button to the outcome (the customer's, all attempts and waits included).

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context;
use checkout::phone::{Fate, Heard};
use hdrhistogram::Histogram;
use serde::Serialize;

/// Longest time told apart from longer ones.
const LATENCY_MAX_US: u64 = 180_000_000;
const DIGITS: u8 = 3;

/// How a purchase stands for its customer at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Belief {
    /// "Paid", and where to look at it.
    Confirmed(Option<String>),
    /// The api's own word for why not.
    Refused(String),
    /// Nobody told.
    Unknown,
}

impl Belief {
    /// Of two taps for one purchase: one that was confirmed is what the customer goes by.
    pub(crate) fn or(self, other: Self) -> Self {
        if matches!(self, Self::Confirmed(_)) { self } else { other }
    }
}

/// One attempt, with what its phone cannot know.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tried {
    pub(crate) intent: u64,
    pub(crate) tap: u64,
    pub(crate) attempt: u32,
    pub(crate) fate: Fate,
    /// From when it should have left until it did. `None`: it never left.
    pub(crate) lag: Option<Duration>,
    /// After the start of the run.
    pub(crate) began: Duration,
    pub(crate) took: Duration,
    pub(crate) with_key: bool,
    /// Its tap was due after the warm-up.
    pub(crate) measured: bool,
}

/// The same, as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Kept {
    pub(crate) tap: u64,
    pub(crate) attempt: u32,
    pub(crate) fate: Fate,
    pub(crate) began: Duration,
    pub(crate) took: Duration,
    pub(crate) heard: String,
}

/// What an answer was, for its latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    First,
    Replay,
    InProgress,
}

#[derive(Debug)]
pub(crate) struct Counts {
    send_lag: Histogram<u64>,
    latency: BTreeMap<Kind, Histogram<u64>>,
    outcome: Histogram<u64>,
    pub(crate) attempts: u64,
    pub(crate) arrived: u64,
    pub(crate) with_key: u64,
    pub(crate) replays: u64,
    pub(crate) conflicts: u64,
    pub(crate) dropped: u64,
    /// Attempts that waited in vain although the network had decided nothing: the server was slower than its clients.
    pub(crate) timed_out: u64,
    pub(crate) last_tap: Duration,
    /// What was heard, by its words.
    pub(crate) heard: BTreeMap<String, u64>,
    pub(crate) beliefs: BTreeMap<u64, Belief>,
    /// The attempts of every intent that needed more than one, or did not end well.
    pub(crate) histories: BTreeMap<u64, Vec<Kept>>,
}

impl Counts {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let histogram = || Histogram::new_with_max(LATENCY_MAX_US, DIGITS).context("histogram bounds");
        let kinds = [Kind::First, Kind::Replay, Kind::InProgress];
        Ok(Self {
            send_lag: histogram()?,
            latency: kinds.into_iter().map(|kind| Ok((kind, histogram()?))).collect::<anyhow::Result<_>>()?,
            outcome: histogram()?,
            attempts: 0,
            arrived: 0,
            with_key: 0,
            replays: 0,
            conflicts: 0,
            dropped: 0,
            timed_out: 0,
            last_tap: Duration::ZERO,
            heard: BTreeMap::new(),
            beliefs: BTreeMap::new(),
            histories: BTreeMap::new(),
        })
    }

    pub(crate) fn dropped(&mut self) {
        self.dropped += 1;
    }

    pub(crate) fn last_tap(&mut self, after: Duration) {
        self.last_tap = after;
    }

    pub(crate) fn tried(&mut self, tried: Tried, heard: &Heard) {
        self.attempts += 1;
        self.arrived += u64::from(tried.lag.is_some());
        self.with_key += u64::from(tried.with_key);
        let words = heard.sentence();
        let kind = kind(heard);
        self.replays += u64::from(kind == Some(Kind::Replay));
        self.conflicts += u64::from(kind == Some(Kind::InProgress));
        let heard_nothing = matches!(heard, Heard::NoAnswer { .. });
        self.timed_out += u64::from(heard_nothing && matches!(tried.fate, Fate::Answered | Fate::SentTwice));
        if tried.measured {
            if let Some(lag) = tried.lag.filter(|_| tried.attempt == 1) {
                self.send_lag.saturating_record(microseconds(lag));
            }
            // An answer that the network threw away took as long as the network liked.
            if let Some(histogram) =
                kind.filter(|_| tried.fate == Fate::Answered).and_then(|kind| self.latency.get_mut(&kind))
            {
                let waited = if tried.attempt == 1 { tried.lag.unwrap_or_default() } else { Duration::ZERO };
                histogram.saturating_record(microseconds(tried.took + waited));
            }
        }
        match self.heard.get_mut(&words) {
            Some(count) => *count += 1,
            None => drop(self.heard.insert(words.clone(), 1)),
        }
        if tried.attempt > 1 || tried.tap != tried.intent || tried.fate != Fate::Answered || kind != Some(Kind::First) {
            let Tried { tap, attempt, fate, began, took, .. } = tried;
            self.histories.entry(tried.intent).or_default().push(Kept {
                tap,
                attempt,
                fate,
                began,
                took,
                heard: words,
            });
        }
    }

    pub(crate) fn ended(&mut self, intent: u64, after: Duration, measured: bool, belief: Belief) {
        if measured && matches!(belief, Belief::Confirmed(_)) {
            self.outcome.saturating_record(microseconds(after));
        }
        self.beliefs.insert(intent, belief);
    }

    pub(crate) fn so_far(&self) -> String {
        format!("{} purchases ended, {} attempts, {} replays", self.beliefs.len(), self.attempts, self.replays)
    }

    pub(crate) fn send_lag_ms(&self) -> Curve {
        Curve::of(&self.send_lag)
    }

    pub(crate) fn first_attempt_ms(&self) -> Curve {
        Curve::of(&self.latency[&Kind::First])
    }

    pub(crate) fn replay_ms(&self) -> Curve {
        Curve::of(&self.latency[&Kind::Replay])
    }

    pub(crate) fn outcome_ms(&self) -> Curve {
        Curve::of(&self.outcome)
    }
}

/// `None`: no answer of the api's.
fn kind(heard: &Heard) -> Option<Kind> {
    match heard {
        Heard::Created(answer) if answer.replayed => Some(Kind::Replay),
        Heard::Created(_) => Some(Kind::First),
        Heard::Problem { answer, .. } if answer.status == 409 => Some(Kind::InProgress),
        _ => None,
    }
}

/// Milliseconds at which a share of all was done.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Curve {
    pub(crate) count: u64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

impl Curve {
    fn of(histogram: &Histogram<u64>) -> Self {
        let ms = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        Self {
            count: histogram.len(),
            p50: ms(0.5),
            p90: ms(0.9),
            p99: ms(0.99),
            p999: ms(0.999),
            max: histogram.max() as f64 / 1000.0,
        }
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
