//! Who draws which fate.
//!
//! Promise: the draw by chance is a pure function of seed, idempotency key and arrival, so a run repeats itself.
//! It answers: which fault, if any, meets this request, or this event?
//!
//! A request can ask for its fault itself (by payment method or metadata), else the queue decides, else chance. Faults meet
//! POSTs that passed validation. One that finds nothing to do, as a failing execution on a replay, is drawn but does not fire.
//! Events have a queue and rates of their own.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;

use super::{
    arrivals::Arrivals,
    events::Event,
    faults::{Asked, Fate, Fault, FaultName, Misbehaviour, WebhookFaultName},
};

/// Entries that may wait in the queue.
const QUEUE_MAX: usize = 10_000;

/// A fault by chance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Rate<N = FaultName> {
    #[serde(flatten)]
    pub(super) fault: Fault<N>,
    pub(super) probability: f64,
}

/// A fault by its name alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    OfRequests(FaultName),
    OfEvents(WebhookFaultName),
}

impl Named {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let of_events = || WebhookFaultName::parse(text).map(Self::OfEvents);
        FaultName::parse(text).map(Self::OfRequests).or_else(of_events)
    }
}

impl Plan {
    /// Reads `NAME:PROBABILITY` or `NAME:PROBABILITY:LATENCY_MS`.
    fn read_rate(&mut self, text: &str) -> anyhow::Result<()> {
        let mut parts = text.splitn(3, ':');
        let name = parts.next().unwrap_or_default();
        let name = Named::parse(name).ok_or_else(|| anyhow::anyhow!("{text:?}: no fault is called {name:?}"))?;
        let probability = parts.next().and_then(|number| number.parse().ok());
        let latency_ms = parts.next().map(str::parse).transpose();
        let (Some(probability), Ok(latency_ms)) = (probability, latency_ms) else {
            anyhow::bail!("{text:?} is not NAME:PROBABILITY or NAME:PROBABILITY:LATENCY_MS");
        };
        self.set_rate(name, latency_ms, probability).map_err(anyhow::Error::msg)
    }
}

/// What is waiting to go wrong, and how likely the rest is to.
#[derive(Debug)]
pub(super) struct FaultPlan {
    plan: Mutex<Plan>,
    /// The rates of the command line, which a reset returns to.
    at_start: Plan,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Plan {
    seed: u64,
    ignore_idempotency_keys: bool,
    /// What meets requests.
    #[serde(flatten)]
    requests: Draws<FaultName>,
    /// What meets events.
    webhooks: Draws<WebhookFaultName>,
}

/// By count, then by chance, for one kind of fault.
#[derive(Debug, Clone, Serialize)]
struct Draws<N> {
    queue: VecDeque<Queued<N>>,
    rates: Vec<Rate<N>>,
}

impl<N> Default for Draws<N> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), rates: Vec::new() }
    }
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Queued<N> {
    #[serde(flatten)]
    fault: Fault<N>,
    count: u32,
}

impl FaultPlan {
    pub(super) fn new(seed: u64, ignore_idempotency_keys: bool, rates: &[String]) -> anyhow::Result<Self> {
        let mut at_start = Plan { seed, ignore_idempotency_keys, ..Plan::default() };
        for rate in rates {
            at_start.read_rate(rate)?;
        }
        Ok(Self { plan: Mutex::new(at_start.clone()), at_start })
    }

    /// The fate of one arrival. The queue and the arrivals move on.
    pub(super) fn draw(&self, key: Option<&str>, asked: Option<Asked>, arrivals: &Arrivals) -> Fate {
        let mut plan = self.lock();
        if asked.is_none() && plan.requests.is_empty() {
            return Fate { fault: None, ignores_key: plan.ignore_idempotency_keys };
        }
        // A request without a key cannot be told from another one: each is a first arrival.
        let nth = key.map_or(1, |key| arrivals.count(key));
        let fault = asked
            .filter(|asked| asked.always || nth == 1)
            .map(|asked| asked.fault)
            .or_else(|| plan.requests.next_queued())
            .or_else(|| plan.requests.by_chance(plan.seed, key.unwrap_or_default(), nth));
        let ignores_key =
            plan.ignore_idempotency_keys || fault.is_some_and(|fault| fault.name == FaultName::IgnoreIdempotency);
        Fate { fault, ignores_key }
    }

    /// The fate of one event. An event has no arrivals: it happens once, under the key of the request that caused it.
    pub(super) fn draw_for_event(&self, event: &Event) -> Option<Fault<WebhookFaultName>> {
        let mut plan = self.lock();
        if plan.webhooks.is_empty() {
            return None;
        }
        let cause = format!("{} {}", event.kind.name(), event.key.as_deref().unwrap_or_default());
        plan.webhooks.next_queued().or_else(|| plan.webhooks.by_chance(plan.seed, &cause, 1))
    }

    pub(super) fn enqueue(&self, name: Named, latency_ms: Option<u64>, count: u32) -> Result<(), String> {
        let mut plan = self.lock();
        match name {
            Named::OfRequests(name) => plan.requests.enqueue(Fault::new(name, latency_ms), count),
            Named::OfEvents(name) => plan.webhooks.enqueue(Fault::new(name, latency_ms), count),
        }
    }

    pub(super) fn set_rate(&self, name: Named, latency_ms: Option<u64>, probability: f64) -> Result<(), String> {
        self.lock().set_rate(name, latency_ms, probability)
    }

    pub(super) fn set_seed(&self, seed: u64) {
        self.lock().seed = seed;
    }

    pub(super) fn set_ignore_idempotency_keys(&self, ignore: bool) {
        self.lock().ignore_idempotency_keys = ignore;
    }

    /// No queue, no rates, keys respected.
    pub(super) fn clear(&self) {
        let mut plan = self.lock();
        *plan = Plan { seed: plan.seed, ..Plan::default() };
    }

    pub(super) fn reset(&self) {
        *self.lock() = self.at_start.clone();
    }

    pub(super) fn now(&self) -> Plan {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Plan> {
        // The plan is valid after every statement: a panicking holder leaves nothing half done.
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plan {
    fn set_rate(&mut self, name: Named, latency_ms: Option<u64>, probability: f64) -> Result<(), String> {
        match name {
            Named::OfRequests(FaultName::Refuse) => {
                Err("refuse closes the port for latency_ms: it cannot be drawn by chance.".into())
            }
            Named::OfRequests(name) => {
                self.requests.set_rate(Rate { fault: Fault::new(name, latency_ms), probability })
            }
            Named::OfEvents(name) => self.webhooks.set_rate(Rate { fault: Fault::new(name, latency_ms), probability }),
        }
    }
}

impl<N: Misbehaviour> Draws<N> {
    fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.rates.is_empty()
    }

    fn enqueue(&mut self, fault: Fault<N>, count: u32) -> Result<(), String> {
        if self.queue.len() >= QUEUE_MAX {
            return Err(format!("The queue holds {QUEUE_MAX} entries already."));
        }
        self.queue.push_back(Queued { fault, count });
        Ok(())
    }

    fn set_rate(&mut self, rate: Rate<N>) -> Result<(), String> {
        let name = rate.fault.name;
        if !(0.0..=1.0).contains(&rate.probability) {
            return Err(format!("The probability of {} must lie between 0 and 1.", name.name()));
        }
        let others: f64 =
            self.rates.iter().filter(|other| other.fault.name != name).map(|other| other.probability).sum();
        if others + rate.probability > 1.0 + f64::EPSILON {
            return Err(format!("With {} all probabilities together exceed 1.", name.name()));
        }
        self.rates.retain(|other| other.fault.name != name);
        if rate.probability > 0.0 {
            self.rates.push(rate);
        }
        Ok(())
    }

    fn next_queued(&mut self) -> Option<Fault<N>> {
        let front = self.queue.front_mut()?;
        let fault = front.fault;
        front.count = front.count.saturating_sub(1);
        if front.count == 0 {
            self.queue.pop_front();
        }
        Some(fault)
    }

    fn by_chance(&self, seed: u64, key: &str, nth: u32) -> Option<Fault<N>> {
        let mut point = unit_interval(seed, key, nth);
        for rate in &self.rates {
            if point < rate.probability {
                return Some(rate.fault);
            }
            point -= rate.probability;
        }
        None
    }
}

/// A number in [0, 1) that depends on nothing but its arguments, on any machine and in any version.
pub(super) fn unit_interval(seed: u64, key: &str, nth: u32) -> f64 {
    let bytes = seed.to_le_bytes().into_iter().chain(key.bytes()).chain(nth.to_le_bytes());
    // FNV-1a gathers the bytes; the finaliser of SplitMix64 spreads them over all bits.
    let mut hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rates: &[&str]) -> FaultPlan {
        let rates: Vec<String> = rates.iter().map(|rate| (*rate).to_owned()).collect();
        FaultPlan::new(1, false, &rates).expect("good rates")
    }

    fn drawn(plan: &FaultPlan, key: &str, arrivals: &Arrivals) -> Option<FaultName> {
        plan.draw(Some(key), None, arrivals).fault.map(|fault| fault.name)
    }

    #[test]
    fn a_draw_depends_on_seed_key_and_arrival_and_on_nothing_else() {
        let draws =
            [(1, "k", 1), (2, "k", 1), (1, "l", 1), (1, "k", 2)].map(|(seed, key, nth)| unit_interval(seed, key, nth));
        assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)));
        assert!(draws[1..].iter().all(|draw| *draw != draws[0]));
        // A change here changes the fate of every run on record.
        assert_eq!(unit_interval(1, "k", 1), 0.022497485820728413);
    }

    #[test]
    fn rates_hit_as_often_as_they_say_and_add_up() {
        let (plan, arrivals) = (plan(&["drop_after:0.004", "rst_after:0.1"]), Arrivals::default());
        let fates: Vec<_> = (0..100_000).map(|serial| drawn(&plan, &format!("order-{serial}"), &arrivals)).collect();
        let count = |name| fates.iter().filter(|fate| **fate == Some(name)).count();
        assert!((300..500).contains(&count(FaultName::DropAfter)), "{}", count(FaultName::DropAfter));
        assert!((9_500..10_500).contains(&count(FaultName::RstAfter)), "{}", count(FaultName::RstAfter));
    }

    #[test]
    fn the_request_decides_before_the_queue_and_the_queue_before_chance() {
        let (plan, arrivals) = (plan(&["rst_after:1"]), Arrivals::default());
        plan.enqueue(Named::OfRequests(FaultName::DropAfter), None, 1).expect("room");
        plan.enqueue(Named::OfEvents(WebhookFaultName::Drop), None, 1).expect("room of its own");
        let asked = Asked::parse("truncate_after");
        let first = plan.draw(Some("k"), asked, &arrivals).fault.map(|fault| fault.name);
        assert_eq!(first, Some(FaultName::TruncateAfter));
        assert_eq!(drawn(&plan, "k", &arrivals), Some(FaultName::DropAfter));
        assert_eq!(drawn(&plan, "k", &arrivals), Some(FaultName::RstAfter));
    }

    #[test]
    fn a_rate_replaces_its_predecessor_and_zero_removes_it() {
        let plan = plan(&["rst_after:0.9"]);
        let name = Named::OfRequests(FaultName::RstAfter);
        plan.set_rate(name, None, 1.0).expect("it replaces 0.9");
        plan.set_rate(name, None, 0.0).expect("it removes 1.0");
        assert_eq!(drawn(&plan, "k", &Arrivals::default()), None);
    }
}
