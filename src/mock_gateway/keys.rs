//! The idempotency layer: what a key means, and which keys are being worked on.
//!
//! Promise: keys belong to the account, not to an endpoint; a key is bound to the first request that executed under it; what
//! is recorded is the answer once execution began, success or failure.
//! It answers: run, replay, or refuse?
//!
//! Keys in progress live in this process alone. One process owns the books, so a kill frees them all by itself.

use std::{
    borrow::Cow,
    collections::{HashSet, hash_map::RandomState},
    hash::BuildHasher,
    sync::{Mutex, MutexGuard, PoisonError},
};

use sha2::{Digest, Sha256};

use super::{books::Recorded, form::Form};

/// The dialect's limit on a key, in characters.
pub(super) const KEY_LENGTH_MAX: usize = 255;

/// A request under a key, reduced to what must match when the key comes again.
#[derive(Debug, Clone)]
pub(super) struct Keyed {
    pub(super) key: Box<str>,
    pub(super) path: Cow<'static, str>,
    pub(super) fingerprint: [u8; 32],
}

/// Over decoded and sorted pairs: clients differ in how they write a space and in what order they send fields, and mean the same.
pub(super) fn fingerprint(method: &str, path: &str, form: &Form<'_>) -> [u8; 32] {
    let mut pairs: Vec<(&str, &str)> = form.pairs().collect();
    pairs.sort_unstable();
    let mut digest = Sha256::new();
    let texts = [method, path].into_iter().chain(pairs.into_iter().flat_map(|(name, value)| [name, value]));
    for text in texts {
        // Each part carries its length, so that no two lists of parts read the same.
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text);
    }
    digest.finalize().into()
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// The record is too old to be honoured: as if the key were new.
    Run,
    Replay,
    OtherParameters,
    OtherEndpoint,
}

pub(super) fn judge(recorded: &Recorded, asked: &Keyed, now_ms: i64, key_ttl_ms: i64) -> Judgement {
    if now_ms >= recorded.at_ms.saturating_add(key_ttl_ms) {
        Judgement::Run
    } else if recorded.path != asked.path {
        Judgement::OtherEndpoint
    } else if recorded.fingerprint != asked.fingerprint {
        Judgement::OtherParameters
    } else {
        Judgement::Replay
    }
}

const SHARDS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct InProgress {
    hasher: RandomState,
    shards: [Mutex<HashSet<Box<str>>>; SHARDS],
}

/// This key is ours until dropped, however the execution ends.
#[derive(Debug)]
pub(super) struct Held<'a> {
    shard: &'a Mutex<HashSet<Box<str>>>,
    key: &'a str,
}

impl InProgress {
    /// `None` when another request holds the key.
    pub(super) fn hold<'a>(&'a self, key: &'a str) -> Option<Held<'a>> {
        let shard = &self.shards[self.hasher.hash_one(key) as usize % SHARDS];
        // Lazily: a `Held` made and thrown away would let go of somebody else's key.
        lock(shard).insert(key.into()).then(|| Held { shard, key })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        lock(self.shard).remove(self.key);
    }
}

fn lock<'a>(shard: &'a Mutex<HashSet<Box<str>>>) -> MutexGuard<'a, HashSet<Box<str>>> {
    // A set is valid after every statement: a panicking holder leaves nothing half done.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
