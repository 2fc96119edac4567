//! What a run of phones found, as it is published. Question: which figures does a comparison of clients consist of?
//!
//! `load schema` prints the schema of this. Names carry their unit; what is counted is counted over the whole run, warm-up
//! included, and what is measured over the window behind the warm-up.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{judge::Judged, machine::Machine};

/// One network, met by one or more clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Compared {
    /// Everything that chance decided.
    pub(crate) seed: u64,
    /// Stands for every fate that the network had for the attempts: the same for every client, and for every run with this seed.
    pub(crate) fate_hash: String,
    pub(crate) machine: Machine,
    /// `release`, or `debug`: then the figures are about the compiler.
    pub(crate) build: String,
    pub(crate) version: String,
    pub(crate) rate_per_s: u32,
    pub(crate) warmup_s: u64,
    pub(crate) seconds: u64,
    /// `even` or `poisson`.
    pub(crate) arrivals: String,
    /// The chances of the network, by name, from 0 to 1.
    pub(crate) network: BTreeMap<String, f64>,
    /// Of a client that never retries: the share of customers who tap again after "failed".
    pub(crate) manual_retap: f64,
    /// How many times faster the clients' clock ran than in life.
    pub(crate) time_scale: u32,
    /// After this, scaled, a client called silence a time-out.
    pub(crate) client_timeout_ms: f64,
    pub(crate) modes: Vec<ModeFound>,
    /// Whether the clients `none` and `per-attempt` doubled the same purchases equally often. `null`: not both ran.
    pub(crate) none_doubles_as_per_attempt: Option<bool>,
}

impl Compared {
    /// What the network does, by name, with its chance from 0 to 1.
    pub(crate) fn faults(&self) -> impl Iterator<Item = (&str, f64)> {
        self.network.iter().filter(|(_, chance)| **chance > 0.0).map(|(name, chance)| (name.as_str(), *chance))
    }
}

/// What one client's run left behind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ModeFound {
    /// How this client keeps its keys.
    pub(crate) mode: String,
    /// Whether the figures mean anything.
    pub(crate) valid: bool,
    pub(crate) invalid_because: Vec<String>,
    /// What this client promises and did not hold, by the audit. Duplicates that were foreseen of a client that makes them are
    /// none of these.
    pub(crate) broken_promises: Vec<String>,
    #[serde(flatten)]
    pub(crate) judged: Judged,
    /// Keys without an end after everything had come to rest.
    pub(crate) stuck_keys: u64,
    pub(crate) attempts: u64,
    pub(crate) requests_with_key: u64,
    pub(crate) replays: u64,
    /// Attempts that were told to wait for another one.
    pub(crate) conflicts: u64,
    /// Attempts that waited in vain although the network had let them through.
    pub(crate) timed_out: u64,
    pub(crate) dropped: u64,
    /// What was heard, by its words.
    pub(crate) heard: BTreeMap<String, u64>,
    /// Events that were delivered to their consumers more than once.
    pub(crate) repeated_deliveries: u64,
    /// Orders in the books of the ledger, and mails that really went out. One each per order.
    pub(crate) booked_orders: u64,
    pub(crate) mails: u64,
    /// Kinds of anomalies that the audit of the whole stack found, with their number.
    pub(crate) audit: BTreeMap<String, u64>,
    pub(crate) offered_per_s: f64,
    pub(crate) achieved_per_s: f64,
    pub(crate) send_lag_ms_p99: f64,
    pub(crate) first_attempt_ms_p50: f64,
    pub(crate) first_attempt_ms_p99: f64,
    pub(crate) send_lag_ms: Curve,
    pub(crate) first_attempt_ms: Curve,
    pub(crate) replay_ms: Curve,
    pub(crate) tap_to_outcome_ms: Curve,
    pub(crate) cpu_ms_per_order: BTreeMap<String, f64>,
    /// Of the measured window, by the second in which the tap was due.
    pub(crate) seconds: Vec<Second>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Offending {
    pub(crate) why: String,
    pub(crate) story: Story,
}

/// Everything that is known of one intent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Story {
    pub(crate) intent: u64,
    pub(crate) belief: String,
    pub(crate) attempts: Vec<AttemptMade>,
    pub(crate) orders: Vec<OrderMade>,
    pub(crate) captures: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AttemptMade {
    /// Which touch of the button, from 1.
    pub(crate) touch: u32,
    pub(crate) attempt: u32,
    /// Its beginning, or `null` without a key.
    pub(crate) key: Option<String>,
    /// What the network did with it.
    pub(crate) fate: String,
    /// All the phone learned.
    pub(crate) heard: String,
    pub(crate) began_s: f64,
    pub(crate) took_s: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OrderMade {
    pub(crate) id: String,
    pub(crate) at_s: f64,
}

/// Milliseconds at which a share of all was done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Curve {
    pub(crate) count: u64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
    /// `[share, milliseconds]`, both rising.
    pub(crate) points: Vec<(f64, f64)>,
}

/// One second of the measured window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Second {
    /// After the start of the run, warm-up included.
    pub(crate) second: u64,
    pub(crate) answered: u64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

impl Curve {
    /// Of a histogram of microseconds.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        // Asked of nothing, a histogram answers 0, and that would read as a very fast server.
        if histogram.is_empty() {
            return Self::default();
        }
        let ms = |share: f64| histogram.value_at_quantile(share) as f64 / 1000.0;
        // Evenly spaced by how rare they are: what is interesting is at the far end.
        let shares = [0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 0.99999, 1.0];
        Self {
            count: histogram.len(),
            p50: ms(0.5),
            p90: ms(0.9),
            p99: ms(0.99),
            p999: ms(0.999),
            max: histogram.max() as f64 / 1000.0,
            points: shares.into_iter().map(|share| (share, ms(share))).collect(),
        }
    }
}

impl Compared {
    pub(crate) fn schema() -> String {
        let schema = schemars::schema_for!(Self);
        // A schema is a JSON value already, with text for keys.
        serde_json::to_string_pretty(&schema).unwrap_or_default()
    }
}
