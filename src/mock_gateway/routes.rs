//! One page: which request goes where, whose credentials are good, and what headers every answer carries.
//!
//! Promise: every path, method, size and panic ends in the dialect's own envelope.

use std::{
    borrow::Cow,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, AUTHORIZATION, CONTENT_TYPE},
    request::Parts,
};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use super::{
    Gateway,
    clock::IntentId,
    control,
    engine::{Card, Create},
    faults::{Asked, Fate, FaultName},
    form::Form,
    keys::{KEY_LENGTH_MAX, Keyed, fingerprint},
    lookups,
    payments::{self, Answered, Command},
    reply::{Cut, Refusal, Reply, ReplyBody},
};

const BODY_BYTES_MAX: usize = 64 * 1024;
/// A client that sends slower than this is no client.
const BODY_S: u64 = 10;
/// A hang ends too, long after any client has left.
const HANG_S: u64 = 600;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const ORIGINAL_REQUEST: HeaderName = HeaderName::from_static("original-request");
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");
const VERSION: HeaderName = HeaderName::from_static("stripe-version");

/// Answers one request, or cuts its connection.
pub(super) async fn answer(
    gateway: Arc<Gateway>,
    reset: Arc<AtomicBool>,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Cut> {
    let request_id: Box<str> = gateway.names.request().into();
    let (head, body) = request.into_parts();
    let answered = AssertUnwindSafe(receive(&gateway, &request_id, &head, body)).catch_unwind().await;
    let (reply, fate) = match answered {
        Ok(Ok(Answered::Reply(reply))) => (reply, None),
        Ok(Ok(Answered::Fated(reply, fate))) => (reply, Some(fate)),
        Ok(Ok(Answered::Dropped)) => return Err(Cut),
        Ok(Err(refusal)) => (refusal.into(), None),
        Err(_panic) => {
            // The panic hook has already said what and where.
            tracing::error!(request_id = &*request_id, path = head.uri.path(), "a request panicked");
            (Refusal::internal().into(), None)
        }
    };
    let reply = match fate {
        Some(fate) => suffer(&gateway, &reset, reply, fate).await?,
        None => reply,
    };
    Ok(respond(&request_id, &head.headers, reply))
}

/// The way back, for an answer whose request drew a fault.
async fn suffer(gateway: &Gateway, reset: &AtomicBool, mut reply: Reply, fate: Fate) -> Result<Reply, Cut> {
    let Some(fault) = fate.fault else { return Ok(reply) };
    match fault.name {
        FaultName::LatencyAfter => {
            gateway.stats.fired(fault.name);
            pause(gateway, Duration::from_millis(fault.latency_ms)).await;
        }
        FaultName::HangAfter => {
            gateway.stats.fired(fault.name);
            pause(gateway, Duration::from_secs(HANG_S)).await;
            return Err(Cut);
        }
        FaultName::DropAfter => {
            gateway.stats.fired(fault.name);
            return Err(Cut);
        }
        FaultName::RstAfter => {
            gateway.stats.fired(fault.name);
            reset.store(true, Ordering::Relaxed);
            return Err(Cut);
        }
        FaultName::TruncateAfter => {
            gateway.stats.fired(fault.name);
            reply.body = reply.body.cut_in_half();
        }
        // These have done their work before or during the execution.
        FaultName::Refuse
        | FaultName::LatencyBefore
        | FaultName::Http503Before
        | FaultName::Http429Before
        | FaultName::Http500Before
        | FaultName::DropBefore
        | FaultName::Http500After
        | FaultName::IgnoreIdempotency => {}
    }
    Ok(reply)
}

/// Sleeps, but never past the end of the gateway.
async fn pause(gateway: &Gateway, pause: Duration) {
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        () = gateway.stop.cancelled() => {}
    }
}

async fn receive(gateway: &Arc<Gateway>, request_id: &str, head: &Parts, body: Incoming) -> Result<Answered, Refusal> {
    let body = read(body).await?;
    let path = head.uri.path();
    if let Some(path) = path.strip_prefix("/_mock/") {
        return control::answer(gateway, &head.method, path, head.uri.query().unwrap_or_default(), &body)
            .await
            .map(Answered::Reply);
    }
    if path == "/livez" {
        return Ok(Answered::Reply(Reply::ok(&serde_json::json!({ "status": "ok" }))));
    }
    authenticate(&head.headers)?;
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let get = head.method == Method::GET || head.method == Method::HEAD;
    let post = head.method == Method::POST;
    let query = head.uri.query().unwrap_or_default().as_bytes();
    let lookup = match *segments {
        ["v1", "payment_intents"] if post => return create(gateway, request_id, head, &body).await,
        ["v1", "payment_intents", id, "confirm"] if post => {
            return change(gateway, request_id, head, &body, id, Verb::Confirm).await;
        }
        ["v1", "payment_intents", id, "cancel"] if post => {
            return change(gateway, request_id, head, &body, id, Verb::Cancel).await;
        }
        ["v1", "payment_intents"] if get => lookups::intents(gateway, &Form::parse(query)?).await,
        ["v1", "payment_intents", "search"] if get => lookups::search(gateway, &Form::parse(query)?).await,
        ["v1", "payment_intents", id] if get => lookups::intent(gateway, &Form::parse(query)?, id).await,
        ["v1", "charges"] if get => lookups::charges(gateway, &Form::parse(query)?).await,
        ["v1", "charges", id] if get => lookups::charge(gateway, &Form::parse(query)?, id).await,
        ["v1", "payment_intents"] => return Err(not_allowed(head, "GET, POST")),
        ["v1", "payment_intents", _, "confirm" | "cancel"] => return Err(not_allowed(head, "POST")),
        ["v1", "payment_intents" | "charges", _] | ["v1", "charges"] => return Err(not_allowed(head, "GET")),
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

async fn create(gateway: &Arc<Gateway>, request_id: &str, head: &Parts, body: &Bytes) -> Result<Answered, Refusal> {
    let form = form(head, body)?;
    form.only(&["amount", "confirm", "currency", "description", "metadata", "payment_method"])?;
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
    let request = payments::Request { id: request_id.into(), keyed, command: Command::Create(create), asked };
    Ok(payments::post(gateway, request).await)
}

#[derive(Clone, Copy)]
enum Verb {
    Confirm,
    Cancel,
}

async fn change(
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
            (&["payment_method"], Command::Confirm { intent, card })
        }
        Verb::Cancel => (&["cancellation_reason"], Command::Cancel { intent }),
    };
    form.only(known)?;
    let asked = asked(&form, None)?;
    let keyed = keyed(head, Cow::Owned(head.uri.path().to_owned()), &form)?;
    Ok(payments::post(gateway, payments::Request { id: request_id.into(), keyed, command, asked }).await)
}

fn form<'a>(head: &Parts, body: &'a Bytes) -> Result<Form<'a>, Refusal> {
    let form = HeaderValue::from_static("application/x-www-form-urlencoded");
    match head.headers.get(CONTENT_TYPE) {
        Some(kind) if !kind.as_bytes().starts_with(form.as_bytes()) => Err(Refusal::invalid(
            "Invalid request (check that your POST content type is application/x-www-form-urlencoded).",
        )),
        _ => Form::parse(body),
    }
}

/// The fault this request asks for by its payment method or its metadata.
fn asked(form: &Form<'_>, metadata: Option<&str>) -> Result<Option<Asked>, Refusal> {
    if let Some(fault) = form.get("payment_method").and_then(|name| name.strip_prefix("pm_mock_")) {
        return Ok(Asked::parse(fault));
    }
    let unknown =
        |name| Refusal::parameter("parameter_invalid", "metadata[mock_fault]", format!("No such fault: {name}"));
    metadata.map(|name| Asked::parse(name).ok_or_else(|| unknown(name))).transpose()
}

fn keyed(head: &Parts, path: Cow<'static, str>, form: &Form<'_>) -> Result<Option<Keyed>, Refusal> {
    let Some(key) = head.headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    match key.to_str() {
        Ok(key) if (1..=KEY_LENGTH_MAX).contains(&key.len()) => {
            let fingerprint = fingerprint(head.method.as_str(), &path, form);
            Ok(Some(Keyed { key: key.into(), path, fingerprint }))
        }
        _ => Err(Refusal::invalid("An idempotency key has between 1 and 255 visible ASCII characters.")),
    }
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

async fn read(body: Incoming) -> Result<Bytes, Refusal> {
    let too_large = || {
        let message = format!("A request body may have at most {BODY_BYTES_MAX} bytes.");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message)
    };
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    let read = tokio::time::timeout(Duration::from_secs(BODY_S), frames(body)).await;
    match read {
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => Err(too_large()),
        Ok(Err(_)) | Err(_) => Err(Refusal::invalid("The request body did not arrive in full.")),
    }
}

/// `None` when there is too much. The usual body is a single frame, which is passed on as it is.
async fn frames(mut body: Incoming) -> Result<Option<Bytes>, hyper::Error> {
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if first.len() + rest.len() + data.len() > BODY_BYTES_MAX {
            return Ok(None);
        }
        if first.is_empty() { first = data } else { rest.extend_from_slice(&data) }
    }
    if rest.is_empty() {
        return Ok(Some(first));
    }
    let mut whole = BytesMut::with_capacity(first.len() + rest.len());
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&rest);
    Ok(Some(whole.freeze()))
}

fn respond(request_id: &str, asked: &HeaderMap, reply: Reply) -> Response<ReplyBody> {
    let mut response = Response::new(reply.body);
    *response.status_mut() = reply.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut insert = |name: HeaderName, value: &str| {
        // What we name ourselves is always a valid header value.
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    insert(REQUEST_ID, request_id);
    if let Some(original) = &reply.replayed_from {
        insert(IDEMPOTENT_REPLAYED, "true");
        insert(ORIGINAL_REQUEST, original);
    }
    if let Some(should_retry) = reply.should_retry {
        insert(SHOULD_RETRY, if should_retry { "true" } else { "false" });
    }
    if let Some(allow) = reply.allow {
        insert(ALLOW, allow);
    }
    for echoed in [IDEMPOTENCY_KEY, VERSION] {
        if let Some(value) = asked.get(&echoed) {
            response.headers_mut().insert(echoed, value.clone());
        }
    }
    response
}
