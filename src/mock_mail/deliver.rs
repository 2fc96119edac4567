//! The story of `POST /emails`: fate, key, delivery, record, answer.
//!
//! Promise: once a delivery has begun it ends and is recorded, whether or not the client still listens.
//! It answers: in which order do faults, keys and mails meet?

use std::{
    collections::HashSet,
    future::poll_fn,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use anyhow::Context;
use http::StatusCode;
use serde_json::json;
use uuid::Uuid;

use super::{
    Service,
    books::{Kept, Mail, Recorded},
    email::{Email, Keyed},
    faults::{Fault, FaultName},
    reply::{Refusal, Reply},
    stats::count,
};

/// What the request got, and what becomes of it on its way back.
#[derive(Debug)]
pub(super) enum Answered {
    Reply(Reply),
    /// The answer meets this fault on its way.
    Fated(Reply, Fault),
    /// The connection ends without an answer, and nothing was sent.
    Dropped,
}

pub(super) async fn post(service: &Arc<Service>, email: Email) -> Answered {
    let fault = service.faults.draw(email.key(), &email.to);
    match fault.map(|fault| fault.name) {
        Some(name @ FaultName::UnavailableBefore) => {
            service.fired(name, email.key());
            let message = "The mail service is unavailable. Nothing was sent.";
            Answered::Reply(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", message).into())
        }
        Some(name @ FaultName::DropBefore) => {
            service.fired(name, email.key());
            Answered::Dropped
        }
        _ => match (shielded(service, email, fault).await, fault) {
            (Ok(reply), Some(fault)) => Answered::Fated(reply, fault),
            (Ok(reply), None) => Answered::Reply(reply),
            (Err(refusal), _) => Answered::Reply(refusal.into()),
        },
    }
}

/// Runs the delivery where no client can end it. The server drops a handler whose client hangs up; a delivery that is not done
/// at once therefore moves to a task of its own. In memory they all are, and save the task.
async fn shielded(service: &Arc<Service>, email: Email, fault: Option<Fault>) -> Result<Reply, Refusal> {
    let mut delivery = Box::pin(deliver(Arc::clone(service), email, fault));
    match poll_fn(|cx| Poll::Ready(delivery.as_mut().poll(cx))).await {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => service.deliveries.spawn(delivery).await.unwrap_or_else(|panicked| {
            tracing::error!(error = %panicked, "a delivery panicked");
            Err(Refusal::internal())
        }),
    }
}

async fn deliver(service: Arc<Service>, email: Email, fault: Option<Fault>) -> Result<Reply, Refusal> {
    // A surprise in the books is not recorded: the same key may try again.
    run(&service, email, fault).await.unwrap_or_else(|error| {
        tracing::error!(error = format!("{error:#}"), "a delivery failed");
        Err(Refusal::internal())
    })
}

async fn run(service: &Service, email: Email, fault: Option<Fault>) -> anyhow::Result<Result<Reply, Refusal>> {
    let is = |name| fault.filter(|fault| fault.name == name);
    let ignored = is(FaultName::IgnoreIdempotency).is_some();
    let _held = match &email.keyed {
        Some(keyed) if !ignored => match admit(service, keyed).await? {
            Admitted::Deliver(held) => Some(held),
            Admitted::Replay(mail) => {
                count(&service.stats.replays);
                return Ok(Ok(Reply { replayed: true, ..sent(mail) }));
            }
            Admitted::Refused(refusal) => return Ok(Err(refusal)),
        },
        _ => None,
    };
    if is(FaultName::Reject).is_some() {
        service.fired(FaultName::Reject, email.key());
        return Ok(Err(Refusal::invalid("This mail is not accepted, and never will be.")));
    }
    if let Some(fault) = is(FaultName::LatencyBefore) {
        service.fired(fault.name, email.key());
        tokio::time::sleep(Duration::from_millis(fault.latency_ms)).await;
    }
    let Email { from, to, subject, text, tags, keyed } = email;
    let idempotency_key = keyed.as_ref().map(|keyed| Arc::clone(&keyed.key));
    let (id, created_ms) = (Uuid::now_v7(), service.clock.now_ms());
    let mail = Mail { id, idempotency_key, from, to, subject, text, tags, created_ms };
    match service.books.deliver(mail, keyed.as_ref().filter(|_| !ignored)).await.context("delivering a mail")? {
        Kept::Done => {}
        Kept::Full => {
            let message = "The books in memory are full: POST /_mock/reset. Nothing was sent.";
            return Ok(Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "books_full", message)));
        }
    }
    count(&service.stats.deliveries);
    if ignored {
        service.fired(FaultName::IgnoreIdempotency, keyed.as_ref().map(|keyed| &*keyed.key));
    }
    Ok(Ok(sent(id)))
}

fn sent(mail: Uuid) -> Reply {
    Reply::ok(&json!({ "id": mail }))
}

enum Admitted<'a> {
    Deliver(Held<'a>),
    Replay(Uuid),
    Refused(Refusal),
}

async fn admit<'a>(service: &'a Service, keyed: &Keyed) -> anyhow::Result<Admitted<'a>> {
    if let Some(settled) = look_up(service, keyed).await? {
        return Ok(settled);
    }
    let Some(held) = Held::take(&service.in_progress, &keyed.key) else {
        count(&service.stats.conflicts);
        let message = "Another request under this idempotency key is being worked on. Try again later.";
        return Ok(Admitted::Refused(Refusal::new(StatusCode::CONFLICT, "concurrent_idempotent_requests", message)));
    };
    // Its holder may have finished between our look and our hold, so look again now that nobody else can write.
    Ok(look_up(service, keyed).await?.unwrap_or(Admitted::Deliver(held)))
}

/// What the record of this key says, if there is one that is still honoured.
async fn look_up<'a>(service: &Service, keyed: &Keyed) -> anyhow::Result<Option<Admitted<'a>>> {
    let recorded = service.books.recorded(&keyed.key).await.context("looking up a key")?;
    let honoured =
        |recorded: &Recorded| service.clock.now_ms() < recorded.at_ms.saturating_add(service.clock.key_ttl_ms());
    let Some(recorded) = recorded.filter(honoured) else { return Ok(None) };
    if recorded.fingerprint == keyed.fingerprint {
        return Ok(Some(Admitted::Replay(recorded.mail)));
    }
    count(&service.stats.mismatches);
    let message = "This idempotency key was used for another mail. Send this one under a key of its own.";
    Ok(Some(Admitted::Refused(Refusal::new(StatusCode::CONFLICT, "invalid_idempotent_request", message))))
}

type Keys = Mutex<HashSet<Arc<str>>>;

/// This key is ours until dropped, however the delivery ends.
struct Held<'a> {
    keys: &'a Keys,
    key: Arc<str>,
}

impl<'a> Held<'a> {
    /// `None` when another request holds the key.
    fn take(keys: &'a Keys, key: &Arc<str>) -> Option<Self> {
        let inserted = keys.lock().unwrap_or_else(PoisonError::into_inner).insert(Arc::clone(key));
        // Lazily: one that is made and thrown away would let go of somebody else's key.
        inserted.then(|| Self { keys, key: Arc::clone(key) })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}
