//! Events: what the gateway tells by itself, and where it can be read again.
//!
//! Promise: an event becomes true in the same commit as the change it tells of, shows the object as it was then, and names the
//! request that caused it, with its idempotency key.
//! It answers: how does a checkout that never got its answer recognise its own charge in somebody else's news?
//!
//! Events are kept only while a webhook endpoint is configured, or with `--events`: a load run pays nothing for them. The books
//! in memory keep the latest [`KEPT_MAX`] and forget the oldest, delivered or not; those in PostgreSQL keep all.

use std::sync::Arc;

use http::StatusCode;
use serde::{Serialize, Serializer, ser::SerializeStruct};
use serde_json::value::RawValue;

use super::{
    Gateway,
    books::Change,
    clock::{EventId, IntentId},
    form::Form,
    lookups::Lookup,
    object::{Charge, Intent, Refund, RefundStatus},
    paging::{self, List},
    reply::{Refusal, Reply},
};

/// Events that the books in memory keep: about a minute of the fastest load, and some 100 MB at most.
pub(super) const KEPT_MAX: usize = 200_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventKind {
    PaymentSucceeded,
    PaymentFailed,
    ChargeRefunded,
    RefundUpdated,
    RefundFailed,
}

impl EventKind {
    pub(super) const ALL: [Self; 5] =
        [Self::PaymentSucceeded, Self::PaymentFailed, Self::ChargeRefunded, Self::RefundUpdated, Self::RefundFailed];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::PaymentSucceeded => "payment_intent.succeeded",
            Self::PaymentFailed => "payment_intent.payment_failed",
            Self::ChargeRefunded => "charge.refunded",
            Self::RefundUpdated => "refund.updated",
            Self::RefundFailed => "refund.failed",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// What happened, for good.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) id: EventId,
    pub(super) kind: EventKind,
    pub(super) object: EventObject,
    pub(super) request_id: Box<str>,
    pub(super) key: Option<Box<str>>,
}

/// The object as it was. Its JSON is a pure function of it, so the books in memory share the object itself.
#[derive(Debug)]
pub(super) enum EventObject {
    Intent(Arc<Intent>),
    Charge(Arc<Charge>),
    Refund(Arc<Refund>),
    /// As the books in PostgreSQL kept it.
    Kept {
        intent: IntentId,
        json: Box<RawValue>,
    },
}

/// An event in the books, and whether an endpoint still has to hear of it.
#[derive(Debug, Clone)]
pub(super) struct KeptEvent {
    pub(super) event: Arc<Event>,
    pub(super) pending: bool,
}

impl Event {
    /// The news in a change, if it is any: an intent that only waits is none.
    pub(super) fn of(change: &Change, id: EventId, request_id: &str, key: Option<&str>) -> Option<Self> {
        let (kind, object) = match change {
            Change::Payment { intent, charge: Some(charge) } => {
                let kind = match charge.decline {
                    None => EventKind::PaymentSucceeded,
                    Some(_) => EventKind::PaymentFailed,
                };
                (kind, EventObject::Intent(Arc::clone(intent)))
            }
            Change::Payment { charge: None, .. } => return None,
            Change::Refund { charge, .. } => (EventKind::ChargeRefunded, EventObject::Charge(Arc::clone(charge))),
            Change::RefundEnded { refund, .. } => {
                let kind = match refund.status {
                    RefundStatus::Failed => EventKind::RefundFailed,
                    RefundStatus::Pending | RefundStatus::Succeeded => EventKind::RefundUpdated,
                };
                (kind, EventObject::Refund(Arc::clone(refund)))
            }
        };
        Some(Self { id, kind, object, request_id: request_id.into(), key: key.map(Into::into) })
    }

    /// Whose story it belongs to.
    pub(super) fn intent(&self) -> IntentId {
        match &self.object {
            EventObject::Intent(intent) => intent.id,
            EventObject::Charge(charge) => charge.intent,
            EventObject::Refund(refund) => refund.intent,
            EventObject::Kept { intent, .. } => *intent,
        }
    }
}

impl Serialize for EventObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Intent(intent) => intent.serialize(serializer),
            Self::Charge(charge) => charge.serialize(serializer),
            Self::Refund(refund) => refund.serialize(serializer),
            Self::Kept { json, .. } => json.serialize(serializer),
        }
    }
}

impl Serialize for KeptEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Data<'a> {
            object: &'a EventObject,
        }
        #[derive(Serialize)]
        struct Cause<'a> {
            id: &'a str,
            idempotency_key: Option<&'a str>,
        }
        let event = &*self.event;
        let mut json = serializer.serialize_struct("Event", 9)?;
        json.serialize_field("id", &event.id)?;
        json.serialize_field("object", "event")?;
        json.serialize_field("api_version", &None::<&str>)?;
        json.serialize_field("created", &(event.id.created_ms() / 1000))?;
        json.serialize_field("data", &Data { object: &event.object })?;
        json.serialize_field("livemode", &false)?;
        json.serialize_field("pending_webhooks", &i32::from(self.pending))?;
        json.serialize_field("request", &Cause { id: &event.request_id, idempotency_key: event.key.as_deref() })?;
        json.serialize_field("type", event.kind.name())?;
        json.end()
    }
}

pub(super) async fn one(gateway: &Gateway, form: &Form<'_>, id: &str) -> Lookup {
    if let Err(refusal) = form.only(&[]) {
        return Ok(Err(refusal));
    }
    let found = match EventId::parse(id) {
        Some(id) => gateway.books.event(id).await?,
        None => None,
    };
    let missing = || Refusal::missing(StatusCode::NOT_FOUND, "id", format!("No such event: '{id}'"));
    Ok(found.map(|event| Reply::ok(&event)).ok_or_else(missing))
}

pub(super) async fn list(gateway: &Gateway, form: &Form<'_>) -> Lookup {
    let asked = paging::window(form, &["type", "types"]).and_then(|window| Ok((window, paging::limit(form)?)));
    let (window, limit) = match asked {
        Ok(asked) => asked,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let found = gateway.books.events(&kinds(form), window, limit + 1).await?;
    Ok(Ok(Reply::ok(&List::page(found, limit, window.edge, "/v1/events"))))
}

/// The types asked for, as `type=charge.refunded`, `type=payment_intent.*` or `types[]=…`; without either: all. A type that
/// never happens here is one that nothing is listed of.
fn kinds(form: &Form<'_>) -> Vec<EventKind> {
    let asked: Vec<&str> = form.get("type").into_iter().chain(form.list("types")).collect();
    let fits = |kind: &EventKind, asked: &str| match asked.strip_suffix('*') {
        Some(group) => kind.name().starts_with(group),
        None => kind.name() == asked,
    };
    let wanted = |kind: &EventKind| asked.is_empty() || asked.iter().any(|asked| fits(kind, asked));
    EventKind::ALL.into_iter().filter(wanted).collect()
}
