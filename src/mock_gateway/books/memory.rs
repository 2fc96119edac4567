//! The books in memory: a few maps behind two kinds of locks.
//!
//! Promise: every call costs about a microsecond and never waits for anything but its lock. The books only grow.

use std::{
    collections::{BTreeMap, HashMap, hash_map::RandomState},
    hash::BuildHasher,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Capture, Commit, Committed, IntentRange, KeyWrite, Note, Recorded};
use crate::mock_gateway::{
    clock::{ChargeId, IntentId},
    object::{Charge, Intent},
};

const SHARDS: usize = 32;

#[derive(Debug, Default)]
pub(super) struct MemoryBooks {
    hasher: RandomState,
    keys: [Mutex<HashMap<Box<str>, KeyEntry>>; SHARDS],
    objects: Mutex<Objects>,
}

#[derive(Debug, Default)]
struct KeyEntry {
    executions: u32,
    replays: u32,
    recorded: Option<Recorded>,
}

/// Ordered by name, which is by creation. One lock: it is held for about a microsecond per payment.
#[derive(Debug, Default)]
struct Objects {
    intents: BTreeMap<IntentId, (Arc<Intent>, Vec<Arc<Charge>>)>,
    owners: HashMap<ChargeId, IntentId>,
    /// By hash of name and value; readers compare the note itself.
    notes: HashMap<u64, Vec<IntentId>>,
}

impl MemoryBooks {
    pub(super) fn recorded(&self, key: &str) -> Option<Recorded> {
        self.shard(key).get(key)?.recorded.clone()
    }

    pub(super) fn count_replay(&self, key: &str) {
        if let Some(entry) = self.shard(key).get_mut(key) {
            entry.replays += 1;
        }
    }

    /// The objects first: whoever reads the key sees what it recorded. Nobody else writes this key meanwhile.
    pub(super) fn commit(&self, commit: Commit) -> Committed {
        if let Some(intent) = commit.intent
            && self.objects().write(&self.hasher, intent, commit.charge) == Committed::Stale
        {
            return Committed::Stale;
        }
        if let Some(KeyWrite { keyed, record }) = commit.key {
            let mut shard = self.shard(&keyed.key);
            let entry = match shard.get_mut(&keyed.key) {
                Some(entry) => entry,
                None => shard.entry(keyed.key.clone()).or_default(),
            };
            entry.executions += 1;
            if let Some((request_id, at_ms, answer)) = record {
                let (path, fingerprint) = (keyed.path, keyed.fingerprint);
                entry.recorded = Some(Recorded { path, fingerprint, request_id, at_ms, answer });
            }
        }
        Committed::Done
    }

    pub(super) fn intent(&self, id: IntentId) -> Option<Arc<Intent>> {
        self.objects().intents.get(&id).map(|(intent, _)| Arc::clone(intent))
    }

    pub(super) fn intents(&self, range: IntentRange, limit: usize) -> Vec<Arc<Intent>> {
        if range.from >= range.below {
            return Vec::new();
        }
        let objects = self.objects();
        let newest = objects.intents.range(range.from..range.below).rev();
        newest.take(limit).map(|(_, (intent, _))| Arc::clone(intent)).collect()
    }

    pub(super) fn noted(&self, note: &Note, below: IntentId, limit: usize) -> Vec<Arc<Intent>> {
        let objects = self.objects();
        let noted = objects.noted(&self.hasher, note);
        noted.into_iter().rev().filter(|intent| intent.id < below).take(limit).collect()
    }

    pub(super) fn charge(&self, id: ChargeId) -> Option<Arc<Charge>> {
        let objects = self.objects();
        let (_, charges) = objects.intents.get(objects.owners.get(&id)?)?;
        charges.iter().find(|charge| charge.id == id).cloned()
    }

    pub(super) fn charges(&self, intent: IntentId) -> Vec<Arc<Charge>> {
        let objects = self.objects();
        objects.intents.get(&intent).map(|(_, charges)| charges.iter().rev().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn captures(&self, after: IntentId, limit: usize, reference: Option<&str>) -> Vec<Capture> {
        let captured: Vec<Arc<Intent>> = match reference {
            Some(reference) => self.objects().referring(&self.hasher, reference, after, limit),
            None => {
                let objects = self.objects();
                let later = objects.intents.range((Bound::Excluded(after), Bound::Unbounded));
                let intents = later.map(|(_, (intent, _))| intent);
                intents.filter(|intent| intent.captured()).take(limit).cloned().collect()
            }
        };
        captured.iter().map(|intent| self.capture(intent)).collect()
    }

    pub(super) fn reset(&self) {
        for shard in &self.keys {
            lock(shard).clear();
        }
        *self.objects() = Objects::default();
    }

    fn capture(&self, intent: &Intent) -> Capture {
        let key = intent.captured_by.as_deref();
        let counts = key.and_then(|key| self.shard(key).get(key).map(|entry| (entry.executions, entry.replays)));
        // Without a key, this execution is the only one that can be told to be its own.
        let (executions, replays) = counts.unwrap_or((1, 0));
        Capture {
            payment_intent: intent.id,
            idempotency_key: intent.captured_by.clone(),
            reference: intent.metadata.reference().map(Into::into),
            amount: intent.amount,
            currency: intent.currency.code().into(),
            amount_refunded: 0,
            executions: executions.into(),
            replays: replays.into(),
            created: intent.id.created_ms() / 1000,
        }
    }

    fn shard(&self, key: &str) -> MutexGuard<'_, HashMap<Box<str>, KeyEntry>> {
        lock(&self.keys[self.hasher.hash_one(key) as usize % SHARDS])
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        lock(&self.objects)
    }
}

impl Objects {
    fn write(&mut self, hasher: &RandomState, intent: Arc<Intent>, charge: Option<Arc<Charge>>) -> Committed {
        let id = intent.id;
        let charges = match self.intents.get_mut(&id) {
            Some((before, charges)) if before.version + 1 == intent.version => {
                *before = intent;
                charges
            }
            None if intent.version == 1 => {
                for (name, value) in intent.metadata.iter() {
                    self.notes.entry(hasher.hash_one((name, value))).or_default().push(id);
                }
                &mut self.intents.entry(id).or_insert_with(|| (intent, Vec::new())).1
            }
            _ => return Committed::Stale,
        };
        if let Some(charge) = charge {
            self.owners.insert(charge.id, id);
            charges.push(charge);
        }
        Committed::Done
    }

    /// Oldest first.
    fn noted(&self, hasher: &RandomState, note: &Note) -> Vec<Arc<Intent>> {
        let ids = self.notes.get(&hasher.hash_one((&*note.name, &*note.value))).map_or(&[][..], Vec::as_slice);
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        let intents = ids.iter().filter_map(|id| self.intents.get(id)).map(|(intent, _)| intent);
        intents.filter(|intent| intent.metadata.get(&note.name) == Some(&*note.value)).cloned().collect()
    }

    fn referring(&self, hasher: &RandomState, reference: &str, after: IntentId, limit: usize) -> Vec<Arc<Intent>> {
        let mut found: Vec<_> = ["reference", "order_id"]
            .into_iter()
            .flat_map(|name| self.noted(hasher, &Note { name: name.into(), value: reference.into() }))
            .filter(|intent| intent.captured() && intent.id > after && intent.metadata.reference() == Some(reference))
            .collect();
        found.sort_unstable_by_key(|intent| intent.id);
        found.dedup_by_key(|intent| intent.id);
        found.truncate(limit);
        found
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic between two statements of a writer would be a bug of ours; the books stay readable to show it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
