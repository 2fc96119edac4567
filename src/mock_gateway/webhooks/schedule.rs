//! What is to be sent, and when. Pure: the time comes in.
//!
//! Promise: attempts of one payment follow each other, those of different payments know nothing of each other; a failed attempt
//! makes room for whatever is due meanwhile.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use crate::mock_gateway::{
    clock::{EventId, IntentId},
    events::Event,
};

const BACKOFF_FIRST: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// One event on its way.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) event: Arc<Event>,
    pub(super) failures: u32,
    pub(super) sending: Sending,
}

/// What the next attempt is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    Properly,
    /// And once more after it was delivered.
    FirstOfTwo,
    /// With a signature that is wrong, and therefore once more, whatever the endpoint says.
    WronglySigned,
}

impl Job {
    /// How long to wait after the failures so far.
    pub(super) fn backoff(&self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(16);
        BACKOFF_FIRST.saturating_mul(1 << doublings).min(BACKOFF_MAX)
    }
}

/// Due first, then in the order of arrival.
type Turn = (Instant, u64);

#[derive(Debug, Default)]
pub(super) struct Schedule {
    due: BTreeMap<Turn, Job>,
    /// Turns that wait for another event to overtake them.
    held: Vec<Turn>,
    /// Payments with an attempt under way, and what waits for its end.
    busy: HashMap<IntentId, VecDeque<Job>>,
    /// Events that are somewhere in here, or under way.
    known: HashSet<EventId>,
    serial: u64,
}

impl Schedule {
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn knows(&self, id: EventId) -> bool {
        self.known.contains(&id)
    }

    pub(super) fn add(&mut self, job: Job, due: Instant) -> Turn {
        self.known.insert(job.event.id);
        self.serial += 1;
        let turn = (due, self.serial);
        self.due.insert(turn, job);
        turn
    }

    /// Held until [`Self::release`], or until then at the latest.
    pub(super) fn hold(&mut self, job: Job, until: Instant) {
        let turn = self.add(job, until);
        self.held.push(turn);
    }

    /// Another event has overtaken those that were held: they are due now. Returns which.
    pub(super) fn release(&mut self, now: Instant) -> Vec<Arc<Event>> {
        let held = std::mem::take(&mut self.held);
        let jobs: Vec<Job> = held.iter().filter_map(|turn| self.due.remove(turn)).collect();
        let released = jobs.iter().map(|job| Arc::clone(&job.event)).collect();
        for job in jobs {
            self.add(job, now);
        }
        released
    }

    /// The next job whose time has come. Its payment is busy until [`Self::ended`].
    pub(super) fn next(&mut self, now: Instant) -> Option<Job> {
        while let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= now) {
            let job = entry.remove();
            match self.busy.get_mut(&job.event.intent()) {
                Some(waiting) => waiting.push_back(job),
                None => {
                    self.busy.insert(job.event.intent(), VecDeque::new());
                    return Some(job);
                }
            }
        }
        None
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((due, _), _)| *due)
    }

    /// An attempt of this payment is over: whatever waited for that is due.
    pub(super) fn ended(&mut self, intent: IntentId, now: Instant) {
        for job in self.busy.remove(&intent).unwrap_or_default() {
            self.add(job, now);
        }
    }

    /// This event is no business of ours any more.
    pub(super) fn forget(&mut self, id: EventId) {
        self.known.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock_gateway::events::{EventKind, EventObject};

    fn job(event: u128, intent: u128) -> Job {
        let json = serde_json::value::RawValue::from_string("{}".to_owned()).expect("JSON");
        let object = EventObject::Kept { intent: IntentId(intent), json };
        let kind = EventKind::PaymentSucceeded;
        let event = Event { id: EventId(event), kind, object, request_id: "req_1".into(), key: None };
        Job { event: Arc::new(event), failures: 0, sending: Sending::Properly }
    }

    fn next(schedule: &mut Schedule, now: Instant) -> Option<u128> {
        schedule.next(now).map(|job| job.event.id.0)
    }

    #[test]
    fn attempts_of_one_payment_follow_each_other_and_others_pass_by() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        for (event, intent) in [(1, 7), (2, 7), (3, 8)] {
            schedule.add(job(event, intent), now);
        }
        assert_eq!([next(&mut schedule, now), next(&mut schedule, now)], [Some(1), Some(3)]);
        assert_eq!((next(&mut schedule, now), schedule.len()), (None, 3));
        schedule.ended(IntentId(7), now);
        assert_eq!(next(&mut schedule, now), Some(2));
    }

    #[test]
    fn what_is_held_waits_to_be_overtaken_but_not_for_ever() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        let later = now + Duration::from_secs(60);
        schedule.hold(job(1, 7), later);
        assert_eq!((next(&mut schedule, now), schedule.next_due()), (None, Some(later)));
        assert_eq!((schedule.release(now).len(), next(&mut schedule, now)), (1, Some(1)));
        schedule.hold(job(2, 8), later);
        assert_eq!((next(&mut schedule, later), schedule.release(later).len()), (Some(2), 0));
    }

    #[test]
    fn the_pause_doubles_to_a_minute() {
        let after = |failures| Job { failures, ..job(1, 1) }.backoff();
        assert_eq!([1, 2, 3, 7, 8, u32::MAX].map(|n| after(n).as_millis()), [500, 1000, 2000, 32_000, 60_000, 60_000]);
    }
}
