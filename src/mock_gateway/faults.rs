//! The catalogue of misbehaviour, and who draws which fate.
//!
//! Promise: each name says where the money stands (`_before`: nothing was executed; `_after`: it was, and the answer is what
//! suffers), and the draw by chance is a pure function of seed, idempotency key and arrival, so a run repeats itself.
//! It answers: which fault, if any, meets this request?
//!
//! A request can ask for its fault itself (by payment method or metadata), else the queue decides, else chance.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::{Serialize, Serializer};

use super::arrivals::Arrivals;

/// Longest pause a fault may make: past every sane client's patience, and bounded.
pub(super) const LATENCY_MS_MAX: u64 = 600_000;
/// A pause nobody gave a length.
const LATENCY_MS_DEFAULT: u64 = 1_000;
/// Faults that may wait in the queue, all entries together counted once each.
const QUEUE_MAX: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultName {
    /// The port is closed for a while: connections are refused. Only the control plane can ask for it.
    Refuse,
    /// The key is in progress for a while, then the request executes.
    LatencyBefore,
    /// Unavailable. Nothing executed, nothing recorded.
    Http503Before,
    /// Too many requests. Nothing executed, nothing recorded.
    Http429Before,
    /// The execution fails: no money moves, and the 500 is recorded.
    Http500Before,
    /// The connection ends without a byte. Nothing executed.
    DropBefore,
    /// The money moves, and a 500 is recorded.
    Http500After,
    /// The answer comes late.
    LatencyAfter,
    /// The answer never comes, and the connection stays.
    HangAfter,
    /// The connection ends (FIN) without a byte of the answer.
    DropAfter,
    /// The connection is reset (RST) without a byte of the answer.
    RstAfter,
    /// Half of the answer comes, then the connection ends.
    TruncateAfter,
    /// The request executes whatever its key says, and nothing is recorded.
    IgnoreIdempotency,
}

impl FaultName {
    pub(super) const ALL: [Self; 13] = [
        Self::Refuse,
        Self::LatencyBefore,
        Self::Http503Before,
        Self::Http429Before,
        Self::Http500Before,
        Self::DropBefore,
        Self::Http500After,
        Self::LatencyAfter,
        Self::HangAfter,
        Self::DropAfter,
        Self::RstAfter,
        Self::TruncateAfter,
        Self::IgnoreIdempotency,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::LatencyBefore => "latency_before",
            Self::Http503Before => "http_503_before",
            Self::Http429Before => "http_429_before",
            Self::Http500Before => "http_500_before",
            Self::DropBefore => "drop_before",
            Self::Http500After => "http_500_after",
            Self::LatencyAfter => "latency_after",
            Self::HangAfter => "hang_after",
            Self::DropAfter => "drop_after",
            Self::RstAfter => "rst_after",
            Self::TruncateAfter => "truncate_after",
            Self::IgnoreIdempotency => "ignore_idempotency",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.name() == text)
    }
}

impl Serialize for FaultName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What will happen to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Fault {
    pub(super) name: FaultName,
    pub(super) latency_ms: u64,
}

impl Fault {
    pub(super) fn new(name: FaultName, latency_ms: Option<u64>) -> Self {
        Self { name, latency_ms: latency_ms.unwrap_or(LATENCY_MS_DEFAULT).min(LATENCY_MS_MAX) }
    }
}

/// What one arrival drew.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fate {
    pub(super) fault: Option<Fault>,
    pub(super) ignores_key: bool,
}

impl Fate {
    pub(super) fn is(&self, name: FaultName) -> bool {
        self.fault.is_some_and(|fault| fault.name == name)
    }
}

/// A fault the request asked for itself, as `drop_after`, `drop_after_always`, `latency_after_800` or `latency_after:800`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) fault: Fault,
    /// Otherwise it strikes the first arrival of its key only, and the retry gets through.
    pub(super) always: bool,
}

impl Asked {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (text, always) = match text.strip_suffix("_always") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let digits = text.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (name, latency_ms) = text.split_at(text.len() - digits);
        let latency_ms = if digits == 0 { None } else { Some(latency_ms.parse().ok()?) };
        let name = if digits == 0 { name } else { name.strip_suffix(['_', ':'])? };
        match FaultName::parse(name)? {
            FaultName::Refuse => None,
            name => Some(Self { fault: Fault::new(name, latency_ms), always }),
        }
    }
}

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
    plan: Mutex<Plan>,
    /// The rates of the command line, which a reset returns to.
    at_start: Plan,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Plan {
    seed: u64,
    ignore_idempotency_keys: bool,
    queue: VecDeque<Queued>,
    rates: Vec<Rate>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Queued {
    #[serde(flatten)]
    fault: Fault,
    count: u32,
}

impl FaultPlan {
    pub(super) fn new(seed: u64, ignore_idempotency_keys: bool, rates: &[String]) -> anyhow::Result<Self> {
        let mut at_start = Plan { seed, ignore_idempotency_keys, ..Plan::default() };
        for rate in rates {
            at_start.set_rate(Rate::parse(rate)?).map_err(anyhow::Error::msg)?;
        }
        Ok(Self { plan: Mutex::new(at_start.clone()), at_start })
    }

    /// The fate of one arrival. The queue and the arrivals move on.
    pub(super) fn draw(&self, key: Option<&str>, asked: Option<Asked>, arrivals: &Arrivals) -> Fate {
        let mut plan = self.lock();
        if asked.is_none() && plan.queue.is_empty() && plan.rates.is_empty() {
            return Fate { fault: None, ignores_key: plan.ignore_idempotency_keys };
        }
        // A request without a key cannot be told from another one: each is a first arrival.
        let nth = key.map_or(1, |key| arrivals.count(key));
        let fault = asked
            .filter(|asked| asked.always || nth == 1)
            .map(|asked| asked.fault)
            .or_else(|| plan.next_queued())
            .or_else(|| plan.by_chance(key.unwrap_or_default(), nth));
        let ignores_key =
            plan.ignore_idempotency_keys || fault.is_some_and(|fault| fault.name == FaultName::IgnoreIdempotency);
        Fate { fault, ignores_key }
    }

    pub(super) fn enqueue(&self, fault: Fault, count: u32) -> Result<(), String> {
        let mut plan = self.lock();
        if plan.queue.len() >= QUEUE_MAX {
            return Err(format!("The queue holds {QUEUE_MAX} entries already."));
        }
        plan.queue.push_back(Queued { fault, count });
        Ok(())
    }

    pub(super) fn set_rate(&self, rate: Rate) -> Result<(), String> {
        self.lock().set_rate(rate)
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
    fn set_rate(&mut self, rate: Rate) -> Result<(), String> {
        let name = rate.fault.name;
        if name == FaultName::Refuse {
            return Err("refuse closes the port for latency_ms: it cannot be drawn by chance.".into());
        }
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

    fn by_chance(&self, key: &str, nth: u32) -> Option<Fault> {
        let mut point = unit_interval(self.seed, key, nth);
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
