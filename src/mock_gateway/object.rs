//! Payment intents, charges and refunds, and their JSON.
//!
//! Promise: the JSON is a pure function of the object, so a recorded answer may be kept as the object it shows; and every field
//! that a strictly typed client insists on is there.

use serde::{Serialize, Serializer, ser::SerializeStruct};

use super::{
    clock::{ChargeId, IntentId, RefundId},
    payment_methods::Decline,
};

/// One version of a payment intent. Versions are never changed, only followed by the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Intent {
    pub(super) id: IntentId,
    /// Counts the versions from 1: a writer names the one it read.
    pub(super) version: i32,
    pub(super) amount: i64,
    pub(super) currency: Currency,
    pub(super) status: Status,
    pub(super) payment_method: Option<Box<str>>,
    pub(super) description: Option<Box<str>>,
    pub(super) metadata: Metadata,
    pub(super) latest_charge: Option<ChargeId>,
    /// Why the latest charge failed, if it did.
    pub(super) decline: Option<Decline>,
    pub(super) canceled_at_ms: Option<i64>,
    /// The idempotency key of the request that captured the money.
    pub(super) captured_by: Option<Box<str>>,
}

/// One attempt to move the money of an intent. Versions follow each other as with intents: a refund makes the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Charge {
    pub(super) id: ChargeId,
    pub(super) version: i32,
    pub(super) intent: IntentId,
    pub(super) amount: i64,
    pub(super) currency: Currency,
    pub(super) payment_method: Box<str>,
    pub(super) metadata: Metadata,
    /// `None` is a charge that succeeded.
    pub(super) decline: Option<Decline>,
    /// What the customer has back of it.
    pub(super) amount_refunded: i64,
}

/// Money that goes back. Most succeed at once; one may wait for the customer's bank, and fail even after it had succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refund {
    pub(super) id: RefundId,
    pub(super) charge: ChargeId,
    pub(super) intent: IntentId,
    pub(super) amount: i64,
    pub(super) currency: Currency,
    pub(super) metadata: Metadata,
    pub(super) reason: Option<Reason>,
    pub(super) status: RefundStatus,
}

/// Where a refund stands, in the dialect's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefundStatus {
    Pending,
    Succeeded,
    /// The money is the shop's again.
    Failed,
}

impl RefundStatus {
    pub(super) const ALL: [Self; 3] = [Self::Pending, Self::Succeeded, Self::Failed];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Whether it may become this. What has failed stays so.
    pub(super) fn becomes(self, next: Self) -> bool {
        matches!((self, next), (Self::Pending, Self::Succeeded | Self::Failed) | (Self::Succeeded, Self::Failed))
    }
}

/// Why money goes back, in the dialect's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    Duplicate,
    Fraudulent,
    RequestedByCustomer,
}

impl Reason {
    pub(super) const ALL: [Self; 3] = [Self::Duplicate, Self::Fraudulent, Self::RequestedByCustomer];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Duplicate => "duplicate",
            Self::Fraudulent => "fraudulent",
            Self::RequestedByCustomer => "requested_by_customer",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    RequiresPaymentMethod,
    RequiresConfirmation,
    RequiresAction,
    Succeeded,
    Canceled,
}

impl Status {
    pub(super) const ALL: [Self; 5] = [
        Self::RequiresPaymentMethod,
        Self::RequiresConfirmation,
        Self::RequiresAction,
        Self::Succeeded,
        Self::Canceled,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::RequiresPaymentMethod => "requires_payment_method",
            Self::RequiresConfirmation => "requires_confirmation",
            Self::RequiresAction => "requires_action",
            Self::Succeeded => "succeeded",
            Self::Canceled => "canceled",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// Three lower-case letters; which currencies exist is not this gateway's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Currency([u8; 3]);

impl Currency {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let letters: [u8; 3] = text.as_bytes().try_into().ok()?;
        letters.iter().all(u8::is_ascii_alphabetic).then(|| Self(letters.map(|letter| letter.to_ascii_lowercase())))
    }

    pub(super) fn code(&self) -> &str {
        // Only letters get past `parse`.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// The client's own notes, sorted by name, each name once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Metadata(Box<[(Box<str>, Box<str>)]>);

impl Metadata {
    pub(super) fn new(mut pairs: Vec<(Box<str>, Box<str>)>) -> Self {
        pairs.sort_unstable();
        Self(pairs.into())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// What this payment is for in the client's own books.
    pub(super) fn reference(&self) -> Option<&str> {
        self.get("reference").or_else(|| self.get("order_id"))
    }
}

impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl Intent {
    pub(super) fn captured(&self) -> bool {
        self.status == Status::Succeeded
    }
}

/// An intent as a client asked to see it.
pub(super) struct Expanded<'a> {
    pub(super) intent: &'a Intent,
    /// Its latest charge as a whole, in place of its name.
    pub(super) latest_charge: Option<&'a Charge>,
}

impl Serialize for Intent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.write(None, serializer)
    }
}

impl Serialize for Expanded<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.intent.write(self.latest_charge, serializer)
    }
}

impl Intent {
    fn write<S: Serializer>(&self, latest_charge: Option<&Charge>, serializer: S) -> Result<S::Ok, S::Error> {
        let challenge = (self.status == Status::RequiresAction).then_some(NextAction { r#type: "use_stripe_sdk" });
        let error = self.decline.map(|decline| CardError {
            charge: self.latest_charge,
            code: decline.code(),
            decline_code: decline.decline_code(),
            message: decline.message(),
            r#type: "card_error",
        });
        let mut json = serializer.serialize_struct("PaymentIntent", 22)?;
        json.serialize_field("id", &self.id)?;
        json.serialize_field("object", "payment_intent")?;
        json.serialize_field("amount", &self.amount)?;
        json.serialize_field("amount_capturable", &0)?;
        json.serialize_field("amount_received", &if self.captured() { self.amount } else { 0 })?;
        json.serialize_field("canceled_at", &self.canceled_at_ms.map(|ms| ms / 1000))?;
        json.serialize_field("capture_method", "automatic")?;
        json.serialize_field("client_secret", &format_args!("{}_secret_mock", self.id))?;
        json.serialize_field("confirmation_method", "automatic")?;
        json.serialize_field("created", &(self.id.created_ms() / 1000))?;
        json.serialize_field("currency", self.currency.code())?;
        json.serialize_field("description", &self.description)?;
        json.serialize_field("last_payment_error", &error)?;
        match latest_charge {
            Some(charge) => json.serialize_field("latest_charge", charge)?,
            None => json.serialize_field("latest_charge", &self.latest_charge)?,
        }
        json.serialize_field("livemode", &false)?;
        json.serialize_field("metadata", &self.metadata)?;
        json.serialize_field("next_action", &challenge)?;
        json.serialize_field("payment_method", &self.payment_method)?;
        json.serialize_field("payment_method_types", &["card"])?;
        json.serialize_field("status", self.status.name())?;
        json.end()
    }
}

#[derive(Serialize)]
struct NextAction {
    r#type: &'static str,
}

#[derive(Serialize)]
struct CardError {
    charge: Option<ChargeId>,
    code: &'static str,
    decline_code: &'static str,
    message: &'static str,
    r#type: &'static str,
}

impl Charge {
    /// What it took, and could give back in all.
    pub(super) fn captured(&self) -> i64 {
        if self.decline.is_none() { self.amount } else { 0 }
    }

    pub(super) fn refunded(&self) -> bool {
        self.decline.is_none() && self.amount_refunded == self.amount
    }
}

impl Serialize for Charge {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let paid = self.decline.is_none();
        let mut json = serializer.serialize_struct("Charge", 19)?;
        json.serialize_field("id", &self.id)?;
        json.serialize_field("object", "charge")?;
        json.serialize_field("amount", &self.amount)?;
        json.serialize_field("amount_captured", &self.captured())?;
        json.serialize_field("amount_refunded", &self.amount_refunded)?;
        json.serialize_field("billing_details", &BillingDetails::default())?;
        json.serialize_field("captured", &paid)?;
        json.serialize_field("created", &(self.id.created_ms() / 1000))?;
        json.serialize_field("currency", self.currency.code())?;
        json.serialize_field("disputed", &false)?;
        json.serialize_field("failure_code", &self.decline.map(Decline::code))?;
        json.serialize_field("failure_message", &self.decline.map(Decline::message))?;
        json.serialize_field("livemode", &false)?;
        json.serialize_field("metadata", &self.metadata)?;
        json.serialize_field("paid", &paid)?;
        json.serialize_field("payment_intent", &self.intent)?;
        json.serialize_field("payment_method", &self.payment_method)?;
        json.serialize_field("refunded", &self.refunded())?;
        json.serialize_field("status", if paid { "succeeded" } else { "failed" })?;
        json.end()
    }
}

impl Serialize for Refund {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut json = serializer.serialize_struct("Refund", 11)?;
        json.serialize_field("id", &self.id)?;
        json.serialize_field("object", "refund")?;
        json.serialize_field("amount", &self.amount)?;
        json.serialize_field("charge", &self.charge)?;
        json.serialize_field("created", &(self.id.created_ms() / 1000))?;
        json.serialize_field("currency", self.currency.code())?;
        json.serialize_field("metadata", &self.metadata)?;
        json.serialize_field("payment_intent", &self.intent)?;
        json.serialize_field("reason", &self.reason.map(Reason::name))?;
        json.serialize_field("status", self.status.name())?;
        // As in the dialect: only of one that failed.
        if self.status == RefundStatus::Failed {
            json.serialize_field("failure_reason", "unknown")?;
        }
        json.end()
    }
}

/// The gateway keeps nothing about the customer; typed clients want the empty shape.
#[derive(Default, Serialize)]
struct BillingDetails {
    address: Option<()>,
    email: Option<()>,
    name: Option<()>,
    phone: Option<()>,
}
