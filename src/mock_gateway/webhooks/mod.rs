//! Webhooks: the gateway tells an endpoint what happened, until the endpoint says that it heard.
//!
//! Promise: at least once, in no promised order, and never in the way of a payment. An event is delivered when the endpoint
//! answers 2xx within 5 s; otherwise it is sent again after 0.5 s, doubling to 60 s, and given up after 3 days of the gateway's
//! clock. What is pending lives in the books: in PostgreSQL it outlives a kill, in memory it ends with the process.
//! It answers: what does a checkout hear of a charge whose answer it never got - or has not got yet?
//!
//! The endpoint itself lives in the process: one that was set over HTTP is set again after a restart.

pub(super) mod schedule;
pub(super) mod sender;
mod signature;

use std::sync::{Arc, atomic::AtomicU64};

use anyhow::ensure;
use reqwest::Url;
use serde::Serialize;
use tokio::sync::{Notify, mpsc, watch};

use super::{
    Gateway,
    events::{Event, KeptEvent},
    stats::{count, read},
};

/// News between an execution and the sender. What does not fit in is read from the books later.
const NEWS_MAX: usize = 10_000;

/// Where events go, and what signs them.
#[derive(Clone)]
pub struct Endpoint {
    url: Url,
    secret: Box<str>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}

impl Endpoint {
    pub fn new(url: &str, secret: &str) -> anyhow::Result<Self> {
        let parsed = Url::parse(url);
        let web = parsed.as_ref().is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        let (true, Ok(url)) = (web, parsed) else { anyhow::bail!("{url:?} is no http URL") };
        ensure!(
            secret.strip_prefix("whsec_").is_some_and(|rest| !rest.is_empty()),
            "a webhook secret starts with whsec_ and goes on"
        );
        Ok(Self { url, secret: secret.into() })
    }
}

/// For whom an event is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Audience {
    Nobody,
    /// Whoever lists events.
    Readers,
    /// The endpoint, and readers.
    Endpoint,
}

/// What requests and the control plane share with the sender.
#[derive(Debug)]
pub(super) struct Webhooks {
    /// Keep events although nobody is told: `--events`.
    kept_anyway: bool,
    at_start: Option<Arc<Endpoint>>,
    endpoint: watch::Sender<Option<Arc<Endpoint>>>,
    news: mpsc::Sender<Arc<Event>>,
    /// There was more news than fits between here and the sender.
    missed: Notify,
    delivered: AtomicU64,
    failed_attempts: AtomicU64,
    given_up: AtomicU64,
}

#[derive(Debug, Serialize)]
pub(super) struct Status {
    endpoint: Option<Box<str>>,
    delivered: u64,
    failed_attempts: u64,
    given_up: u64,
    pending: u64,
}

impl Webhooks {
    pub(super) fn new(kept_anyway: bool, endpoint: Option<Endpoint>) -> (Self, mpsc::Receiver<Arc<Event>>) {
        let (news, heard) = mpsc::channel(NEWS_MAX);
        let at_start = endpoint.map(Arc::new);
        let webhooks = Self {
            kept_anyway,
            endpoint: watch::Sender::new(at_start.clone()),
            at_start,
            news,
            missed: Notify::new(),
            delivered: AtomicU64::new(0),
            failed_attempts: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
        };
        (webhooks, heard)
    }

    fn audience(&self) -> Audience {
        match (self.endpoint.borrow().is_some(), self.kept_anyway) {
            (true, _) => Audience::Endpoint,
            (false, true) => Audience::Readers,
            (false, false) => Audience::Nobody,
        }
    }

    /// The event that `make` makes, if anybody wants events. A load run without an audience pays a look for it.
    pub(super) fn keep(&self, make: impl FnOnce() -> Option<Event>) -> Option<KeptEvent> {
        let pending = match self.audience() {
            Audience::Nobody => return None,
            Audience::Readers => false,
            Audience::Endpoint => true,
        };
        make().map(|event| KeptEvent { event: Arc::new(event), pending })
    }

    /// An event was committed: the sender may have it. Never waits.
    pub(super) fn committed(&self, kept: KeptEvent) {
        if kept.pending && self.news.try_send(kept.event).is_err() {
            self.missed.notify_one();
        }
    }

    /// From now on events go there; so does what is pending.
    pub(super) fn set(&self, endpoint: Endpoint) {
        self.endpoint.send_replace(Some(Arc::new(endpoint)));
    }

    /// Nobody is told any more, of what is pending neither.
    pub(super) async fn remove(gateway: &Gateway) -> anyhow::Result<()> {
        gateway.webhooks.endpoint.send_replace(None);
        gateway.books.settle_all_events().await
    }

    pub(super) fn reset(&self) {
        self.endpoint.send_replace(self.at_start.clone());
        for counter in [&self.delivered, &self.failed_attempts, &self.given_up] {
            counter.store(0, std::sync::atomic::Ordering::Relaxed);
        }
    }

    pub(super) async fn status(gateway: &Gateway) -> anyhow::Result<Status> {
        let webhooks = &gateway.webhooks;
        let endpoint = webhooks.endpoint.borrow().as_ref().map(|endpoint| endpoint.url.as_str().into());
        Ok(Status {
            endpoint,
            delivered: read(&webhooks.delivered),
            failed_attempts: read(&webhooks.failed_attempts),
            given_up: read(&webhooks.given_up),
            pending: gateway.books.count_pending_events().await?,
        })
    }

    fn delivered(&self) {
        count(&self.delivered);
    }

    fn failed(&self) {
        count(&self.failed_attempts);
    }

    fn gave_up(&self) {
        count(&self.given_up);
    }
}
