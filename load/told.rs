//! What the phones were told, added up. Question: what did the customers see?
//!
//! Three clocks, each with its own honesty: how late an attempt left (the generator's), how long an answer took (the server's),
//! and from the touch of the button to the outcome (the customer's, all attempts and waits included).

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context;
use checkout::phone::{Fate, Heard};
use hdrhistogram::Histogram;

use crate::found::{Curve, Second};

/// Longest time told apart from longer ones.
const LATENCY_MAX_US: u64 = 180_000_000;
const DIGITS: u8 = 3;
/// Of a single second: there are many.
const DIGITS_OF_SECOND: u8 = 2;
/// A day. No run is longer.
const SECONDS_MAX: usize = 86_400;
/// Of a key, enough to tell it from others.
const KEY_CHARACTERS: usize = 8;

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

impl std::fmt::Display for Belief {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Confirmed(_) => f.write_str("paid"),
            Self::Refused(code) => write!(f, "refused: {code}"),
            Self::Unknown => f.write_str("nobody told"),
        }
    }
}

impl Belief {
    /// Of two taps for one purchase: one that was confirmed is what the customer goes by.
    pub(crate) fn or(self, other: Self) -> Self {
        if matches!(self, Self::Confirmed(_)) { self } else { other }
    }
}

/// One attempt, with what its phone cannot know.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tried<'a> {
    pub(crate) intent: u64,
    pub(crate) tap: u64,
    pub(crate) attempt: u32,
    pub(crate) fate: Fate,
    /// From when it should have left until it did. `None`: it never left.
    pub(crate) lag: Option<Duration>,
    /// After the start of the run.
    pub(crate) began: Duration,
    pub(crate) took: Duration,
    pub(crate) key: Option<&'a str>,
    /// When its tap was due after the start, if that was after the warm-up.
    pub(crate) measured: Option<Duration>,
    /// It is of interest however it ends.
    pub(crate) keep: bool,
}

/// The same, as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Kept {
    pub(crate) tap: u64,
    pub(crate) attempt: u32,
    /// `None`: whatever was under way when the app was killed.
    pub(crate) fate: Option<Fate>,
    pub(crate) key: Option<String>,
    pub(crate) was_sent: bool,
    /// The api's own words came back.
    pub(crate) was_answered: bool,
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
    /// First answers by the second in which their tap was due.
    seconds: BTreeMap<u64, Histogram<u64>>,
    pub(crate) attempts: u64,
    /// Attempts by the second after the start in which they began.
    pub(crate) by_second: Vec<u64>,
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
            seconds: BTreeMap::new(),
            attempts: 0,
            by_second: Vec::new(),
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

    pub(crate) fn tried(&mut self, tried: Tried<'_>, heard: &Heard) {
        let kind = kind(heard);
        self.attempts += 1;
        count_in_second(&mut self.by_second, tried.began);
        self.with_key += u64::from(tried.key.is_some());
        self.replays += u64::from(kind == Some(Kind::Replay));
        self.conflicts += u64::from(kind == Some(Kind::InProgress));
        let heard_nothing = matches!(heard, Heard::NoAnswer { .. });
        self.timed_out += u64::from(heard_nothing && matches!(tried.fate, Fate::Answered | Fate::SentTwice));
        if let Some(due) = tried.measured {
            self.clock(&tried, due, kind);
        }
        let words = heard.sentence();
        let is_usual = tried.attempt == 1 && tried.tap == tried.intent && tried.fate == Fate::Answered;
        if tried.keep || !is_usual || kind != Some(Kind::First) {
            let Tried { tap, attempt, fate, began, took, .. } = tried;
            self.histories.entry(tried.intent).or_default().push(Kept {
                tap,
                attempt,
                fate: Some(fate),
                key: tried.key.map(|key| key.chars().take(KEY_CHARACTERS).collect()),
                was_sent: tried.lag.is_some(),
                was_answered: matches!(heard, Heard::Created(_) | Heard::Problem { .. }),
                began,
                took,
                heard: words.clone(),
            });
        }
        *self.heard.entry(words).or_default() += 1;
    }

    fn clock(&mut self, tried: &Tried<'_>, due: Duration, kind: Option<Kind>) {
        if let Some(lag) = tried.lag.filter(|_| tried.attempt == 1) {
            self.send_lag.saturating_record(microseconds(lag));
        }
        // An answer that the network threw away took as long as the network liked.
        let Some(kind) = kind.filter(|_| tried.fate == Fate::Answered) else { return };
        let waited = if tried.attempt == 1 { tried.lag.unwrap_or_default() } else { Duration::ZERO };
        let latency = microseconds(tried.took + waited);
        if let Some(histogram) = self.latency.get_mut(&kind) {
            histogram.saturating_record(latency);
        }
        if kind == Kind::First {
            let second = self.seconds.entry(due.as_secs()).or_insert_with(|| {
                // Bounds that were accepted for the histograms above.
                Histogram::new_with_max(LATENCY_MAX_US, DIGITS_OF_SECOND).unwrap_or_else(|_| self.outcome.clone())
            });
            second.saturating_record(latency);
        }
    }

    /// The app was killed, with whatever it was doing. It may have been waiting for an answer.
    pub(crate) fn abandoned(&mut self, intent: u64, began: Duration, took: Duration) {
        self.histories.entry(intent).or_default().push(Kept {
            tap: intent,
            attempt: 0,
            fate: None,
            key: None,
            was_sent: true,
            was_answered: false,
            began,
            took,
            heard: "the app was killed".to_owned(),
        });
    }

    pub(crate) fn ended(&mut self, intent: u64, after: Duration, measured: bool, belief: Belief) {
        if measured && matches!(belief, Belief::Confirmed(_)) {
            self.outcome.saturating_record(microseconds(after));
        }
        self.beliefs.insert(intent, belief);
    }

    /// Purchases that ended, and what else was seen.
    pub(crate) fn so_far(&self) -> (u64, String) {
        (self.beliefs.len() as u64, format!("{} attempts, {} replays", self.attempts, self.replays))
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

    pub(crate) fn seconds(&self) -> Vec<Second> {
        let ms = |histogram: &Histogram<u64>, share| histogram.value_at_quantile(share) as f64 / 1000.0;
        let second = |(second, histogram): (&u64, &Histogram<u64>)| Second {
            second: *second,
            answered: histogram.len(),
            p50_ms: ms(histogram, 0.5),
            p99_ms: ms(histogram, 0.99),
        };
        self.seconds.iter().map(second).collect()
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

fn count_in_second(seconds: &mut Vec<u64>, at: Duration) {
    let second = usize::try_from(at.as_secs()).map_or(SECONDS_MAX, |second| second.min(SECONDS_MAX));
    if seconds.len() <= second {
        seconds.resize(second + 1, 0);
    }
    seconds[second] += 1;
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
