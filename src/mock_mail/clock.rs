//! The service's own time, which an experiment may push forward, and how long a key is honoured on it.
//!
//! It answers: how do 25 hours pass within a test?

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

/// How long a key is honoured, as in the dialect: a day.
const KEY_TTL_MS: i64 = 24 * 3_600_000;

#[derive(Debug)]
pub(super) struct Clock {
    advance_ms: AtomicI64,
    key_ttl_ms: AtomicI64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { advance_ms: 0.into(), key_ttl_ms: KEY_TTL_MS.into() }
    }
}

impl Clock {
    pub(super) fn now_ms(&self) -> i64 {
        // A machine whose clock stands before 1970 gets 1970: wrong, but never a panic.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX / 2) + self.advance_ms()
    }

    pub(super) fn advance_ms(&self) -> i64 {
        self.advance_ms.load(Ordering::Relaxed)
    }

    pub(super) fn advance(&self, s: u32) {
        self.advance_ms.fetch_add(i64::from(s) * 1000, Ordering::Relaxed);
    }

    pub(super) fn key_ttl_ms(&self) -> i64 {
        self.key_ttl_ms.load(Ordering::Relaxed)
    }

    pub(super) fn set_key_ttl_ms(&self, ms: i64) {
        self.key_ttl_ms.store(ms, Ordering::Relaxed);
    }

    pub(super) fn reset(&self) {
        self.advance_ms.store(0, Ordering::Relaxed);
        self.set_key_ttl_ms(KEY_TTL_MS);
    }
}
