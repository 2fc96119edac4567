//! The books in memory: one lock, held for about a microsecond per mail.
//!
//! Promise: bounded, and honest about it. What was delivered is the record of the run, so it is kept, up to [`MAILS_MAX`]; then
//! the service refuses further mails instead of forgetting some. A key is kept with its mail: past its time to live it is
//! still known to have delivered, but no longer honoured.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use uuid::Uuid;

use super::{Kept, Mail, Recorded};
use crate::mock_mail::email::Keyed;

/// Mails of one run: almost three minutes at 3,000 a second, and about half a gigabyte when they are receipts.
const MAILS_MAX: usize = 500_000;

#[derive(Debug, Default)]
pub(super) struct MemoryBooks(Mutex<Contents>);

#[derive(Debug, Default)]
struct Contents {
    /// In order of arrival; the place of a mail is its index and one.
    mails: Vec<Arc<Mail>>,
    by_id: HashMap<Uuid, usize>,
    keys: HashMap<Arc<str>, Key>,
}

#[derive(Debug, Default)]
struct Key {
    /// Indexes of its mails: usually one.
    mails: Vec<usize>,
    recorded: Option<Recorded>,
}

impl MemoryBooks {
    pub(super) fn recorded(&self, key: &str) -> Option<Recorded> {
        self.lock().keys.get(key)?.recorded
    }

    pub(super) fn deliver(&self, mail: Mail, record: Option<&Keyed>) -> Kept {
        let mut contents = self.lock();
        let place = contents.mails.len();
        if place >= MAILS_MAX {
            return Kept::Full;
        }
        if let Some(key) = &mail.idempotency_key {
            let entry = contents.keys.entry(Arc::clone(key)).or_default();
            entry.mails.push(place);
            if let Some(keyed) = record {
                let (fingerprint, at_ms) = (keyed.fingerprint, mail.created_ms);
                entry.recorded = Some(Recorded { fingerprint, mail: mail.id, at_ms });
            }
        }
        contents.by_id.insert(mail.id, place);
        contents.mails.push(Arc::new(mail));
        Kept::Done
    }

    pub(super) fn mail(&self, id: Uuid) -> Option<Arc<Mail>> {
        let contents = self.lock();
        contents.mails.get(*contents.by_id.get(&id)?).cloned()
    }

    pub(super) fn under_key(&self, key: &str, limit: usize) -> Vec<Arc<Mail>> {
        let contents = self.lock();
        let places = contents.keys.get(key).into_iter().flat_map(|key| &key.mails);
        places.filter_map(|place| contents.mails.get(*place)).take(limit).cloned().collect()
    }

    pub(super) fn page(&self, after: i64, limit: usize) -> Vec<(i64, Arc<Mail>)> {
        let contents = self.lock();
        let skipped = usize::try_from(after).unwrap_or_default();
        (after + 1..).zip(contents.mails.iter().skip(skipped).take(limit).cloned()).collect()
    }

    pub(super) fn reset(&self) {
        *self.lock() = Contents::default();
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        // Nothing below a lock panics: a poisoned one means that somebody else's thread died with it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
