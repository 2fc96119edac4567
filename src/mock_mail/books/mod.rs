//! What the service knows: mails delivered, and what it answered under each key.
//!
//! Promise: a mail and the record of its key become true together or not at all; and a lookup sees every delivery that was
//! answered, however old its key.
//! Two implementations of one interface: [`memory`] for load, where the mock must not be what is measured, and [`store`] in
//! PostgreSQL, where the books outlive a kill.

mod memory;
mod store;

use std::sync::Arc;

use serde::Serialize;
use uuid::Uuid;

use super::email::{Keyed, Tags};

/// The service's own books.
#[derive(Debug)]
pub struct Books(Kind);

#[derive(Debug)]
enum Kind {
    Memory(memory::MemoryBooks),
    Store(store::StoreBooks),
}

/// One mail delivered.
#[derive(Debug)]
pub(super) struct Mail {
    pub(super) id: Uuid,
    pub(super) idempotency_key: Option<Arc<str>>,
    pub(super) from: Box<str>,
    pub(super) to: Box<str>,
    pub(super) subject: Box<str>,
    pub(super) text: Box<str>,
    pub(super) tags: Tags,
    /// On the service's own clock.
    pub(super) created_ms: i64,
}

/// One line of `/_mock/mails`.
#[derive(Debug, Serialize)]
pub(super) struct Line<'a> {
    id: Uuid,
    idempotency_key: Option<&'a str>,
    to: &'a str,
    subject: &'a str,
    tags: &'a Tags,
    /// Seconds since 1970.
    created: i64,
}

impl Mail {
    pub(super) fn line(&self) -> Line<'_> {
        Line {
            id: self.id,
            idempotency_key: self.idempotency_key.as_deref(),
            to: &self.to,
            subject: &self.subject,
            tags: &self.tags,
            created: self.created_ms / 1000,
        }
    }
}

/// What is on record for a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recorded {
    pub(super) fingerprint: [u8; 32],
    pub(super) mail: Uuid,
    pub(super) at_ms: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    Done,
    /// The books in memory are full. Nothing was delivered.
    Full,
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
    /// Books that live as long as their process.
    pub fn in_memory() -> Self {
        Self(Kind::Memory(memory::MemoryBooks::default()))
    }

    /// Books in this database, in a schema of their own, which is created or brought up to date.
    pub async fn open(database_url: &str) -> anyhow::Result<Self> {
        Ok(Self(Kind::Store(store::StoreBooks::open(database_url).await?)))
    }

    pub(super) async fn recorded(&self, key: &str) -> anyhow::Result<Option<Recorded>> {
        ask!(self, recorded(key))
    }

    /// Delivers the mail; with a key, records it in the same moment.
    pub(super) async fn deliver(&self, mail: Mail, record: Option<&Keyed>) -> anyhow::Result<Kept> {
        ask!(self, deliver(mail, record))
    }

    pub(super) async fn mail(&self, id: Uuid) -> anyhow::Result<Option<Arc<Mail>>> {
        ask!(self, mail(id))
    }

    /// Every mail under this key, oldest first.
    pub(super) async fn under_key(&self, key: &str, limit: usize) -> anyhow::Result<Vec<Arc<Mail>>> {
        ask!(self, under_key(key, limit))
    }

    /// The mails that arrived after this one, oldest first, each with its place in the order of arrival.
    pub(super) async fn page(&self, after: i64, limit: usize) -> anyhow::Result<Vec<(i64, Arc<Mail>)>> {
        ask!(self, page(after, limit))
    }

    pub(super) async fn reset(&self) -> anyhow::Result<()> {
        ask!(self, reset())
    }
}
