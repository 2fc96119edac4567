//! The books in memory: a few maps behind two kinds of locks.
//!
//! Promise: every call costs about a microsecond and never waits for anything but its lock. The books only grow, but for the
//! events, of which they keep the latest.

use std::{
    collections::{BTreeMap, HashMap, hash_map::RandomState},
    hash::BuildHasher,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Capture, Change, Commit, Committed, KeyWrite, Note, Recorded, event_log::EventLog};
use crate::mock_gateway::{
    clock::{ChargeId, EventId, IntentId, RefundId},
    events::{Event, EventKind, KeptEvent},
    object::{Charge, Intent, Refund},
    paging::Window,
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
    refunds: BTreeMap<RefundId, Arc<Refund>>,
    /// Oldest first.
    refunds_of: HashMap<IntentId, Vec<Arc<Refund>>>,
    events: EventLog,
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
        if let Some(change) = commit.change
            && self.objects().write(&self.hasher, change, commit.event) == Committed::Stale
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

    pub(super) fn intents(&self, window: Window<IntentId>, limit: usize) -> Vec<Arc<Intent>> {
        let objects = self.objects();
        window.of(&objects.intents).take(limit).map(|(intent, _)| Arc::clone(intent)).collect()
    }

    pub(super) fn noted(&self, note: &Note, below: IntentId, limit: usize) -> Vec<Arc<Intent>> {
        let objects = self.objects();
        let noted = objects.noted(&self.hasher, note);
        noted.into_iter().rev().filter(|intent| intent.id < below).take(limit).collect()
    }

    pub(super) fn charge(&self, id: ChargeId) -> Option<Arc<Charge>> {
        self.objects().charge(id).cloned()
    }

    pub(super) fn charges(&self, intent: IntentId) -> Vec<Arc<Charge>> {
        let objects = self.objects();
        objects.intents.get(&intent).map(|(_, charges)| charges.iter().rev().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn captures(&self, after: IntentId, limit: usize, reference: Option<&str>) -> Vec<Capture> {
        let captured: Vec<(Arc<Intent>, i64)> = match reference {
            Some(reference) => self.objects().referring(&self.hasher, reference, after, limit),
            None => {
                let objects = self.objects();
                let later = objects.intents.range((Bound::Excluded(after), Bound::Unbounded));
                let captured = later.filter(|(_, (intent, _))| intent.captured());
                captured.take(limit).map(|(_, (intent, charges))| (Arc::clone(intent), refunded(charges))).collect()
            }
        };
        captured.iter().map(|(intent, amount_refunded)| self.capture(intent, *amount_refunded)).collect()
    }

    pub(super) fn charges_named(&self, ids: &[ChargeId]) -> Vec<Arc<Charge>> {
        let objects = self.objects();
        ids.iter().filter_map(|id| objects.charge(*id)).cloned().collect()
    }

    pub(super) fn refund(&self, id: RefundId) -> Option<Arc<Refund>> {
        self.objects().refunds.get(&id).cloned()
    }

    pub(super) fn refunds(&self, intent: Option<IntentId>, window: Window<RefundId>, limit: usize) -> Vec<Arc<Refund>> {
        let objects = self.objects();
        let found = match intent {
            None => window.of(&objects.refunds),
            Some(intent) => {
                let of_intent = objects.refunds_of.get(&intent).map_or(&[][..], Vec::as_slice);
                window.among(of_intent.iter(), |refund| refund.id)
            }
        };
        found.take(limit).cloned().collect()
    }

    pub(super) fn event(&self, id: EventId) -> Option<KeptEvent> {
        self.objects().events.one(id)
    }

    pub(super) fn events(&self, kinds: &[EventKind], window: Window<EventId>, limit: usize) -> Vec<KeptEvent> {
        self.objects().events.list(kinds, window, limit)
    }

    pub(super) fn pending_events(&self, limit: usize) -> Vec<Arc<Event>> {
        self.objects().events.pending(limit)
    }

    pub(super) fn count_pending_events(&self) -> u64 {
        self.objects().events.count_pending() as u64
    }

    pub(super) fn settle_events(&self, ids: &[EventId]) {
        self.objects().events.settle(ids);
    }

    pub(super) fn settle_all_events(&self) {
        self.objects().events.settle_all();
    }

    pub(super) fn reset(&self) {
        for shard in &self.keys {
            lock(shard).clear();
        }
        *self.objects() = Objects::default();
    }

    fn capture(&self, intent: &Intent, amount_refunded: i64) -> Capture {
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
            amount_refunded,
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
    fn write(&mut self, hasher: &RandomState, change: Change, event: Option<KeptEvent>) -> Committed {
        let written = match change {
            Change::Payment { intent, charge } => self.write_payment(hasher, intent, charge),
            Change::Refund { refund, charge } | Change::RefundEnded { refund, charge } => {
                self.write_refund(refund, charge)
            }
        };
        if let (Committed::Done, Some(event)) = (written, event) {
            self.events.write(event);
        }
        written
    }

    /// The next version of the charge, if it follows the one that is there: that is what keeps the sum of its refunds right.
    fn write_refund(&mut self, refund: Arc<Refund>, charge: Arc<Charge>) -> Committed {
        let charges = self.intents.get_mut(&charge.intent).map(|(_, charges)| charges);
        let before = charges.and_then(|charges| charges.iter_mut().find(|before| before.id == charge.id));
        match before {
            Some(before) if before.version + 1 == charge.version => *before = charge,
            _ => return Committed::Stale,
        }
        let of_intent = self.refunds_of.entry(refund.intent).or_default();
        match of_intent.iter_mut().find(|before| before.id == refund.id) {
            Some(before) => *before = Arc::clone(&refund),
            None => of_intent.push(Arc::clone(&refund)),
        }
        self.refunds.insert(refund.id, refund);
        Committed::Done
    }

    fn charge(&self, id: ChargeId) -> Option<&Arc<Charge>> {
        let (_, charges) = self.intents.get(self.owners.get(&id)?)?;
        charges.iter().find(|charge| charge.id == id)
    }

    fn write_payment(&mut self, hasher: &RandomState, intent: Arc<Intent>, charge: Option<Arc<Charge>>) -> Committed {
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

    fn referring(
        &self,
        hasher: &RandomState,
        reference: &str,
        after: IntentId,
        limit: usize,
    ) -> Vec<(Arc<Intent>, i64)> {
        let mut found: Vec<_> = ["reference", "order_id"]
            .into_iter()
            .flat_map(|name| self.noted(hasher, &Note { name: name.into(), value: reference.into() }))
            .filter(|intent| intent.captured() && intent.id > after && intent.metadata.reference() == Some(reference))
            .collect();
        found.sort_unstable_by_key(|intent| intent.id);
        found.dedup_by_key(|intent| intent.id);
        found.truncate(limit);
        let refunded = |intent: &Intent| self.intents.get(&intent.id).map_or(0, |(_, charges)| refunded(charges));
        found.into_iter().map(|intent| (Arc::clone(&intent), refunded(&intent))).collect()
    }
}

/// An intent takes money once, so its charges give back what that one does.
fn refunded(charges: &[Arc<Charge>]) -> i64 {
    charges.iter().map(|charge| charge.amount_refunded).sum()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic between two statements of a writer would be a bug of ours; the books stay readable to show it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
