//! The worker's health in Prometheus' text format: what waits in the database, and what this process has done. (The api's is
//! in `http/metrics.rs`.)
//!
//! A scrape looks at the database at most once a second, whoever scrapes. While the database does not answer, `checkout_up`
//! is 0, the gauges are absent rather than old, and the counters go on.

use std::{fmt::Write as _, time::Duration};

use sqlx::PgPool;
use tokio::{sync::Mutex, time::Instant};

use crate::{
    checkout::upkeep,
    delivery::{
        effects::{LEDGER, RECEIPTS},
        health::{Health, Tally},
        relay::RELAY,
    },
    telemetry::one_line,
};

/// How long a look is good for.
const LOOK_LIFE: Duration = Duration::from_secs(1);

/// What the text is served as.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What this process has done since it started.
#[derive(Debug, Clone, Default)]
pub struct Done {
    pub published: Tally,
    pub consumers: Vec<Consumed>,
    /// Records that recovery has given their answer.
    pub recovered: Tally,
}

/// What one consumer has done.
#[derive(Debug, Clone)]
pub struct Consumed {
    pub by: &'static str,
    pub applied: Tally,
    /// Came again, and were left alone.
    pub repeated: Tally,
}

/// One look at the database.
#[derive(Debug)]
struct Look {
    at: Instant,
    /// The health, and how many days ahead have their partitions.
    seen: Option<(Health, usize)>,
}

#[derive(Debug)]
pub struct Metrics {
    pool: PgPool,
    done: Done,
    /// Held while somebody looks: who comes meanwhile waits for the same answer.
    look: Mutex<Option<Look>>,
}

impl Metrics {
    pub fn new(pool: PgPool, done: Done) -> Self {
        Self { pool, done, look: Mutex::new(None) }
    }

    pub async fn text(&self) -> String {
        let mut look = self.look.lock().await;
        if look.as_ref().is_none_or(|look| look.at.elapsed() >= LOOK_LIFE) {
            let seen = self.see().await;
            *look = Some(Look { at: Instant::now(), seen });
        }
        let seen = look.as_ref().and_then(|look| look.seen.as_ref());
        render(seen, &self.done)
    }

    async fn see(&self) -> Option<(Health, usize)> {
        let seen = async { anyhow::Ok((Health::read(&self.pool).await?, upkeep::days_ahead(&self.pool).await?)) };
        match seen.await {
            Ok(seen) => Some(seen),
            Err(error) => {
                tracing::warn!(error = one_line(&error), "the health cannot be read");
                None
            }
        }
    }
}

fn render(seen: Option<&(Health, usize)>, done: &Done) -> String {
    let mut text = Exposition::default();
    let up = if seen.is_some() { 1.0 } else { 0.0 };
    text.gauge("checkout_up", "Whether the database answered the last look.", &[(&[], up)]);
    if let Some((health, days_ahead)) = seen {
        gauges(&mut text, health, *days_ahead);
    }
    let published = done.published.total() as f64;
    text.counter(
        "checkout_events_published_total",
        "Events that the log acknowledged to this process.",
        &[(&[], published)],
    );
    let by_consumer = |count: &dyn Fn(&Consumed) -> u64| -> Vec<_> {
        done.consumers.iter().map(|of| ([("consumer", of.by)], count(of) as f64)).collect()
    };
    text.counter_by(
        "checkout_events_applied_total",
        "Events whose effect this process made.",
        &by_consumer(&|of| of.applied.total()),
    );
    text.counter_by(
        "checkout_events_repeated_total",
        "Events that came to this process again and were left alone.",
        &by_consumer(&|of| of.repeated.total()),
    );
    let recovered = done.recovered.total() as f64;
    text.counter(
        "checkout_keys_recovered_total",
        "Keys that recovery in this process gave their answer.",
        &[(&[], recovered)],
    );
    text.0
}

fn gauges(text: &mut Exposition, health: &Health, days_ahead: usize) {
    // Nothing waits: no age.
    let age = |age: Option<f64>| age.unwrap_or(0.0);
    text.gauge(
        "checkout_outbox_unsent",
        "Events that no log has yet; counted to 100000.",
        &[(&[], health.outbox.unsent as f64)],
    );
    text.gauge(
        "checkout_outbox_oldest_unsent_age_seconds",
        "Age of the oldest event that no log has yet.",
        &[(&[], age(health.outbox.oldest_unsent_age_s))],
    );
    let consumers = |value: &dyn Fn(&crate::delivery::health::Consumer) -> f64| -> Vec<_> {
        health.consumers.iter().map(|of| ([("consumer", of.name.as_str())], value(of))).collect()
    };
    text.gauge_by(
        "checkout_consumer_lag",
        "Places of the log that a consumer has not acknowledged.",
        &consumers(&|of| of.lag as f64),
    );
    text.gauge_by(
        "checkout_consumer_oldest_unread_age_seconds",
        "Age of the oldest event that a consumer has not acknowledged.",
        &consumers(&|of| age(of.oldest_unread_age_s)),
    );
    let stages = |value: &dyn Fn(&crate::delivery::health::Stage) -> i64| -> Vec<_> {
        health.stages.iter().map(|of| ([("stage", of.name.as_str())], value(of) as f64)).collect()
    };
    text.gauge_by(
        "checkout_events_held",
        "Events that failed, and those behind them, that are tried again by themselves; counted to 100000.",
        &stages(&|of| of.held),
    );
    text.gauge_by(
        "checkout_events_parked",
        "Events that wait until a person sends them on; counted to 100000.",
        &stages(&|of| of.parked),
    );
    let keys = health.keys;
    text.gauge_by(
        "checkout_keys",
        "Idempotency keys without an answer that may have charged somebody, by what they wait for; counted to 100000.",
        &[
            ([("state", "unknown")], keys.unknown as f64),
            ([("state", "needs_review")], keys.needs_review as f64),
            ([("state", "in_flight_expired")], keys.in_flight_expired as f64),
        ],
    );
    text.gauge(
        "checkout_partitions_days_ahead",
        "Days, today included, that every table has a partition for; at 0 no order can be taken.",
        &[(&[], days_ahead as f64)],
    );
    let duties = [RELAY, LEDGER, RECEIPTS].map(|duty| ([("duty", duty)], health.slots_held(duty) as f64));
    text.gauge_by("checkout_leases_held", "Lanes or partitions that some worker holds.", &duties);
}

pub(crate) type Labels<'a> = [(&'a str, &'a str)];

/// The text as it grows: a family with its help and type, then its samples.
#[derive(Debug, Default)]
pub(crate) struct Exposition(String);

impl Exposition {
    pub(crate) fn gauge(&mut self, name: &str, help: &str, samples: &[(&Labels<'_>, f64)]) {
        self.family(name, help, "gauge", samples.iter().copied());
    }

    pub(crate) fn counter(&mut self, name: &str, help: &str, samples: &[(&Labels<'_>, f64)]) {
        self.family(name, help, "counter", samples.iter().copied());
    }

    pub(crate) fn gauge_by(&mut self, name: &str, help: &str, samples: &[([(&str, &str); 1], f64)]) {
        self.family(name, help, "gauge", samples.iter().map(|(labels, value)| (&labels[..], *value)));
    }

    pub(crate) fn counter_by(&mut self, name: &str, help: &str, samples: &[([(&str, &str); 1], f64)]) {
        self.family(name, help, "counter", samples.iter().map(|(labels, value)| (&labels[..], *value)));
    }

    fn family<'a>(&mut self, name: &str, help: &str, kind: &str, samples: impl Iterator<Item = (&'a Labels<'a>, f64)>) {
        let help = help.replace('\\', r"\\").replace('\n', r"\n");
        // Writing to a String cannot fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (labels, value) in samples {
            self.0.push_str(name);
            if !labels.is_empty() {
                let labels: Vec<_> =
                    labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
                let _ = write!(self.0, "{{{}}}", labels.join(","));
            }
            let _ = writeln!(self.0, " {value}");
        }
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_its_help_and_type_once_and_labels_are_escaped() {
        let mut text = Exposition::default();
        text.gauge_by("waits", "back\\slash\nand line", &[([("stage", "a\"b\\c\nd")], 1.5), ([("stage", "e")], 0.0)]);
        text.counter("done_total", "All of it.", &[(&[], 3e6)]);
        assert_eq!(
            text.0,
            "# HELP waits back\\\\slash\\nand line\n# TYPE waits gauge\nwaits{stage=\"a\\\"b\\\\c\\nd\"} 1.5\nwaits{stage=\"e\"} 0\n\
             # HELP done_total All of it.\n# TYPE done_total counter\ndone_total 3000000\n"
        );
    }

    #[test]
    fn without_a_database_the_gauges_are_absent_and_the_counters_go_on() {
        let done = Done {
            consumers: vec![Consumed { by: LEDGER, applied: Tally::default(), repeated: Tally::default() }],
            ..Done::default()
        };
        done.published.add(7);
        done.consumers[0].applied.add(5);
        let text = render(None, &done);
        assert!(text.contains("checkout_up 0\n") && text.contains("checkout_events_published_total 7\n"), "{text}");
        assert!(text.contains("checkout_events_applied_total{consumer=\"ledger\"} 5\n"), "{text}");
        assert!(!text.contains("checkout_outbox_unsent"), "{text}");
    }
}
