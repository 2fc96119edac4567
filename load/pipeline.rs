//! What follows from an order, under load. Question: do relay, ledger and receipts keep up, or does their backlog grow?
//!
//! Once a second the stack is asked how many events are on their way. A pipeline keeps up when that number has no trend and is
//! never more than about a second's worth at the end; what it owes afterwards it must pay back.

use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::{sync::watch, time::sleep};

use crate::books::Books;

const LOOK_EVERY: Duration = Duration::from_secs(1);
const DRAIN_LOOK_EVERY: Duration = Duration::from_millis(100);
/// After a phase, how long the rest may take to be delivered.
const DRAIN_MAX: Duration = Duration::from_secs(180);
/// A backlog that grows by more than this share of the rate is growing.
const GROWTH_MAX: f64 = 0.01;
/// What came within this long is on its way in any healthy pipeline. A line through so little has a slope by chance, and a
/// backlog that has not grown beyond it in the end has not grown.
const ROUND_S: f64 = 0.1;

/// Events on their way at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Behind {
    /// Not in the log yet.
    pub(crate) outbox: u64,
    /// In the log, and not acknowledged by the consumer.
    pub(crate) ledger: u64,
    pub(crate) receipts: u64,
}

impl Behind {
    /// Events that somebody still has to deal with.
    pub(crate) fn events(self) -> u64 {
        self.outbox + self.ledger.max(self.receipts)
    }
}

/// One look, by the time since the phase began.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Sample {
    pub(crate) at_s: f64,
    #[serde(flatten)]
    pub(crate) behind: Behind,
}

/// What a phase did to the pipeline.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Pipeline {
    pub(crate) at_end: Behind,
    pub(crate) most: u64,
    /// Events per second by which the backlog grew in the measured window, by a straight line through the samples.
    pub(crate) growth_per_s: f64,
    /// From the end of the phase until everything was delivered; `None`: it was not within three minutes.
    pub(crate) drained_s: Option<f64>,
    pub(crate) samples: Vec<Sample>,
}

impl Pipeline {
    /// Whether the backlog stayed what it was at this rate of orders.
    pub(crate) fn keeps_up(&self, rate_per_s: f64) -> bool {
        let grows = self.growth_per_s > GROWTH_MAX * rate_per_s && self.at_end.events() as f64 > ROUND_S * rate_per_s;
        !grows && (self.at_end.events() as f64) <= rate_per_s && self.drained_s.is_some()
    }
}

/// Looks once a second while a phase runs, then until everything is delivered. `warmup`: what is not in the measured window.
pub(crate) async fn follow<T>(
    books: &Books,
    warmup: Duration,
    phase: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<(T, Pipeline)> {
    let (over, is_over) = watch::channel(false);
    let phase = async {
        let ended = phase.await;
        // If nobody looks any more, its own error says why.
        let _ = over.send(true);
        ended
    };
    let (ended, looked) = tokio::join!(phase, look(books, warmup, is_over));
    Ok((ended?, looked?))
}

async fn look(books: &Books, warmup: Duration, mut over: watch::Receiver<bool>) -> anyhow::Result<Pipeline> {
    let started = Instant::now();
    let mut samples = Vec::new();
    while !*over.borrow() {
        let at_s = started.elapsed().as_secs_f64();
        samples.push(Sample { at_s, behind: books.behind().await? });
        tokio::select! {
            () = sleep(LOOK_EVERY) => {}
            _ = over.changed() => {}
        }
    }
    let at_end = books.behind().await?;
    let drained_s = until_delivered(books).await?;
    let in_window: Vec<Sample> = samples.iter().copied().filter(|sample| sample.at_s >= warmup.as_secs_f64()).collect();
    let most = samples.iter().map(|sample| sample.behind.events()).max().unwrap_or_default();
    Ok(Pipeline { at_end, most, growth_per_s: slope(&in_window), drained_s, samples })
}

/// Seconds until nothing is on its way any more. `None`: longer than [`DRAIN_MAX`].
pub(crate) async fn until_delivered(books: &Books) -> anyhow::Result<Option<f64>> {
    let began = Instant::now();
    while began.elapsed() < DRAIN_MAX {
        if books.behind().await?.events() == 0 {
            return Ok(Some(began.elapsed().as_secs_f64()));
        }
        sleep(DRAIN_LOOK_EVERY).await;
    }
    Ok(None)
}

/// The slope of the straight line that lies closest to the samples.
fn slope(samples: &[Sample]) -> f64 {
    let count = samples.len() as f64;
    let mean = |of: fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / count.max(1.0);
    let (at, behind) = (mean(|sample| sample.at_s), mean(|sample| sample.behind.events() as f64));
    let spread: f64 = samples.iter().map(|sample| (sample.at_s - at).powi(2)).sum();
    let together: f64 = samples.iter().map(|s| (s.at_s - at) * (s.behind.events() as f64 - behind)).sum();
    if spread > 0.0 { together / spread } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(of: impl Fn(u64) -> u64) -> Vec<Sample> {
        let sample =
            |second| Sample { at_s: second as f64, behind: Behind { outbox: of(second), ledger: 0, receipts: 0 } };
        (0..30).map(sample).collect()
    }

    fn pipeline(samples: Vec<Sample>) -> Pipeline {
        let at_end = samples.last().unwrap().behind;
        Pipeline { at_end, most: 0, growth_per_s: slope(&samples), drained_s: Some(1.0), samples }
    }

    #[test]
    fn a_backlog_that_breathes_keeps_up_and_one_that_grows_does_not() {
        assert!(pipeline(samples(|second| 200 + 150 * (second % 2))).keeps_up(3_000.0));
        assert!(!pipeline(samples(|second| 200 + 40 * second)).keeps_up(3_000.0));
        // Standing still at ten seconds' worth is no keeping up either.
        assert!(!pipeline(samples(|_| 30_000)).keeps_up(3_000.0));
        assert!(!Pipeline { drained_s: None, ..pipeline(samples(|_| 0)) }.keeps_up(3_000.0));
        assert_eq!(slope(&[]), 0.0);
        assert!((slope(&samples(|second| 7 * second)) - 7.0).abs() < 1e-9);
    }

    #[test]
    fn two_consumers_of_one_event_are_one_event() {
        assert_eq!(Behind { outbox: 3, ledger: 5, receipts: 7 }.events(), 10);
    }
}
