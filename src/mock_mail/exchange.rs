//! One HTTP exchange: routes, credentials, and the way back through whatever fault the request drew.
//!
//! Promise: every request ends in a whole answer in the dialect's envelope, or in the cut that its fault asked for; a panic ends
//! like any other failure. (What is no HTTP at all, hyper refuses before we see it.)

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, AUTHORIZATION, CONTENT_TYPE},
    request::Parts,
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde_json::json;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{
    Service,
    books::Mail,
    control,
    deliver::{self, Answered},
    email::Email,
    faults::{Fault, FaultName},
    reply::{Cut, Refusal, Reply, ReplyBody},
};

const BODY_BYTES_MAX: usize = 64 * 1024;
/// A client that sends slower than this is no client.
const BODY_S: u64 = 10;
/// A hang ends too, long after any client has left.
const HANG_S: u64 = 600;
/// Mails that a lookup by key shows. A key has one, unless somebody made the service ignore it.
const UNDER_KEY_MAX: usize = 100;

const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Answers one request, or cuts its connection.
pub(super) async fn answer(service: Arc<Service>, request: Request<Incoming>) -> Result<Response<ReplyBody>, Cut> {
    let (head, body) = request.into_parts();
    let answered = AssertUnwindSafe(receive(&service, &head, body)).catch_unwind().await;
    let reply = match answered {
        Ok(Ok(Answered::Reply(reply))) => reply,
        Ok(Ok(Answered::Fated(reply, fault))) => suffer(&service, &head.headers, reply, fault).await?,
        Ok(Ok(Answered::Dropped)) => return Err(Cut),
        Ok(Err(refusal)) => refusal.into(),
        Err(_panic) => {
            // The panic hook has already said what and where.
            tracing::error!(path = head.uri.path(), "a request panicked");
            Refusal::internal().into()
        }
    };
    Ok(respond(reply))
}

async fn receive(service: &Arc<Service>, head: &Parts, body: Incoming) -> Result<Answered, Refusal> {
    let body = read(body).await?;
    let path = head.uri.path();
    if let Some(path) = path.strip_prefix("/_mock/") {
        return control::answer(service, &head.method, path, &body).await.map(Answered::Reply);
    }
    if path == "/livez" {
        return Ok(Answered::Reply(Reply::ok(&json!({ "status": "ok" }))));
    }
    authenticate(&head.headers)?;
    match (path.strip_prefix("/emails"), &head.method) {
        (Some(""), &Method::POST) => {
            let email = Email::read(&head.headers, &body)?;
            Ok(deliver::post(service, email).await)
        }
        (Some(""), &Method::GET) => under_key(service, head.uri.query().unwrap_or_default()).await,
        (Some(""), _) => Err(Refusal::not_allowed("GET, POST")),
        (Some(rest), method) if rest.starts_with('/') => match *method {
            Method::GET => one(service, &rest[1..]).await,
            _ => Err(Refusal::not_allowed("GET")),
        },
        _ => Err(Refusal::not_found(format!("There is no {path}: there are /emails and /emails/{{id}}."))),
    }
}

/// Any secret key of the dialect is good.
fn authenticate(headers: &HeaderMap) -> Result<(), Refusal> {
    let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|it| it.split_once(' '));
    let refuse = |name, message| Err(Refusal::new(StatusCode::UNAUTHORIZED, name, message));
    match given {
        None => refuse("missing_api_key", "Send 'Authorization: Bearer re_…'."),
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") && key.starts_with("re_") => Ok(()),
        Some(_) => refuse("invalid_api_key", "This service knows bearer tokens that start with re_."),
    }
}

/// What was delivered under a key: all of it, and independent of how long the key is honoured.
async fn under_key(service: &Service, query: &str) -> Result<Answered, Refusal> {
    let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
    let [(name, key)] = pairs.as_slice() else {
        return Err(Refusal::invalid("Ask for one idempotency_key: there is no list of all mails."));
    };
    if name != "idempotency_key" {
        return Err(Refusal::invalid(format!("There is no parameter {name:?}: there is idempotency_key.")));
    }
    let mails = service.books.under_key(key, UNDER_KEY_MAX).await.map_err(unreadable)?;
    let data: Vec<_> = mails
        .iter()
        .map(|mail| {
            json!({
                "id": mail.id,
                "idempotency_key": mail.idempotency_key,
                "to": mail.to,
                "subject": mail.subject,
                "created_at": created_at(mail),
            })
        })
        .collect();
    Ok(Answered::Reply(Reply::ok(&json!({ "data": data }))))
}

async fn one(service: &Service, id: &str) -> Result<Answered, Refusal> {
    let no_such = || Refusal::not_found("There is no such mail.");
    let id = id.parse().map_err(|_| no_such())?;
    let mail = service.books.mail(id).await.map_err(unreadable)?.ok_or_else(no_such)?;
    let tags: BTreeMap<&str, &str> = serde_json::from_str(mail.tags.get()).map_err(|error| unreadable(error.into()))?;
    let tags: Vec<_> = tags.into_iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    Ok(Answered::Reply(Reply::ok(&json!({
        "id": mail.id,
        "from": mail.from,
        "to": mail.to,
        "subject": mail.subject,
        "text": mail.text,
        "tags": tags,
        "created_at": created_at(&mail),
        "last_event": "delivered",
    }))))
}

fn created_at(mail: &Mail) -> Option<String> {
    let since = OffsetDateTime::from_unix_timestamp_nanos(i128::from(mail.created_ms) * 1_000_000);
    since.ok().and_then(|at| at.format(&Rfc3339).ok())
}

fn unreadable(error: anyhow::Error) -> Refusal {
    tracing::error!(error = format!("{error:#}"), "the books cannot be read");
    Refusal::internal()
}

/// The way back, for an answer whose request drew a fault. The others have done their work before.
async fn suffer(service: &Service, headers: &HeaderMap, reply: Reply, fault: Fault) -> Result<Reply, Cut> {
    let fire = || {
        let key = headers.get(super::email::IDEMPOTENCY_KEY).and_then(|key| key.to_str().ok());
        service.fired(fault.name, key);
    };
    match fault.name {
        FaultName::DropAfter => {
            fire();
            Err(Cut)
        }
        FaultName::Http500After => {
            fire();
            Ok(Refusal::internal().into())
        }
        FaultName::LatencyAfter => {
            fire();
            pause(service, Duration::from_millis(fault.latency_ms)).await;
            Ok(reply)
        }
        FaultName::HangAfter => {
            fire();
            pause(service, Duration::from_secs(HANG_S)).await;
            Err(Cut)
        }
        FaultName::UnavailableBefore
        | FaultName::DropBefore
        | FaultName::LatencyBefore
        | FaultName::Reject
        | FaultName::IgnoreIdempotency => Ok(reply),
    }
}

/// Sleeps, but never past the end of the service.
async fn pause(service: &Service, pause: Duration) {
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        () = service.stop.cancelled() => {}
    }
}

async fn read(body: Incoming) -> Result<Bytes, Refusal> {
    let whole = Limited::new(body, BODY_BYTES_MAX).collect();
    match tokio::time::timeout(Duration::from_secs(BODY_S), whole).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("A request body may have at most {BODY_BYTES_MAX} bytes.");
            Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", message))
        }
        Ok(Err(_)) | Err(_) => Err(Refusal::invalid("The request body did not arrive in full.")),
    }
}

fn respond(reply: Reply) -> Response<ReplyBody> {
    let mut response = Response::new(reply.body);
    *response.status_mut() = reply.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if reply.replayed {
        headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    }
    if let Some(allow) = reply.allow {
        headers.insert(ALLOW, HeaderValue::from_static(allow));
    }
    response
}
