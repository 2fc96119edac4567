//! Rows of the store, and what they mean.
//!
//! Promise: a row that means nothing we know is an error that names it, never a guess.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use anyhow::{Context, anyhow};
use http::StatusCode;
use sqlx::types::Json;

use super::{Answer, Capture, Recorded};
use crate::mock_gateway::{
    clock::{ChargeId, EventId, IntentId, RefundId},
    events::{Event, EventKind, EventObject, KeptEvent},
    object::{Charge, Currency, Intent, Metadata, Reason, Refund, RefundStatus, Status},
    payment_methods::Decline,
};

pub(super) struct IntentRow {
    pub(super) id: String,
    pub(super) version: i32,
    pub(super) amount: i64,
    pub(super) currency: String,
    pub(super) status: String,
    pub(super) payment_method: Option<String>,
    pub(super) description: Option<String>,
    pub(super) metadata: Json<BTreeMap<Box<str>, Box<str>>>,
    pub(super) latest_charge: Option<String>,
    pub(super) decline_code: Option<String>,
    pub(super) canceled_at_ms: Option<i64>,
    pub(super) captured_by: Option<String>,
}

impl TryFrom<IntentRow> for Arc<Intent> {
    type Error = anyhow::Error;

    fn try_from(row: IntentRow) -> anyhow::Result<Self> {
        let latest_charge = row.latest_charge.as_deref();
        Ok(Self::new(Intent {
            id: intent_id(&row.id)?,
            version: row.version,
            amount: row.amount,
            currency: currency(&row.currency)?,
            status: Status::from_name(&row.status).with_context(|| format!("status {:?} of {}", row.status, row.id))?,
            payment_method: row.payment_method.map(Into::into),
            description: row.description.map(Into::into),
            metadata: metadata(row.metadata),
            latest_charge: latest_charge.map(charge_id).transpose()?,
            decline: decline(row.decline_code.as_deref())?,
            canceled_at_ms: row.canceled_at_ms,
            captured_by: row.captured_by.map(Into::into),
        }))
    }
}

pub(super) struct ChargeRow {
    pub(super) id: String,
    pub(super) version: i32,
    pub(super) payment_intent: String,
    pub(super) amount: i64,
    pub(super) currency: String,
    pub(super) payment_method: String,
    pub(super) metadata: Json<BTreeMap<Box<str>, Box<str>>>,
    pub(super) decline_code: Option<String>,
    pub(super) amount_refunded: i64,
}

impl TryFrom<ChargeRow> for Arc<Charge> {
    type Error = anyhow::Error;

    fn try_from(row: ChargeRow) -> anyhow::Result<Self> {
        Ok(Self::new(Charge {
            id: charge_id(&row.id)?,
            version: row.version,
            intent: intent_id(&row.payment_intent)?,
            amount: row.amount,
            currency: currency(&row.currency)?,
            payment_method: row.payment_method.into(),
            metadata: metadata(row.metadata),
            decline: decline(row.decline_code.as_deref())?,
            amount_refunded: row.amount_refunded,
        }))
    }
}

pub(super) struct RefundRow {
    pub(super) id: String,
    pub(super) charge: String,
    pub(super) payment_intent: String,
    pub(super) amount: i64,
    pub(super) currency: String,
    pub(super) metadata: Json<BTreeMap<Box<str>, Box<str>>>,
    pub(super) reason: Option<String>,
    pub(super) status: String,
}

impl TryFrom<RefundRow> for Arc<Refund> {
    type Error = anyhow::Error;

    fn try_from(row: RefundRow) -> anyhow::Result<Self> {
        let reason = |name: &str| Reason::from_name(name).with_context(|| format!("{name:?} is no reason"));
        Ok(Self::new(Refund {
            id: RefundId::parse(&row.id).with_context(|| format!("{:?} names no refund", row.id))?,
            charge: charge_id(&row.charge)?,
            intent: intent_id(&row.payment_intent)?,
            amount: row.amount,
            currency: currency(&row.currency)?,
            metadata: metadata(row.metadata),
            reason: row.reason.as_deref().map(reason).transpose()?,
            status: RefundStatus::from_name(&row.status)
                .with_context(|| format!("status {:?} of {}", row.status, row.id))?,
        }))
    }
}

pub(super) struct EventRow {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) payment_intent: String,
    pub(super) object: Vec<u8>,
    pub(super) request_id: String,
    pub(super) idempotency_key: Option<String>,
    pub(super) pending: bool,
}

impl TryFrom<EventRow> for KeptEvent {
    type Error = anyhow::Error;

    fn try_from(row: EventRow) -> anyhow::Result<Self> {
        let json = serde_json::from_slice(&row.object).with_context(|| format!("the object of {}", row.id))?;
        let event = Event {
            id: EventId::parse(&row.id).with_context(|| format!("{:?} names no event", row.id))?,
            kind: EventKind::from_name(&row.kind).with_context(|| format!("{:?} is no type of event", row.kind))?,
            object: EventObject::Kept { intent: intent_id(&row.payment_intent)?, json },
            request_id: row.request_id.into(),
            key: row.idempotency_key.map(Into::into),
        };
        Ok(Self { event: Arc::new(event), pending: row.pending })
    }
}

pub(super) struct RecordRow {
    pub(super) path: String,
    pub(super) fingerprint: Vec<u8>,
    pub(super) request_id: String,
    pub(super) recorded_at_ms: i64,
    pub(super) status: i16,
    pub(super) body: Vec<u8>,
}

impl TryFrom<RecordRow> for Recorded {
    type Error = anyhow::Error;

    fn try_from(row: RecordRow) -> anyhow::Result<Self> {
        let fingerprint = row.fingerprint.try_into();
        Ok(Self {
            path: Cow::Owned(row.path),
            fingerprint: fingerprint.map_err(|_| anyhow!("a fingerprint that is not 32 bytes"))?,
            request_id: row.request_id.into(),
            at_ms: row.recorded_at_ms,
            answer: Answer::Bytes { status: StatusCode::from_u16(u16::try_from(row.status)?)?, body: row.body.into() },
        })
    }
}

pub(super) struct CaptureRow {
    pub(super) id: String,
    pub(super) captured_by: Option<String>,
    pub(super) reference: Option<String>,
    pub(super) amount: i64,
    pub(super) currency: String,
    pub(super) amount_refunded: Option<i64>,
    pub(super) executions: Option<i64>,
    pub(super) replays: Option<i64>,
}

impl TryFrom<CaptureRow> for Capture {
    type Error = anyhow::Error;

    fn try_from(row: CaptureRow) -> anyhow::Result<Self> {
        let payment_intent = intent_id(&row.id)?;
        Ok(Self {
            payment_intent,
            idempotency_key: row.captured_by.map(Into::into),
            reference: row.reference.map(Into::into),
            amount: row.amount,
            currency: row.currency.into(),
            amount_refunded: row.amount_refunded.unwrap_or(0),
            // Without a key, this execution is the only one that can be told to be its own.
            executions: row.executions.unwrap_or(1),
            replays: row.replays.unwrap_or(0),
            created: payment_intent.created_ms() / 1000,
        })
    }
}

fn intent_id(text: &str) -> anyhow::Result<IntentId> {
    IntentId::parse(text).with_context(|| format!("{text:?} names no payment intent"))
}

fn charge_id(text: &str) -> anyhow::Result<ChargeId> {
    ChargeId::parse(text).with_context(|| format!("{text:?} names no charge"))
}

fn currency(text: &str) -> anyhow::Result<Currency> {
    Currency::parse(text).with_context(|| format!("{text:?} is no currency"))
}

fn decline(code: Option<&str>) -> anyhow::Result<Option<Decline>> {
    code.map(|code| Decline::from_decline_code(code).with_context(|| format!("{code:?} is no decline"))).transpose()
}

fn metadata(pairs: Json<BTreeMap<Box<str>, Box<str>>>) -> Metadata {
    Metadata::new(pairs.0.into_iter().collect())
}
