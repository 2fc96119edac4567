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
    books::{Answer, Change, Commit, Committed},
    clock::{ChargeId, EventId, IntentId, RefundId},
    engine::Decision,
    events::Event,
    form::Form,
    lookups::Lookup,
    object::{Charge, Metadata, Reason, Refund, RefundStatus},
    paging::{self, List},
    payment_methods,
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
        status: payment_methods::refund(&before.payment_method).0,
    });
    let amount_refunded = before.amount_refunded + amount;
    let charge = Arc::new(Charge { version: before.version + 1, amount_refunded, ..before.clone() });
    Ok(Decision { answer: Answer::Refund(Arc::clone(&refund)), change: Change::Refund { refund, charge } })
}

/// Of a refund that was just made: what its card's bank makes of it, if that is not over yet. A gateway that is killed
/// meanwhile forgets it, and [`end`] is how to say it then.
pub(super) fn end_later(gateway: &Arc<Gateway>, refund: &Refund, charge: &Charge) {
    let (id, (_, ends)) = (refund.id, payment_methods::refund(&charge.payment_method));
    let Some(status) = ends else { return };
    let gateway = Arc::clone(gateway);
    gateway.executions.clone().spawn(async move {
        tokio::select! {
            () = tokio::time::sleep(gateway.clock.refund_ends()) => {}
            () = gateway.stop.cancelled() => return,
        }
        match end(&gateway, id, status).await {
            Ok(Ok(_)) => {}
            // The control plane was faster.
            Ok(Err(refusal)) => tracing::info!(%id, ?refusal, "a refund ended otherwise than its card says"),
            Err(error) => tracing::error!(%id, error = format!("{error:#}"), "a refund cannot be ended"),
        }
    });
}

/// Turns of one who meets others at the same charge.
const TURNS_MAX: usize = 8;

/// Brings a refund to its end, or turns one down that had succeeded: then its money is no longer given back. To say it twice is
/// to say it once.
pub(super) async fn end(
    gateway: &Gateway,
    id: RefundId,
    status: RefundStatus,
) -> anyhow::Result<Result<Arc<Refund>, Refusal>> {
    let missing = || Refusal::missing(StatusCode::NOT_FOUND, "id", format!("No such refund: '{id}'"));
    for _ in 0..TURNS_MAX {
        let Some(seen) = gateway.books.refund(id).await? else { return Ok(Err(missing())) };
        let Some(before) = gateway.books.charge(seen.charge).await? else { return Ok(Err(missing())) };
        // Once more, after its charge: if somebody has ended it in between, the charge has a next version by now.
        let Some(refund) = gateway.books.refund(id).await? else { return Ok(Err(missing())) };
        if refund.status == status {
            return Ok(Ok(refund));
        }
        if !refund.status.becomes(status) {
            let message = format!("A refund that is {} does not become {}.", refund.status.name(), status.name());
            return Ok(Err(Refusal::invalid(message).about("status")));
        }
        let back = if status == RefundStatus::Failed { refund.amount } else { 0 };
        let amount_refunded = before.amount_refunded - back;
        let charge = Arc::new(Charge { version: before.version + 1, amount_refunded, ..(*before).clone() });
        let refund = Arc::new(Refund { status, ..(*refund).clone() });
        let change = Change::RefundEnded { refund: Arc::clone(&refund), charge };
        let event = gateway.webhooks.keep(|| {
            let event = EventId(gateway.names.mint(gateway.clock.now_ms()));
            Event::of(&change, event, &gateway.names.request(), None)
        });
        let news = event.clone();
        let commit = Commit { change: Some(change), event, key: None };
        if gateway.books.commit(commit).await? == Committed::Done {
            if let Some(news) = news {
                gateway.webhooks.committed(news);
            }
            return Ok(Ok(refund));
        }
    }
    anyhow::bail!("the charge of {id} is changed by others all the time")
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
