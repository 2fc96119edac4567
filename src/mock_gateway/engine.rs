//! What a payment intent becomes. Pure: names and time come in, objects come out.
//!
//! Promise: money is taken in exactly one place, [`charged`], and only when the issuer approves. (What goes back:
//! [`super::refunds`].)

use std::sync::Arc;

use http::StatusCode;

use super::{
    books::{Answer, Change},
    clock::{ChargeId, IntentId},
    object::{Charge, Currency, Intent, Metadata, Status},
    payment_methods::{self, Issuer},
    reply::Refusal,
};

/// A request to create an intent, checked.
#[derive(Debug)]
pub(super) struct Create {
    pub(super) amount: i64,
    pub(super) currency: Currency,
    pub(super) payment_method: Option<Card>,
    pub(super) confirm: bool,
    pub(super) description: Option<Box<str>>,
    pub(super) metadata: Metadata,
}

/// A payment method with the issuer behind it.
#[derive(Debug, Clone)]
pub(super) struct Card {
    pub(super) name: Box<str>,
    pub(super) issuer: Issuer,
}

impl Card {
    pub(super) fn find(name: &str) -> Result<Self, Refusal> {
        match payment_methods::issuer(name) {
            Some(issuer) => Ok(Self { name: name.into(), issuer }),
            None => Err(Refusal::missing(
                StatusCode::BAD_REQUEST,
                "payment_method",
                format!("No such PaymentMethod: '{name}'"),
            )),
        }
    }
}

/// What to write, and what to answer.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) change: Change,
    pub(super) answer: Answer,
}

/// The names that this execution may give, and the key it runs under.
#[derive(Debug)]
pub(super) struct Given<'a> {
    pub(super) intent: IntentId,
    pub(super) charge: ChargeId,
    pub(super) now_ms: i64,
    pub(super) key: Option<&'a str>,
}

pub(super) fn create(given: &Given<'_>, create: &Create) -> Decision {
    let status = match create.payment_method {
        Some(_) => Status::RequiresConfirmation,
        None => Status::RequiresPaymentMethod,
    };
    let intent = Intent {
        id: given.intent,
        version: 1,
        amount: create.amount,
        currency: create.currency,
        status,
        payment_method: create.payment_method.as_ref().map(|card| card.name.clone()),
        description: create.description.clone(),
        metadata: create.metadata.clone(),
        latest_charge: None,
        decline: None,
        canceled_at_ms: None,
        captured_by: None,
    };
    match &create.payment_method {
        Some(card) if create.confirm => charged(given, intent, card.issuer),
        _ => shown(intent, None),
    }
}

pub(super) fn confirm(given: &Given<'_>, before: &Intent, card: Option<&Card>) -> Result<Decision, Refusal> {
    match before.status {
        Status::RequiresPaymentMethod | Status::RequiresConfirmation => {}
        Status::RequiresAction | Status::Succeeded | Status::Canceled => return Err(unexpected("confirm", before)),
    }
    let mut intent = Intent { version: before.version + 1, ..before.clone() };
    let issuer = match card {
        Some(card) => {
            intent.payment_method = Some(card.name.clone());
            card.issuer
        }
        None => match before.payment_method.as_deref().and_then(payment_methods::issuer) {
            Some(issuer) => issuer,
            None => {
                let message = "You cannot confirm this PaymentIntent because it's missing a payment method.";
                return Err(Refusal::invalid(message).coded("payment_intent_unexpected_state"));
            }
        },
    };
    Ok(charged(given, intent, issuer))
}

pub(super) fn cancel(given: &Given<'_>, before: &Intent) -> Result<Decision, Refusal> {
    match before.status {
        Status::Succeeded | Status::Canceled => Err(unexpected("cancel", before)),
        Status::RequiresPaymentMethod | Status::RequiresConfirmation | Status::RequiresAction => {
            let mut intent = Intent { version: before.version + 1, status: Status::Canceled, ..before.clone() };
            intent.canceled_at_ms = Some(given.now_ms);
            Ok(shown(intent, None))
        }
    }
}

/// The one place where money is taken.
fn charged(given: &Given<'_>, mut intent: Intent, issuer: Issuer) -> Decision {
    let decline = match issuer {
        Issuer::Approves => None,
        Issuer::Declines(decline) => Some(decline),
        Issuer::Challenges => {
            intent.status = Status::RequiresAction;
            return shown(intent, None);
        }
    };
    let charge = Charge {
        id: given.charge,
        version: 1,
        intent: intent.id,
        amount: intent.amount,
        currency: intent.currency,
        payment_method: intent.payment_method.clone().unwrap_or_default(),
        metadata: intent.metadata.clone(),
        decline,
        amount_refunded: 0,
    };
    intent.latest_charge = Some(charge.id);
    intent.decline = decline;
    if decline.is_some() {
        // As in the dialect: the refused payment method is let go, so a confirmation needs a new one.
        intent.payment_method = None;
        intent.status = Status::RequiresPaymentMethod;
        let intent = Arc::new(intent);
        let answer = Answer::Declined(Arc::clone(&intent));
        return Decision { answer, change: Change::Payment { intent, charge: Some(Arc::new(charge)) } };
    }
    intent.status = Status::Succeeded;
    intent.captured_by = given.key.map(Into::into);
    shown(intent, Some(charge))
}

fn shown(intent: Intent, charge: Option<Charge>) -> Decision {
    let intent = Arc::new(intent);
    let answer = Answer::Intent { intent: Arc::clone(&intent), latest_charge: None };
    Decision { answer, change: Change::Payment { intent, charge: charge.map(Arc::new) } }
}

fn unexpected(verb: &str, intent: &Intent) -> Refusal {
    let message = format!("You cannot {verb} this PaymentIntent because it has a status of {}.", intent.status.name());
    Refusal::invalid(message).coded("payment_intent_unexpected_state")
}
