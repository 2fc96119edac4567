//! The loop of a client that obeys. Question: again, or is it over, and with what?
//!
//! It knows no transport, so that the rules can be tried with a scripted one and no real waiting.

use std::{borrow::Cow, time::Duration};

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Answer, Heard, KeyPolicy, Patience, heard::Problem};
use crate::wire::problem::Retry;

/// How an intent ended for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Ok(Answer),
    Refused {
        refusal: Refusal,
        problem: Problem,
        answer: Answer,
    },
    /// The client stopped asking. It may have happened, and the same key is the only safe way to ask again.
    Unknown(GaveUp),
}

/// What the server calls final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The customer may change something and start anew, under a new key.
    NewKey,
    Never,
}

/// Why a client stops although nothing is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GaveUp {
    Attempts,
    Horizon,
    /// All clients together have retried as much as they may.
    Budget,
    /// Whoever runs the client wants it to end.
    Stopped,
}

/// One attempt, as the judge reads it later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// `None`: none was sent.
    pub key: Option<String>,
    /// After the first attempt began.
    pub began: Duration,
    pub took: Duration,
    pub heard: Heard,
}

/// The outcome, and everything that led to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub outcome: Outcome,
    pub history: Vec<Attempt>,
}

/// How an attempt is made.
pub trait Transport {
    fn attempt(&self, key: Option<&str>) -> impl Future<Output = Heard> + Send;

    /// The dice for the pause after so many attempts, from 0 to 1.
    fn luck(&self, _attempts: u32) -> f64 {
        rand::random()
    }

    /// May there be one retry more? Of a client that shares a budget with others.
    fn may_retry(&self) -> bool {
        true
    }
}

/// Attempts until the server decides or patience ends. `stop` ends the waiting, never an attempt under way.
pub async fn obey(
    transport: &impl Transport,
    policy: &KeyPolicy,
    patience: &Patience,
    stop: &CancellationToken,
) -> Told {
    let began = Instant::now();
    let mut history = Vec::new();
    let outcome = loop {
        let attempt = one(transport, policy.key().map(Cow::into_owned), began).await;
        let (retry_after, over) = (attempt.heard.retry_after(), over(&attempt.heard));
        history.push(attempt);
        if let Some(outcome) = over {
            break outcome;
        }
        let attempts = u32::try_from(history.len()).unwrap_or(u32::MAX);
        if attempts >= patience.attempts_max {
            break Outcome::Unknown(GaveUp::Attempts);
        }
        if !transport.may_retry() {
            break Outcome::Unknown(GaveUp::Budget);
        }
        let pause = patience.pause(attempts, retry_after, transport.luck(attempts));
        if began.elapsed().saturating_add(pause) > patience.horizon {
            break Outcome::Unknown(GaveUp::Horizon);
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => break Outcome::Unknown(GaveUp::Stopped),
            () = sleep(pause) => {}
        }
    };
    Told { outcome, history }
}

async fn one(transport: &impl Transport, key: Option<String>, first_began: Instant) -> Attempt {
    let began = first_began.elapsed();
    let heard = transport.attempt(key.as_deref()).await;
    Attempt { key, began, took: first_began.elapsed().saturating_sub(began), heard }
}

/// `None`: nothing is decided, send the same again.
fn over(heard: &Heard) -> Option<Outcome> {
    match heard {
        Heard::Created(answer) => Some(Outcome::Ok(answer.clone())),
        Heard::Problem { problem, answer } => {
            let refusal = match problem.retry {
                Retry::SameKey => return None,
                Retry::NewKey => Refusal::NewKey,
                Retry::Never => Refusal::Never,
            };
            Some(Outcome::Refused { refusal, problem: problem.clone(), answer: answer.clone() })
        }
        Heard::NotSent { .. } | Heard::NoAnswer { .. } | Heard::Truncated { .. } | Heard::Unreadable { .. } => None,
    }
}

#[cfg(test)]
mod tests;
