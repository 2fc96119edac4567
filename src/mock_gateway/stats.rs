//! Counters: what the gateway did, for `/_mock/stats`.
//!
//! Promise: a fault that never fired counts 0 here, so an experiment can tell "survived" from "was never tried".

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Serialize, ser::SerializeMap};

use super::faults::{FaultName, Misbehaviour, WebhookFaultName};

#[derive(Debug, Default)]
pub(super) struct Stats {
    pub(super) executions: AtomicU64,
    pub(super) replays: AtomicU64,
    pub(super) conflicts: AtomicU64,
    pub(super) mismatches: AtomicU64,
    faults: [AtomicU64; FaultName::ALL.len()],
    webhook_faults: [AtomicU64; WebhookFaultName::ALL.len()],
}

impl Stats {
    pub(super) fn fired(&self, fault: FaultName) {
        count(&self.faults[fault as usize]);
    }

    pub(super) fn fired_at_event(&self, fault: WebhookFaultName) {
        count(&self.webhook_faults[fault as usize]);
    }

    pub(super) fn reset(&self) {
        let all = [&self.executions, &self.replays, &self.conflicts, &self.mismatches];
        for counter in all.into_iter().chain(&self.faults).chain(&self.webhook_faults) {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Serialize for Stats {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Fired<'a>(&'a Stats);
        impl Serialize for Fired<'_> {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let of_requests = FaultName::ALL.map(|name| (name.name(), read(&self.0.faults[name as usize])));
                let of_events =
                    WebhookFaultName::ALL.map(|name| (name.name(), read(&self.0.webhook_faults[name as usize])));
                serializer.collect_map(of_requests.into_iter().chain(of_events))
            }
        }
        let mut map = serializer.serialize_map(Some(5))?;
        map.serialize_entry("executions", &read(&self.executions))?;
        map.serialize_entry("replays", &read(&self.replays))?;
        map.serialize_entry("conflicts", &read(&self.conflicts))?;
        map.serialize_entry("mismatches", &read(&self.mismatches))?;
        map.serialize_entry("faults", &Fired(self))?;
        map.end()
    }
}

pub(super) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
