//! Step 1, the door: what can be refused by looking at the bytes and the credential alone, before anything is claimed.
//!
//! In this order: who asks, how large, which key, what kind of body, is it JSON, is it what the operation takes. Nothing refused here leaves a
//! trace: the key is not burned.

use std::time::Duration;

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, header},
};
use http_body_util::BodyExt;
use serde_json::Value;

use super::Door;
use crate::{
    checkout::admission::rate_limited,
    credential::Subject,
    idempotency::{
        fingerprint::{Compared, Fingerprints},
        key::{IdempotencyKey, Operation, Scope},
    },
    ids::CustomerId,
    wire::{
        json::{self, TypedBody},
        problem::{Code, Problem},
    },
};

/// Largest body, in bytes. The largest valid order takes about 6 KiB.
pub(super) const BODY_BYTES_MAX: usize = 64 * 1024;

/// Most bytes of a too large body that are taken off the wire: a client reads our refusal only when it has sent its body.
const DISCARDED_BYTES_MAX: usize = 1024 * 1024;

/// A body takes no longer than this to arrive.
const BODY_TIME_MAX: Duration = Duration::from_secs(5);

/// A keyed POST as the door read it.
#[derive(Debug)]
pub(super) struct Read<T> {
    pub(super) scope: Scope,
    pub(super) fingerprints: Fingerprints,
    pub(super) body: T,
}

/// Reads a keyed POST. `path`: the one spelling of where it was sent, which its retry may spell otherwise.
pub(super) async fn read_keyed<T: TypedBody>(
    door: &Door,
    request: Request,
    operation: Operation,
    path: &str,
) -> Result<Read<T>, Problem> {
    let (parts, body) = request.into_parts();
    // Taken first and judged in its turn: a connection with an unread body is closed, and the answer may be lost with it.
    let body = read_body(body, BODY_BYTES_MAX).await;
    let customer = customer(door, &parts.headers)?;
    let body = body?;
    let key = key(&parts.headers)?;
    let body = T::read(parse(&parts.headers, &body)?).map_err(Problem::invalid)?;
    let fingerprints = fingerprints(parts.method.as_str(), path, &body)?;
    Ok(Read { scope: Scope { customer, operation, key }, fingerprints, body })
}

/// Reads a POST as somebody does who knows of no keys.
#[cfg(feature = "classroom")]
pub(crate) async fn read_keyless<T: TypedBody>(door: &Door, request: Request) -> Result<(CustomerId, T), Problem> {
    read_for(|headers| customer(door, headers), request).await
}

/// Reads a PUT, which needs no key: doing it again changes nothing.
pub(super) async fn read_unkeyed<T: TypedBody>(door: &Door, request: Request) -> Result<(CustomerId, T), Problem> {
    read_for(|headers| reader(door, headers), request).await
}

/// `who`: whom the headers name. They are asked before the body is judged, whose faults are nobody else's business.
async fn read_for<T: TypedBody>(
    who: impl FnOnce(&HeaderMap) -> Result<CustomerId, Problem>,
    request: Request,
) -> Result<(CustomerId, T), Problem> {
    let (parts, body) = request.into_parts();
    let body = read_body(body, BODY_BYTES_MAX).await;
    let customer = who(&parts.headers)?;
    let body = T::read(parse(&parts.headers, &body?)?).map_err(Problem::invalid)?;
    Ok((customer, body))
}

/// The customer that the bearer token names.
pub(super) fn customer(door: &Door, headers: &HeaderMap) -> Result<CustomerId, Problem> {
    match super::credential::subject(&door.credentials, headers)? {
        Subject::Customer(customer) => Ok(customer),
        Subject::Operator => Err(Problem::new(Code::Unauthenticated, "This token speaks for no customer.")),
    }
}

/// Who asks for something that needs no key, if they have not asked for too much of late.
pub(super) fn reader(door: &Door, headers: &HeaderMap) -> Result<CustomerId, Problem> {
    let customer = customer(door, headers)?;
    one_more_read(door, customer)?;
    Ok(customer)
}

/// What a customer may ask for is counted, also what is asked for by the way and not there.
pub(super) fn one_more_read(door: &Door, customer: CustomerId) -> Result<(), Problem> {
    door.reads.take(customer).map_err(rate_limited)
}

/// The raw bytes, if there are at most so many.
pub(super) async fn read_body(body: Body, bytes_max: usize) -> Result<Vec<u8>, Problem> {
    let broken = |detail| Problem::new(Code::MalformedJson, detail);
    match tokio::time::timeout(BODY_TIME_MAX, collect(body, bytes_max)).await {
        Ok(Ok((bytes, length))) if length == bytes.len() => Ok(bytes),
        Ok(Ok(_)) => Err(Problem::new(Code::PayloadTooLarge, format!("A body may have {bytes_max} bytes."))),
        Ok(Err(_)) => Err(broken("The body broke off.")),
        Err(_) => Err(Problem::new(Code::RequestTimeout, "The body took too long to arrive.")),
    }
}

/// The bytes up to the limit, and how many there were.
async fn collect(mut body: Body, bytes_max: usize) -> Result<(Vec<u8>, usize), axum::Error> {
    let (mut bytes, mut length) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        length += data.len();
        if length <= bytes_max {
            bytes.extend_from_slice(&data);
        } else if length > DISCARDED_BYTES_MAX {
            break;
        }
    }
    Ok((bytes, length))
}

fn key(headers: &HeaderMap) -> Result<IdempotencyKey, Problem> {
    let mut keys = headers.get_all("idempotency-key").iter();
    match (keys.next(), keys.next()) {
        (None, _) => {
            let detail = "Send an Idempotency-Key: a fresh UUID made when the customer taps, the same on every retry.";
            Err(Problem::new(Code::IdempotencyKeyMissing, detail))
        }
        (Some(_), Some(_)) => Err(Problem::new(Code::IdempotencyKeyInvalid, "Send one Idempotency-Key, not several.")),
        (Some(header), None) => IdempotencyKey::parse(header.as_bytes())
            .map_err(|reason| Problem::new(Code::IdempotencyKeyInvalid, reason.to_string())),
    }
}

fn parse(headers: &HeaderMap, body: &[u8]) -> Result<Value, Problem> {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !is_json(media_type) || headers.get_all(header::CONTENT_TYPE).iter().count() > 1 {
        return Err(Problem::new(Code::UnsupportedMediaType, "Send the body as application/json."));
    }
    if headers.contains_key(header::CONTENT_ENCODING) {
        return Err(Problem::new(Code::UnsupportedMediaType, "Send the body without Content-Encoding."));
    }
    if headers
        .get_all(header::TRANSFER_ENCODING)
        .iter()
        .any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
    {
        return Err(Problem::new(Code::UnsupportedMediaType, "Send the body in no Transfer-Encoding but chunked."));
    }
    let body = json::parse_strict(body).map_err(|reason| Problem::new(Code::MalformedJson, reason.to_string()))?;
    if json::holds_card_number(&body) {
        let detail =
            "Send the payment method that the gateway gave you for the card. Nothing of this request was kept.";
        return Err(Problem::new(Code::CardDataNotAccepted, detail));
    }
    Ok(body)
}

/// `application/json`, with no parameter but the one charset that JSON has.
fn is_json(media_type: &str) -> bool {
    let mut parts = media_type.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    essence.eq_ignore_ascii_case("application/json")
        && parts.all(|parameter| {
            let parameter = parameter.to_ascii_lowercase();
            matches!(parameter.as_str(), "" | "charset=utf-8" | "charset=\"utf-8\"")
        })
}

fn fingerprints(method: &str, path: &str, body: &impl TypedBody) -> Result<Fingerprints, Problem> {
    let canonical_body = body.canonical().map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    // No query parameter means anything on this route, so none is significant.
    Ok(Fingerprints::of(Compared { method, path, query: "", canonical_body: &canonical_body }))
}
