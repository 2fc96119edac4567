//! The gateway's own time, which an experiment may push forward, and the names made from it.
//!
//! Promise: names sort by the time of creation they carry, so a window of time is a range of names, in memory and in an index.
//! It answers: how do 25 hours pass within a test, and how does a list know what is newest?

use std::{
    fmt,
    sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Serialize, Serializer};

/// How long a key is honoured, as in the dialect: at least a day.
const KEY_TTL_MS: i64 = 24 * 3_600_000;
/// Days at a bank; here long enough to see both states.
const REFUND_ENDS_MS: u64 = 1_000;

#[derive(Debug)]
pub(super) struct Clock {
    advance_ms: AtomicI64,
    key_ttl_ms: AtomicI64,
    search_lag_ms: AtomicI64,
    refund_ends_ms: AtomicU64,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            advance_ms: 0.into(),
            key_ttl_ms: KEY_TTL_MS.into(),
            search_lag_ms: 0.into(),
            refund_ends_ms: REFUND_ENDS_MS.into(),
        }
    }
}

impl Clock {
    pub(super) fn now_ms(&self) -> i64 {
        // A machine whose clock stands before 1970 gets 1970: wrong, but never a panic.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX / 2) + self.advance_ms()
    }

    /// What the clock on the wall says, whatever the experiment.
    pub(super) fn wall_ms(&self) -> i64 {
        self.now_ms() - self.advance_ms()
    }

    pub(super) fn advance_ms(&self) -> i64 {
        self.advance_ms.load(Ordering::Relaxed)
    }

    /// Time only moves forward: names must keep sorting by it.
    pub(super) fn advance(&self, s: u32) {
        self.advance_ms.fetch_add(i64::from(s) * 1000, Ordering::Relaxed);
    }

    /// How long a recorded answer is replayed.
    pub(super) fn key_ttl_ms(&self) -> i64 {
        self.key_ttl_ms.load(Ordering::Relaxed)
    }

    pub(super) fn set_key_ttl_ms(&self, ms: i64) {
        self.key_ttl_ms.store(ms, Ordering::Relaxed);
    }

    /// How far search lags behind the books: search is eventually consistent, the other lookups are not.
    pub(super) fn search_lag_ms(&self) -> i64 {
        self.search_lag_ms.load(Ordering::Relaxed)
    }

    pub(super) fn set_search_lag_ms(&self, ms: i64) {
        self.search_lag_ms.store(ms, Ordering::Relaxed);
    }

    /// How long the card of a refund that is not over at once takes to end it, by the clock on the wall.
    pub(super) fn refund_ends(&self) -> Duration {
        Duration::from_millis(self.refund_ends_ms.load(Ordering::Relaxed))
    }

    pub(super) fn set_refund_ends(&self, after: Duration) {
        self.refund_ends_ms.store(u64::try_from(after.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn reset(&self) {
        let start = Self::default();
        self.advance_ms.store(start.advance_ms(), Ordering::Relaxed);
        self.set_key_ttl_ms(start.key_ttl_ms());
        self.set_search_lag_ms(start.search_lag_ms());
        self.set_refund_ends(start.refund_ends());
    }
}

/// Mints names: 48 bits of milliseconds, 32 bits that count, 48 bits that differ per process.
#[derive(Debug)]
pub(super) struct Names {
    process: u64,
    counter: AtomicU32,
}

impl Names {
    pub(super) fn new() -> Self {
        Self { process: rand::random::<u64>() >> 16, counter: AtomicU32::new(0) }
    }

    pub(super) fn mint(&self, now_ms: i64) -> u128 {
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        first_name_at(now_ms) | (u128::from(count) << 48) | u128::from(self.process)
    }

    /// Names one HTTP request.
    pub(super) fn request(&self) -> String {
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        format!("req_{count:08x}{:012x}", self.process)
    }
}

/// The smallest name that a thing created in this millisecond can have.
pub(super) fn first_name_at(ms: i64) -> u128 {
    let ms = u128::from(ms.clamp(0, (1 << 48) - 1).unsigned_abs());
    ms << 80
}

fn created_ms(name: u128) -> i64 {
    // 48 bits always fit.
    i64::try_from(name >> 80).unwrap_or(i64::MAX)
}

/// What the names of every kind of thing have in common: enough to page through them.
pub(super) trait Name: Copy {
    /// The dialect's word for the thing.
    const THING: &'static str;
    fn of(number: u128) -> Self;
    fn number(self) -> u128;
    fn read(text: &str) -> Option<Self>;
}

macro_rules! named {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $thing:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(super) struct $name(pub(super) u128);

        impl $name {
            pub(super) fn parse(text: &str) -> Option<Self> {
                let hex = text.strip_prefix($prefix)?;
                let lower = hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
                (hex.len() == 32 && lower).then(|| u128::from_str_radix(hex, 16).ok())?.map(Self)
            }

            pub(super) fn created_ms(self) -> i64 {
                created_ms(self.0)
            }
        }

        impl Name for $name {
            const THING: &'static str = $thing;

            fn of(number: u128) -> Self {
                Self(number)
            }

            fn number(self) -> u128 {
                self.0
            }

            fn read(text: &str) -> Option<Self> {
                Self::parse(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{:032x}"), self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}

named! {
    /// A payment intent's name, `pi_…`.
    IntentId, "pi_", "payment_intent"
}
named! {
    /// A charge's name, `ch_…`.
    ChargeId, "ch_", "charge"
}
named! {
    /// A refund's name, `re_…`.
    RefundId, "re_", "refund"
}
named! {
    /// An event's name, `evt_…`.
    EventId, "evt_", "event"
}
