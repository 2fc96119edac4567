//! Refunds: money that goes back.
//!
//! Promise: the refunds of a charge never exceed what it took, however many are asked for at once: each is the next version of
//! its charge, and the books take only one next version.
//! It answers: what may still be given back, and who was given what?

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use http::{StatusCode, request::Parts};

use super::{
    Gateway,
    books::{Answer, Change},
    clock::{ChargeId, IntentId, RefundId},
    engine::Decision,
    form::Form,
    lookups::Lookup,
    object::{Charge, Metadata, Reason, Refund},
    paging::{self, List},
    payments::{self, Answered, Command, no_such_intent},
    reply::{Refusal, Reply},
    requests::{asked, form, keyed},
};

/// A request to give money back, checked.
#[derive(Debug)]
pub(super) struct RefundAsked {
    pub(super) of: Refunded,
    /// Without it: all that is left.
    amount: Option<i64>,
    metadata: Metadata,
    reason: Option<Reason>,
}

/// By which name the charge is given. A name that cannot be one of ours is nobody's.
#[derive(Debug, Clone)]
pub(super) enum Refunded {
    Intent(Box<str>),
    Charge(Box<str>),
}

pub(super) async fn create(
    gateway: &Arc<Gateway>,
    request_id: &str,
    head: &Parts,
    body: &Bytes,
) -> Result<Answered, Refusal> {
    let form = form(head, body)?;
    form.only(&["amount", "charge", "metadata", "payment_intent", "reason"])?;
    let reason = form.text("reason")?.map(|name| {
        let message = "reason is one of duplicate, fraudulent, requested_by_customer.";
        Reason::from_name(&name).ok_or_else(|| Refusal::parameter("parameter_invalid", "reason", message))
    });
    let asked_for = RefundAsked {
        of: refunded(&form)?,
        amount: form.get("amount").filter(|text| !text.is_empty()).map(|_| form.amount()).transpose()?,
        metadata: form.metadata()?,
        reason: reason.transpose()?,
    };
    let asked = asked(&form, asked_for.metadata.get("mock_fault"))?;
    let keyed = keyed(head, Cow::Borrowed("/v1/refunds"), &form)?;
    let command = Command::Refund(asked_for);
    let request = payments::Request { id: request_id.into(), keyed, command, asked, expands: false };
    Ok(payments::post(gateway, request).await)
}

fn refunded(form: &Form<'_>) -> Result<Refunded, Refusal> {
    match (form.text("payment_intent")?, form.text("charge")?) {
        (Some(intent), None) => Ok(Refunded::Intent(intent)),
        (None, Some(charge)) => Ok(Refunded::Charge(charge)),
        (Some(_), Some(_)) => {
            Err(Refusal::invalid("You may only specify one of these parameters: payment_intent, charge."))
        }
        (None, None) => {
            let message = "One of the following params should be provided for this request: payment_intent or charge.";
            Err(Refusal::invalid(message).coded("parameter_missing"))
        }
    }
}

/// The charge a refund is about.
pub(super) async fn charge(gateway: &Gateway, of: &Refunded) -> anyhow::Result<Result<Arc<Charge>, Refusal>> {
    let name = match of {
        Refunded::Intent(name) => name,
        Refunded::Charge(name) => {
            let found = match ChargeId::parse(name) {
                Some(id) => gateway.books.charge(id).await?,
                None => None,
            };
            let message = || format!("No such charge: '{name}'");
            return Ok(found.ok_or_else(|| Refusal::missing(StatusCode::NOT_FOUND, "charge", message())));
        }
    };
    let intent = match IntentId::parse(name) {
        Some(id) => gateway.books.intent(id).await?,
        None => None,
    };
    let Some(intent) = intent else { return Ok(Err(no_such_intent(name))) };
    let found = match intent.latest_charge {
        Some(id) => gateway.books.charge(id).await?,
        None => None,
    };
    let nothing = || {
        let message = format!("This PaymentIntent ({}) does not have a successful charge to refund.", intent.id);
        Refusal::invalid(message).coded("payment_intent_unexpected_state")
    };
    Ok(found.ok_or_else(nothing))
}

/// What becomes of the charge. Pure: names come in, objects come out.
pub(super) fn decide(id: RefundId, before: &Charge, asked: &RefundAsked) -> Result<Decision, Refusal> {
    if before.decline.is_some() {
        let message = format!("Charge {} failed: there is nothing to refund.", before.id);
        return Err(Refusal::invalid(message).coded("charge_not_refundable"));
    }
    let left = before.captured() - before.amount_refunded;
    if left == 0 {
        let message = format!("Charge {} has already been refunded.", before.id);
        return Err(Refusal::invalid(message).coded("charge_already_refunded"));
    }
    let amount = asked.amount.unwrap_or(left);
    if amount > left {
        return Err(too_much(before, amount, left));
    }
    let refund = Arc::new(Refund {
        id,
        charge: before.id,
        intent: before.intent,
        amount,
        currency: before.currency,
        metadata: asked.metadata.clone(),
        reason: asked.reason,
    });
    let amount_refunded = before.amount_refunded + amount;
    let charge = Arc::new(Charge { version: before.version + 1, amount_refunded, ..before.clone() });
    Ok(Decision { answer: Answer::Refund(Arc::clone(&refund)), change: Change::Refund { refund, charge } })
}

/// In the dialect's own words, which clients match for want of a code.
fn too_much(charge: &Charge, amount: i64, left: i64) -> Refusal {
    let money = |amount: i64| {
        let (whole, cents) = (amount / 100, amount % 100);
        match charge.currency.code() {
            "eur" => format!("€{whole}.{cents:02}"),
            "gbp" => format!("£{whole}.{cents:02}"),
            "usd" => format!("${whole}.{cents:02}"),
            other => format!("{whole}.{cents:02} {}", other.to_uppercase()),
        }
    };
    let limit = if charge.amount_refunded == 0 { "charge amount" } else { "unrefunded amount on charge" };
    let message = format!("Refund amount ({}) is greater than {limit} ({})", money(amount), money(left));
    Refusal::invalid(message).about("amount")
}

pub(super) async fn one(gateway: &Gateway, form: &Form<'_>, id: &str) -> Lookup {
    if let Err(refusal) = form.only(&[]) {
        return Ok(Err(refusal));
    }
    let found = match RefundId::parse(id) {
        Some(id) => gateway.books.refund(id).await?,
        None => None,
    };
    let missing = || Refusal::missing(StatusCode::NOT_FOUND, "id", format!("No such refund: '{id}'"));
    Ok(found.map(|refund| Reply::ok(&*refund)).ok_or_else(missing))
}

pub(super) async fn list(gateway: &Gateway, form: &Form<'_>) -> Lookup {
    let asked = paging::window(form, &["payment_intent"]).and_then(|window| {
        let intent = form.get("payment_intent").map(|name| IntentId::parse(name).ok_or_else(|| no_such_intent(name)));
        Ok((intent.transpose()?, window, paging::limit(form)?))
    });
    let (intent, window, limit) = match asked {
        Ok(asked) => asked,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let found = gateway.books.refunds(intent, window, limit + 1).await?;
    let data: Vec<_> = found.iter().map(AsRef::<Refund>::as_ref).collect();
    Ok(Ok(Reply::ok(&List::page(data, limit, window.edge, "/v1/refunds"))))
}
