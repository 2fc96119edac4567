//! Counters: what the service did, for `/_mock/stats`.
//!
//! Promise: a fault that never fired counts 0 here, so an experiment can tell "survived" from "was never tried".

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::faults::FaultName;

#[derive(Debug, Default)]
pub(super) struct Stats {
    pub(super) deliveries: AtomicU64,
    pub(super) replays: AtomicU64,
    /// Requests refused because another one under their key was running.
    pub(super) conflicts: AtomicU64,
    /// Requests refused because their key was used for another mail.
    pub(super) mismatches: AtomicU64,
    faults: [AtomicU64; FaultName::ALL.len()],
}

impl Stats {
    pub(super) fn fired(&self, fault: FaultName) {
        count(&self.faults[fault as usize]);
    }

    pub(super) fn reset(&self) {
        let all = [&self.deliveries, &self.replays, &self.conflicts, &self.mismatches];
        for counter in all.into_iter().chain(&self.faults) {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Serialize for Stats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Fired<'a>(&'a Stats);
        impl Serialize for Fired<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let fired = |name: &FaultName| (name.name(), read(&self.0.faults[*name as usize]));
                serializer.collect_map(FaultName::ALL.iter().map(fired))
            }
        }
        let mut map = serializer.serialize_map(Some(5))?;
        map.serialize_entry("deliveries", &read(&self.deliveries))?;
        map.serialize_entry("replays", &read(&self.replays))?;
        map.serialize_entry("conflicts", &read(&self.conflicts))?;
        map.serialize_entry("mismatches", &read(&self.mismatches))?;
        map.serialize_entry("faults", &Fired(self))?;
        map.end()
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
