//! What the gateway knows: intents, charges, refunds, events, and what it answered under each key.
//!
//! Promise: one [`Commit`] becomes true as a whole or not at all, its recorded answer included.
//! Two implementations of one interface: [`memory`] for load, where the mock must not be what is measured, and [`store`] in
//! PostgreSQL, where the books outlive a kill.

mod event_log;
mod event_store;
mod memory;
mod refund_store;
mod rows;
mod store;

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;

use super::{
    clock::{ChargeId, EventId, IntentId, RefundId},
    events::{Event, EventKind, KeptEvent},
    keys::Keyed,
    object::{Charge, Expanded, Intent, Refund},
    paging::Window,
    reply,
};

/// The gateway's own books.
#[derive(Debug)]
pub struct Books(Kind);

#[derive(Debug)]
enum Kind {
    Memory(Box<memory::MemoryBooks>),
    Store(store::StoreBooks),
}

/// What one execution writes.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) change: Option<Change>,
    /// The news in the change.
    pub(super) event: Option<KeptEvent>,
    pub(super) key: Option<KeyWrite>,
}

/// What an execution does to the objects.
#[derive(Debug)]
pub(super) enum Change {
    /// The next version of an intent, and the charge that made it if money was asked for.
    Payment { intent: Arc<Intent>, charge: Option<Arc<Charge>> },
    /// A refund, and the next version of its charge.
    Refund { refund: Arc<Refund>, charge: Arc<Charge> },
    /// A refund as it stands from now on, and the next version of its charge.
    RefundEnded { refund: Arc<Refund>, charge: Arc<Charge> },
}

#[derive(Debug)]
pub(super) struct KeyWrite {
    pub(super) keyed: Keyed,
    /// Request, time and answer. Without them the execution is only counted: the gateway ignored the key.
    pub(super) record: Option<(Box<str>, i64, Answer)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Committed {
    Done,
    /// Another writer has changed the object since it was read. Nothing was written.
    Stale,
}

/// What was answered. Objects are immutable and their JSON is a pure function of them, so the memory books keep the object.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    /// With its latest charge as a whole, if the client asked for it.
    Intent {
        intent: Arc<Intent>,
        latest_charge: Option<Arc<Charge>>,
    },
    Declined(Arc<Intent>),
    Refund(Arc<Refund>),
    Bytes {
        status: StatusCode,
        body: Bytes,
    },
}

impl Answer {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Intent { .. } | Self::Refund(_) => StatusCode::OK,
            Self::Declined(_) => StatusCode::PAYMENT_REQUIRED,
            Self::Bytes { status, .. } => *status,
        }
    }

    pub(super) fn body(&self) -> Bytes {
        match self {
            Self::Intent { intent, latest_charge } => {
                reply::json(&Expanded { intent, latest_charge: latest_charge.as_deref() })
            }
            Self::Declined(intent) => reply::decline_json(intent),
            Self::Refund(refund) => reply::json(&**refund),
            Self::Bytes { body, .. } => body.clone(),
        }
    }
}

/// What is on record for a key.
#[derive(Debug, Clone)]
pub(super) struct Recorded {
    pub(super) path: Cow<'static, str>,
    pub(super) fingerprint: [u8; 32],
    pub(super) request_id: Box<str>,
    pub(super) at_ms: i64,
    pub(super) answer: Answer,
}

/// One pair of metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) name: Box<str>,
    pub(super) value: Box<str>,
}

/// One line of the ledger.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Capture {
    pub(super) payment_intent: IntentId,
    pub(super) idempotency_key: Option<Box<str>>,
    pub(super) reference: Option<Box<str>>,
    pub(super) amount: i64,
    pub(super) currency: Box<str>,
    pub(super) amount_refunded: i64,
    /// How often anything was executed under this key.
    pub(super) executions: i64,
    pub(super) replays: i64,
    /// Seconds since 1970 on the gateway's clock.
    pub(super) created: i64,
}

macro_rules! ask {
    ($books:expr, $ask:ident($($argument:expr),*)) => {
        match &$books.0 {
            Kind::Memory(books) => Ok(books.$ask($($argument),*)),
            Kind::Store(books) => books.$ask($($argument),*).await,
        }
    };
}

impl Books {
    /// Books that last as long as the process and grow with every payment, by about one and a half kilobytes each.
    pub fn in_memory() -> Self {
        Self(Kind::Memory(Box::default()))
    }

    /// Books in PostgreSQL, in a schema of their own that this brings up to date. One process may have them open.
    pub async fn open(database_url: &str) -> anyhow::Result<Self> {
        Ok(Self(Kind::Store(store::StoreBooks::open(database_url).await?)))
    }

    pub(super) async fn recorded(&self, key: &str) -> anyhow::Result<Option<Recorded>> {
        ask!(self, recorded(key))
    }

    pub(super) async fn count_replay(&self, key: &str) -> anyhow::Result<()> {
        ask!(self, count_replay(key))
    }

    pub(super) async fn commit(&self, commit: Commit) -> anyhow::Result<Committed> {
        ask!(self, commit(commit))
    }

    pub(super) async fn intent(&self, id: IntentId) -> anyhow::Result<Option<Arc<Intent>>> {
        ask!(self, intent(id))
    }

    /// From the window's edge inwards.
    pub(super) async fn intents(&self, window: Window<IntentId>, limit: usize) -> anyhow::Result<Vec<Arc<Intent>>> {
        ask!(self, intents(window, limit))
    }

    /// Those with this note and a name below, newest first.
    pub(super) async fn noted(&self, note: &Note, below: IntentId, limit: usize) -> anyhow::Result<Vec<Arc<Intent>>> {
        ask!(self, noted(note, below, limit))
    }

    pub(super) async fn charge(&self, id: ChargeId) -> anyhow::Result<Option<Arc<Charge>>> {
        ask!(self, charge(id))
    }

    pub(super) async fn charges_named(&self, ids: &[ChargeId]) -> anyhow::Result<Vec<Arc<Charge>>> {
        ask!(self, charges_named(ids))
    }

    pub(super) async fn refund(&self, id: RefundId) -> anyhow::Result<Option<Arc<Refund>>> {
        ask!(self, refund(id))
    }

    /// Those of one intent, or all; from the window's edge inwards.
    pub(super) async fn refunds(
        &self,
        intent: Option<IntentId>,
        window: Window<RefundId>,
        limit: usize,
    ) -> anyhow::Result<Vec<Arc<Refund>>> {
        ask!(self, refunds(intent, window, limit))
    }

    pub(super) async fn event(&self, id: EventId) -> anyhow::Result<Option<KeptEvent>> {
        ask!(self, event(id))
    }

    /// Those of these kinds, from the window's edge inwards.
    pub(super) async fn events(
        &self,
        kinds: &[EventKind],
        window: Window<EventId>,
        limit: usize,
    ) -> anyhow::Result<Vec<KeptEvent>> {
        ask!(self, events(kinds, window, limit))
    }

    /// What an endpoint still has to hear of, oldest first.
    pub(super) async fn pending_events(&self, limit: usize) -> anyhow::Result<Vec<Arc<Event>>> {
        ask!(self, pending_events(limit))
    }

    pub(super) async fn count_pending_events(&self) -> anyhow::Result<u64> {
        ask!(self, count_pending_events())
    }

    /// These events need no delivery any more.
    pub(super) async fn settle_events(&self, ids: &[EventId]) -> anyhow::Result<()> {
        ask!(self, settle_events(ids))
    }

    /// No event needs delivery any more: there is nobody to deliver to.
    pub(super) async fn settle_all_events(&self) -> anyhow::Result<()> {
        ask!(self, settle_all_events())
    }

    /// Newest first.
    pub(super) async fn charges(&self, intent: IntentId) -> anyhow::Result<Vec<Arc<Charge>>> {
        ask!(self, charges(intent))
    }

    /// Oldest first.
    pub(super) async fn captures(
        &self,
        after: IntentId,
        limit: usize,
        reference: Option<&str>,
    ) -> anyhow::Result<Vec<Capture>> {
        ask!(self, captures(after, limit, reference))
    }

    pub(super) async fn reset(&self) -> anyhow::Result<()> {
        ask!(self, reset())
    }
}
