//! One page: which request goes where, and whose credentials are good.
//!
//! Promise: a path or method that is not here is refused in the dialect's own envelope.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header::AUTHORIZATION, request::Parts};

use super::{
    Gateway, control, events,
    form::Form,
    lookups,
    payments::Answered,
    refunds,
    reply::{Refusal, Reply},
    requests::{Verb, change, create},
};

pub(super) async fn dispatch(
    gateway: &Arc<Gateway>,
    request_id: &str,
    head: &Parts,
    body: &Bytes,
) -> Result<Answered, Refusal> {
    let path = head.uri.path();
    if let Some(path) = path.strip_prefix("/_mock/") {
        return control::answer(gateway, &head.method, path, head.uri.query().unwrap_or_default(), body)
            .await
            .map(Answered::Reply);
    }
    if path == "/livez" {
        return Ok(Answered::Reply(Reply::ok(&serde_json::json!({ "status": "ok" }))));
    }
    authenticate(&head.headers)?;
    on_behalf_of_nobody(&head.headers)?;
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let get = head.method == Method::GET || head.method == Method::HEAD;
    let post = head.method == Method::POST;
    let query = head.uri.query().unwrap_or_default().as_bytes();
    let lookup = match *segments {
        ["v1", "payment_intents"] if post => return create(gateway, request_id, head, body).await,
        ["v1", "payment_intents", id, "confirm"] if post => {
            return change(gateway, request_id, head, body, id, Verb::Confirm).await;
        }
        ["v1", "payment_intents", id, "cancel"] if post => {
            return change(gateway, request_id, head, body, id, Verb::Cancel).await;
        }
        ["v1", "payment_intents"] if get => lookups::intents(gateway, &Form::parse(query)?).await,
        ["v1", "payment_intents", "search"] if get => lookups::search(gateway, &Form::parse(query)?).await,
        ["v1", "payment_intents", id] if get => lookups::intent(gateway, &Form::parse(query)?, id).await,
        ["v1", "charges"] if get => lookups::charges(gateway, &Form::parse(query)?).await,
        ["v1", "charges", id] if get => lookups::charge(gateway, &Form::parse(query)?, id).await,
        ["v1", "refunds"] if post => return refunds::create(gateway, request_id, head, body).await,
        ["v1", "refunds"] if get => refunds::list(gateway, &Form::parse(query)?).await,
        ["v1", "refunds", id] if get => refunds::one(gateway, &Form::parse(query)?, id).await,
        ["v1", "events"] if get => events::list(gateway, &Form::parse(query)?).await,
        ["v1", "events", id] if get => events::one(gateway, &Form::parse(query)?, id).await,
        ["v1", "payment_intents"] | ["v1", "refunds"] => return Err(not_allowed(head, "GET, POST")),
        ["v1", "payment_intents", _, "confirm" | "cancel"] => return Err(not_allowed(head, "POST")),
        ["v1", "payment_intents" | "charges" | "refunds" | "events", _] | ["v1", "charges" | "events"] => {
            return Err(not_allowed(head, "GET"));
        }
        _ => {
            let message = format!("Unrecognized request URL ({}: {path}).", head.method);
            return Err(Refusal::new(StatusCode::NOT_FOUND, "invalid_request_error", message));
        }
    };
    match lookup {
        Ok(reply) => Ok(Answered::Reply(reply?)),
        Err(error) => {
            tracing::error!(request_id, error = format!("{error:#}"), "a lookup failed");
            Err(Refusal::internal())
        }
    }
}

fn not_allowed(head: &Parts, allowed: &'static str) -> Refusal {
    let message = format!("{} is not allowed here: use {allowed}.", head.method);
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message).allowing(allowed)
}

/// A platform acts for its merchants with this header. Ignored, it would charge in the platform's own name.
fn on_behalf_of_nobody(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(account) = headers.get("stripe-account") else { return Ok(()) };
    let message = format!(
        "The provided key does not have access to account '{}': this gateway has no connected accounts.",
        account.to_str().unwrap_or("?")
    );
    Err(Refusal::new(StatusCode::FORBIDDEN, "invalid_request_error", message).coded("account_invalid"))
}

/// Any secret key of test mode is good: bearer, or the user of basic credentials with an empty password.
fn authenticate(headers: &HeaderMap) -> Result<(), Refusal> {
    let refuse = |message| Err(Refusal::new(StatusCode::UNAUTHORIZED, "invalid_request_error", message));
    let Some(credentials) = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()) else {
        return refuse("You did not provide an API key: send 'Authorization: Bearer sk_test_…'.");
    };
    let good = match credentials.split_once(' ') {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => key.trim_start().starts_with("sk_test_"),
        // Base64 of `sk_test_`: ten characters, and an eleventh that also carries two bits of what follows.
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("basic") => {
            key.trim_start().strip_prefix("c2tfdGVzdF").is_some_and(|rest| rest.starts_with(['8', '9', '+', '/']))
        }
        _ => false,
    };
    if good { Ok(()) } else { refuse("Invalid API Key provided: this gateway knows keys that start with sk_test_.") }
}
