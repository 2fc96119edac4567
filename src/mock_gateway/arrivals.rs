//! How often a key has come, so that a fault can strike the first arrival and spare the retry.
//!
//! Promise: bounded. Two generations of half a million keys each are kept; a key that was quiet for longer
//! than that counts from one again, which a draw by chance cannot tell and an experiment does not reach.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    mem,
    sync::Mutex,
};

/// Keys per generation and shard: 16 shards of two generations are about a million keys, 32 MB.
const GENERATION_MAX: usize = 32_768;
const SHARDS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Arrivals {
    hasher: RandomState,
    shards: [Mutex<Generations>; SHARDS],
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<u64, u32>,
    old: HashMap<u64, u32>,
}

impl Arrivals {
    /// Counts this arrival of the key and returns the count: 1 for the first.
    pub(super) fn count(&self, key: &str) -> u32 {
        let hash = self.hasher.hash_one(key);
        let mut shard = lock(&self.shards[hash as usize % SHARDS]);
        let before = match shard.young.get(&hash) {
            Some(count) => *count,
            None => shard.old.get(&hash).copied().unwrap_or(0),
        };
        let count = before.saturating_add(1);
        if shard.young.len() >= GENERATION_MAX {
            shard.old = mem::take(&mut shard.young);
        }
        shard.young.insert(hash, count);
        count
    }

    pub(super) fn reset(&self) {
        for shard in &self.shards {
            *lock(shard) = Generations::default();
        }
    }
}

/// A lock that a panicking holder cannot poison: the counts are valid after every statement.
fn lock(shard: &Mutex<Generations>) -> std::sync::MutexGuard<'_, Generations> {
    shard.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_counted_per_key_and_forgotten_when_they_are_too_many() {
        let arrivals = Arrivals::default();
        assert_eq!([arrivals.count("a"), arrivals.count("a"), arrivals.count("b")], [1, 2, 1]);
        for serial in 0..2 * GENERATION_MAX * SHARDS + 1 {
            arrivals.count(&serial.to_string());
        }
        let kept = |shard: &Mutex<Generations>| {
            let generations = lock(shard);
            generations.young.len() + generations.old.len()
        };
        let kept: usize = arrivals.shards.iter().map(kept).sum();
        assert!(kept <= 2 * GENERATION_MAX * SHARDS, "{kept}");
    }
}
