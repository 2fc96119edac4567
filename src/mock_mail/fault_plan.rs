//! Who draws which fate.
//!
//! Promise: the draw by chance is a pure function of seed, idempotency key and arrival, so a run repeats itself.
//! It answers: which fault, if any, meets this mail?
//!
//! A fault set on a recipient decides first, then the queue, then chance. Faults meet mails that passed validation. One that
//! finds nothing to do, as a rejection of a mail that was sent already, is drawn but does not fire.

use std::{
    collections::{HashMap, VecDeque},
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;

use super::faults::{Fault, FaultName};

/// Entries that may wait in the queue.
const QUEUE_MAX: usize = 10_000;
/// Recipients that may be marked: every mail looks through them.
const RECIPIENTS_MAX: usize = 1_000;
/// Keys whose arrivals are counted, in each of two generations: about 16 MB. A key that was quiet for longer than that counts
/// from one again, which a draw by chance cannot tell.
const ARRIVALS_MAX: usize = 100_000;

/// A fault by chance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Rate {
    #[serde(flatten)]
    pub(super) fault: Fault,
    pub(super) probability: f64,
}

impl Rate {
    /// Reads `NAME:PROBABILITY` or `NAME:PROBABILITY:LATENCY_MS`.
    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut parts = text.splitn(3, ':');
        let name = parts.next().unwrap_or_default();
        let name = FaultName::parse(name).ok_or_else(|| anyhow::anyhow!("{text:?}: no fault is called {name:?}"))?;
        let probability = parts.next().and_then(|number| number.parse().ok());
        let latency_ms = parts.next().map(str::parse).transpose();
        let (Some(probability), Ok(latency_ms)) = (probability, latency_ms) else {
            anyhow::bail!("{text:?} is not NAME:PROBABILITY or NAME:PROBABILITY:LATENCY_MS");
        };
        Ok(Self { fault: Fault::new(name, latency_ms), probability })
    }
}

/// What is waiting to go wrong, and how likely the rest is to.
#[derive(Debug)]
pub(super) struct FaultPlan {
    state: Mutex<State>,
    /// The rates of the command line, which a reset returns to.
    at_start: Plan,
}

#[derive(Debug)]
struct State {
    plan: Plan,
    arrivals: Arrivals,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Plan {
    seed: u64,
    recipients: Vec<Marked>,
    queue: VecDeque<Queued>,
    rates: Vec<Rate>,
}

/// Every mail to this recipient meets the fault.
#[derive(Debug, Clone, Serialize)]
struct Marked {
    #[serde(flatten)]
    fault: Fault,
    to: Box<str>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Queued {
    #[serde(flatten)]
    fault: Fault,
    count: u32,
}

impl FaultPlan {
    pub(super) fn new(seed: u64, rates: &[String]) -> anyhow::Result<Self> {
        let mut at_start = Plan { seed, ..Plan::default() };
        for rate in rates {
            at_start.set_rate(Rate::parse(rate)?).map_err(anyhow::Error::msg)?;
        }
        let state = State { plan: at_start.clone(), arrivals: Arrivals::default() };
        Ok(Self { state: Mutex::new(state), at_start })
    }

    /// The fate of one arrival. The queue and the arrivals move on.
    pub(super) fn draw(&self, key: Option<&str>, to: &str) -> Option<Fault> {
        let mut state = self.lock();
        let State { plan, arrivals } = &mut *state;
        if let Some(marked) = plan.recipients.iter().find(|marked| *marked.to == *to) {
            return Some(marked.fault);
        }
        if let Some(queued) = plan.next_queued() {
            return Some(queued);
        }
        if plan.rates.is_empty() {
            return None;
        }
        // A mail without a key cannot be told from another one to the same recipient: each is a first arrival.
        let nth = key.map_or(1, |key| arrivals.count(key));
        plan.by_chance(key.unwrap_or(to), nth)
    }

    pub(super) fn enqueue(&self, fault: Fault, count: u32) -> Result<(), String> {
        let plan = &mut self.lock().plan;
        if plan.queue.len() >= QUEUE_MAX {
            return Err(format!("The queue holds {QUEUE_MAX} entries already."));
        }
        plan.queue.push_back(Queued { fault, count });
        Ok(())
    }

    pub(super) fn mark(&self, fault: Fault, to: String) -> Result<(), String> {
        let plan = &mut self.lock().plan;
        plan.recipients.retain(|marked| *marked.to != *to);
        if plan.recipients.len() >= RECIPIENTS_MAX {
            return Err(format!("{RECIPIENTS_MAX} recipients are marked already."));
        }
        plan.recipients.push(Marked { fault, to: to.into() });
        Ok(())
    }

    pub(super) fn set_rate(&self, rate: Rate) -> Result<(), String> {
        self.lock().plan.set_rate(rate)
    }

    /// No queue, no rates, no recipient marked.
    pub(super) fn clear(&self) {
        let plan = &mut self.lock().plan;
        *plan = Plan { seed: plan.seed, ..Plan::default() };
    }

    pub(super) fn reset(&self) {
        *self.lock() = State { plan: self.at_start.clone(), arrivals: Arrivals::default() };
    }

    pub(super) fn now(&self) -> Plan {
        self.lock().plan.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The plan is valid after every statement: a panicking holder leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plan {
    fn set_rate(&mut self, rate: Rate) -> Result<(), String> {
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

    fn next_queued(&mut self) -> Option<Fault> {
        let front = self.queue.front_mut()?;
        let fault = front.fault;
        front.count = front.count.saturating_sub(1);
        if front.count == 0 {
            self.queue.pop_front();
        }
        Some(fault)
    }

    /// A rejection is for good, so it is drawn by the key alone; every other fate belongs to one arrival.
    fn by_chance(&self, key: &str, nth: u32) -> Option<Fault> {
        let by_key = self.pick(unit_interval(self.seed, key, 0)).filter(|fault| fault.name == FaultName::Reject);
        by_key.or_else(|| self.pick(unit_interval(self.seed, key, nth)).filter(|fault| fault.name != FaultName::Reject))
    }

    fn pick(&self, mut point: f64) -> Option<Fault> {
        for rate in &self.rates {
            if point < rate.probability {
                return Some(rate.fault);
            }
            point -= rate.probability;
        }
        None
    }
}

/// How often a key has come, so that a fault can strike the first arrival and spare the retry.
#[derive(Debug, Default)]
struct Arrivals {
    young: HashMap<Box<str>, u32>,
    old: HashMap<Box<str>, u32>,
}

impl Arrivals {
    fn count(&mut self, key: &str) -> u32 {
        if let Some(count) = self.young.get_mut(key) {
            *count = count.saturating_add(1);
            return *count;
        }
        let count = self.old.get(key).map_or(1, |count| count.saturating_add(1));
        if self.young.len() >= ARRIVALS_MAX {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(key.into(), count);
        count
    }
}

/// A number in [0, 1) that depends on nothing but its arguments, on any machine and in any version: FNV-1a gathers the bytes,
/// the finaliser of MurmurHash3 spreads them over all bits.
fn unit_interval(seed: u64, key: &str, nth: u32) -> f64 {
    let bytes = seed.to_le_bytes().into_iter().chain(nth.to_le_bytes()).chain(key.bytes());
    let mut hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^= hash >> 33;
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rates: &[&str]) -> FaultPlan {
        let rates: Vec<String> = rates.iter().map(|rate| (*rate).to_owned()).collect();
        FaultPlan::new(1, &rates).expect("good rates")
    }

    fn drawn(plan: &FaultPlan, key: &str) -> Option<FaultName> {
        plan.draw(Some(key), "a@example.com").map(|fault| fault.name)
    }

    #[test]
    fn two_runs_with_one_seed_draw_the_same_and_rates_hit_as_often_as_they_say() {
        let fates = || {
            let plan = plan(&["drop_after:0.004", "http_500_after:0.1"]);
            (0..100_000).map(|serial| drawn(&plan, &format!("mail-{serial}"))).collect::<Vec<_>>()
        };
        let (one, other) = (fates(), fates());
        assert_eq!(one, other);
        let count = |name| one.iter().filter(|fate| **fate == Some(name)).count();
        assert!((300..500).contains(&count(FaultName::DropAfter)), "{}", count(FaultName::DropAfter));
        assert!((9_500..10_500).contains(&count(FaultName::Http500After)), "{}", count(FaultName::Http500After));
    }

    #[test]
    fn a_key_that_is_rejected_by_chance_is_rejected_every_time() {
        let plan = plan(&["reject:0.5"]);
        let keys: Vec<String> = (0..100).map(|serial| format!("mail-{serial}")).collect();
        let round = || keys.iter().map(|key| drawn(&plan, key)).collect::<Vec<_>>();
        let first = round();
        assert!((30..70).contains(&first.iter().flatten().count()));
        assert_eq!([round(), round()], [first.clone(), first]);
    }

    #[test]
    fn the_recipient_decides_before_the_queue_and_the_queue_before_chance() {
        let plan = plan(&["drop_before:1"]);
        plan.enqueue(Fault::new(FaultName::DropAfter, None), 1).expect("room");
        plan.mark(Fault::new(FaultName::Reject, None), "b@example.com".into()).expect("room");
        assert_eq!(plan.draw(Some("k"), "b@example.com").map(|fault| fault.name), Some(FaultName::Reject));
        assert_eq!([drawn(&plan, "k"), drawn(&plan, "k")], [Some(FaultName::DropAfter), Some(FaultName::DropBefore)]);
    }

    #[test]
    fn arrivals_are_forgotten_when_they_are_too_many() {
        let mut arrivals = Arrivals::default();
        assert_eq!([arrivals.count("a"), arrivals.count("a"), arrivals.count("b")], [1, 2, 1]);
        for serial in 0..2 * ARRIVALS_MAX + 1 {
            arrivals.count(&serial.to_string());
        }
        assert!(arrivals.young.len() + arrivals.old.len() <= 2 * ARRIVALS_MAX);
    }

    #[test]
    fn rates_that_exceed_certainty_or_name_nothing_are_refused() {
        for wrong in [&["drop_after:1.1"][..], &["nothing:0.1"], &["drop_after"], &["reject:0.6", "drop_after:0.6"]] {
            let rates: Vec<String> = wrong.iter().map(|rate| (*rate).to_owned()).collect();
            assert!(FaultPlan::new(1, &rates).is_err(), "{wrong:?}");
        }
    }
}
