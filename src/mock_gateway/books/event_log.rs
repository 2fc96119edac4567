//! The events of the books in memory: the latest ones, and which of them an endpoint still has to hear of.
//!
//! Promise: bounded. The oldest event makes room for the newest, also when it was never delivered.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::mock_gateway::{
    clock::EventId,
    events::{Event, EventKind, KEPT_MAX, KeptEvent},
    paging::Window,
};

#[derive(Debug, Default)]
pub(super) struct EventLog {
    events: BTreeMap<EventId, Arc<Event>>,
    pending: BTreeSet<EventId>,
}

impl EventLog {
    pub(super) fn write(&mut self, kept: KeptEvent) {
        if kept.pending {
            self.pending.insert(kept.event.id);
        }
        self.events.insert(kept.event.id, kept.event);
        if self.events.len() > KEPT_MAX
            && let Some((oldest, _)) = self.events.pop_first()
        {
            self.pending.remove(&oldest);
        }
    }

    pub(super) fn one(&self, id: EventId) -> Option<KeptEvent> {
        self.events.get(&id).map(|event| self.kept(event))
    }

    /// From the window's edge inwards.
    pub(super) fn list(&self, kinds: &[EventKind], window: Window<EventId>, limit: usize) -> Vec<KeptEvent> {
        let wanted = window.of(&self.events).filter(|event| kinds.contains(&event.kind));
        wanted.take(limit).map(|event| self.kept(event)).collect()
    }

    /// Oldest first.
    pub(super) fn pending(&self, limit: usize) -> Vec<Arc<Event>> {
        self.pending.iter().take(limit).filter_map(|id| self.events.get(id)).cloned().collect()
    }

    pub(super) fn count_pending(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn settle(&mut self, ids: &[EventId]) {
        for id in ids {
            self.pending.remove(id);
        }
    }

    pub(super) fn settle_all(&mut self) {
        self.pending.clear();
    }

    fn kept(&self, event: &Arc<Event>) -> KeptEvent {
        KeptEvent { event: Arc::clone(event), pending: self.pending.contains(&event.id) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock_gateway::{clock::IntentId, events::EventObject};

    fn event(serial: u128) -> KeptEvent {
        let json = serde_json::value::RawValue::from_string("{}".to_owned()).expect("JSON");
        let object = EventObject::Kept { intent: IntentId(serial), json };
        let kind = EventKind::PaymentSucceeded;
        let event = Event { id: EventId(serial), kind, object, request_id: "req_1".into(), key: None };
        KeptEvent { event: Arc::new(event), pending: true }
    }

    #[test]
    fn the_oldest_makes_room_for_the_newest_delivered_or_not() {
        let mut log = EventLog::default();
        for serial in 0..KEPT_MAX as u128 + 2 {
            log.write(event(serial));
        }
        assert_eq!((log.events.len(), log.count_pending()), (KEPT_MAX, KEPT_MAX));
        assert!(log.one(EventId(1)).is_none() && log.one(EventId(2)).is_some_and(|kept| kept.pending));
        log.settle(&[EventId(2)]);
        assert!(log.one(EventId(2)).is_some_and(|kept| !kept.pending));
        assert_eq!(log.pending(1)[0].id, EventId(3));
    }
}
