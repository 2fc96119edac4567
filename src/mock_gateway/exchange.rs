//! One HTTP exchange: bytes in, a fate, bytes out.
//!
//! Promise: every request ends in a whole answer with the headers that belong to it, or in the cut that its fault asked for;
//! a panic ends in the error envelope like any other failure. (What is no HTTP at all, hyper refuses before we see it.)

use std::{
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
    HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE},
    request::Parts,
};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use super::{
    Gateway,
    faults::{Fate, FaultName},
    payments::Answered,
    reply::{Cut, Refusal, Reply, ReplyBody},
    requests::IDEMPOTENCY_KEY,
    routes,
};

const BODY_BYTES_MAX: usize = 64 * 1024;
/// A client that sends slower than this is no client.
const BODY_S: u64 = 10;
/// A hang ends too, long after any client has left.
const HANG_S: u64 = 600;

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
        Some(fate) => suffer(&gateway, &reset, &head.headers, reply, fate).await?,
        None => reply,
    };
    Ok(respond(&request_id, &head.headers, reply))
}

/// The way back, for an answer whose request drew a fault.
async fn suffer(
    gateway: &Gateway,
    reset: &AtomicBool,
    headers: &HeaderMap,
    mut reply: Reply,
    fate: Fate,
) -> Result<Reply, Cut> {
    let Some(fault) = fate.fault else { return Ok(reply) };
    let key = headers.get(IDEMPOTENCY_KEY).and_then(|key| key.to_str().ok());
    match fault.name {
        FaultName::LatencyAfter => {
            gateway.fired(fault.name, key);
            pause(gateway, Duration::from_millis(fault.latency_ms)).await;
        }
        FaultName::HangAfter => {
            gateway.fired(fault.name, key);
            pause(gateway, Duration::from_secs(HANG_S)).await;
            return Err(Cut);
        }
        FaultName::DropAfter => {
            gateway.fired(fault.name, key);
            return Err(Cut);
        }
        FaultName::RstAfter => {
            gateway.fired(fault.name, key);
            reset.store(true, Ordering::Relaxed);
            return Err(Cut);
        }
        FaultName::TruncateAfter => {
            gateway.fired(fault.name, key);
            reply.body = reply.body.cut_in_half();
        }
        // These have done their work before or during the execution.
        FaultName::Refuse
        | FaultName::LatencyBefore
        | FaultName::Http503Before
        | FaultName::Http429Before
        | FaultName::LockTimeoutBefore
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
    routes::dispatch(gateway, request_id, head, &body).await
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
