//! From a POST to a request that may move money: parse, validate, key.
//!
//! Promise: whatever is wrong with a request is found here, before its key is touched, so a corrected one may use the same key.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, header::CONTENT_TYPE, request::Parts};

use super::{
    Gateway,
    clock::IntentId,
    engine::{Card, Create},
    faults::Asked,
    form::Form,
    keys::{KEY_LENGTH_MAX, Keyed, fingerprint},
    payments::{self, Answered, Command},
    reply::Refusal,
};

pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// What decides when the money is taken. Here that is at once, and saying so is no error.
const CAPTURE_AT_ONCE: [&str; 2] = ["capture_method", "confirmation_method"];

pub(super) async fn create(
    gateway: &Arc<Gateway>,
    request_id: &str,
    head: &Parts,
    body: &Bytes,
) -> Result<Answered, Refusal> {
    let form = form(head, body)?;
    let fields = ["amount", "confirm", "currency", "description", "expand", "metadata", "payment_method"];
    form.only_or_accepted(&[&fields[..], &CAPTURE_AT_ONCE].concat())?;
    for name in CAPTURE_AT_ONCE {
        form.only_value(name, "automatic")?;
    }
    let create = Create {
        amount: form.amount()?,
        currency: form.currency()?,
        payment_method: form.get("payment_method").map(Card::find).transpose()?,
        confirm: form.flag("confirm")?,
        description: form.text("description")?,
        metadata: form.metadata()?,
    };
    if create.confirm && create.payment_method.is_none() {
        let message = "You cannot confirm this PaymentIntent because it's missing a payment method.";
        return Err(Refusal::invalid(message).coded("payment_intent_unexpected_state"));
    }
    let asked = asked(&form, create.metadata.get("mock_fault"))?;
    let keyed = keyed(head, Cow::Borrowed("/v1/payment_intents"), &form)?;
    let expands = form.expands("latest_charge")?;
    let request = payments::Request { id: request_id.into(), keyed, command: Command::Create(create), asked, expands };
    Ok(payments::post(gateway, request).await)
}

/// What becomes of an intent that exists already.
#[derive(Debug, Clone, Copy)]
pub(super) enum Verb {
    Confirm,
    Cancel,
}

pub(super) async fn change(
    gateway: &Arc<Gateway>,
    request_id: &str,
    head: &Parts,
    body: &Bytes,
    id: &str,
    verb: Verb,
) -> Result<Answered, Refusal> {
    let form = form(head, body)?;
    let intent = IntentId::parse(id).ok_or_else(|| payments::no_such_intent(id))?;
    let (known, command): (&[&str], _) = match verb {
        Verb::Confirm => {
            let card = form.get("payment_method").map(Card::find).transpose()?;
            (&["expand", "payment_method"], Command::Confirm { intent, card })
        }
        Verb::Cancel => (&["cancellation_reason", "expand"], Command::Cancel { intent }),
    };
    form.only_or_accepted(known)?;
    let expands = form.expands("latest_charge")?;
    let asked = asked(&form, None)?;
    let keyed = keyed(head, Cow::Owned(head.uri.path().to_owned()), &form)?;
    Ok(payments::post(gateway, payments::Request { id: request_id.into(), keyed, command, asked, expands }).await)
}

pub(super) fn form<'a>(head: &Parts, body: &'a Bytes) -> Result<Form<'a>, Refusal> {
    let form = HeaderValue::from_static("application/x-www-form-urlencoded");
    match head.headers.get(CONTENT_TYPE) {
        Some(kind) if !kind.as_bytes().starts_with(form.as_bytes()) => Err(Refusal::invalid(
            "Invalid request (check that your POST content type is application/x-www-form-urlencoded).",
        )),
        _ => Form::parse(body),
    }
}

/// The fault this request asks for by its payment method or its metadata.
pub(super) fn asked(form: &Form<'_>, metadata: Option<&str>) -> Result<Option<Asked>, Refusal> {
    if let Some(fault) = form.get("payment_method").and_then(|name| name.strip_prefix("pm_mock_")) {
        return Ok(Asked::parse(fault));
    }
    let unknown =
        |name| Refusal::parameter("parameter_invalid", "metadata[mock_fault]", format!("No such fault: {name}"));
    metadata.map(|name| Asked::parse(name).ok_or_else(|| unknown(name))).transpose()
}

pub(super) fn keyed(head: &Parts, path: Cow<'static, str>, form: &Form<'_>) -> Result<Option<Keyed>, Refusal> {
    let Some(key) = head.headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    match key.to_str() {
        Ok(key) if (1..=KEY_LENGTH_MAX).contains(&key.len()) => {
            let fingerprint = fingerprint(head.method.as_str(), &path, form);
            Ok(Some(Keyed { key: key.into(), path, fingerprint }))
        }
        _ => Err(Refusal::invalid("An idempotency key has between 1 and 255 visible ASCII characters.")),
    }
}
