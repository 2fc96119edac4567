//! Step 1, the door: what can be refused by looking at the bytes and the credential alone, before anything is claimed.
//!
//! In this order: who asks, how large, which key, what kind of body, is it JSON, is it an order. Nothing refused here leaves a
//! trace: the key is not burned.

use axum::{
    body::{Body, to_bytes},
    extract::Request,
    http::{HeaderMap, Uri, header},
};
use serde_json::Value;

use super::Door;
use crate::{
    checkout::place_order::PlaceOrder,
    credential::Subject,
    idempotency::{
        fingerprint::{Compared, Fingerprints},
        key::{IdempotencyKey, Operation, Scope},
    },
    ids::{CustomerId, RequestId},
    orders::request::OrderRequest,
    wire::{
        json,
        problem::{Code, Problem},
    },
};

/// Largest body, in bytes. The largest valid order takes about 6 KiB.
pub(super) const BODY_BYTES_MAX: usize = 64 * 1024;

/// Reads a `POST /v1/orders`.
pub(super) async fn read_order(door: &Door, request: Request, request_id: RequestId) -> Result<PlaceOrder, Problem> {
    let (parts, body) = request.into_parts();
    let customer = customer(door, &parts.headers)?;
    refuse_announced_size(&parts.headers)?;
    let key = key(&parts.headers)?;
    let body = read_json(&parts.headers, body).await?;
    let order = OrderRequest::read(body).map_err(Problem::invalid)?;
    let fingerprints = fingerprints(parts.method.as_str(), &parts.uri, &order)?;
    let scope = Scope { customer, operation: Operation::CreateOrder, key };
    Ok(PlaceOrder { scope, fingerprints, order, request_id })
}

/// The customer that the bearer token names.
pub(super) fn customer(door: &Door, headers: &HeaderMap) -> Result<CustomerId, Problem> {
    match super::credential::subject(&door.credentials, headers)? {
        Subject::Customer(customer) => Ok(customer),
        Subject::Operator => Err(Problem::new(Code::Unauthenticated, "This token speaks for no customer.")),
    }
}

/// Refuses a body by its announced length, without reading it.
fn refuse_announced_size(headers: &HeaderMap) -> Result<(), Problem> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    match announced {
        Some(length) if length > BODY_BYTES_MAX as u64 => Err(too_large()),
        _ => Ok(()),
    }
}

fn too_large() -> Problem {
    Problem::new(Code::PayloadTooLarge, format!("A body may have {BODY_BYTES_MAX} bytes."))
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

async fn read_json(headers: &HeaderMap, body: Body) -> Result<Value, Problem> {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") || headers.get_all(header::CONTENT_TYPE).iter().count() > 1 {
        return Err(Problem::new(Code::UnsupportedMediaType, "Send the body as application/json."));
    }
    if headers.contains_key(header::CONTENT_ENCODING) {
        return Err(Problem::new(Code::UnsupportedMediaType, "Send the body without Content-Encoding."));
    }
    let bytes = to_bytes(body, BODY_BYTES_MAX).await.map_err(|error| {
        let over_limit =
            std::error::Error::source(&error).is_some_and(|cause| cause.is::<http_body_util::LengthLimitError>());
        if over_limit { too_large() } else { Problem::new(Code::MalformedJson, "The body broke off.") }
    })?;
    json::parse_strict(&bytes).map_err(|reason| Problem::new(Code::MalformedJson, reason.to_string()))
}

fn fingerprints(method: &str, uri: &Uri, order: &OrderRequest) -> Result<Fingerprints, Problem> {
    let canonical_body = order.canonical().map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    // No query parameter means anything on this route, so none is significant.
    Ok(Fingerprints::of(Compared { method, path: uri.path(), query: "", canonical_body: &canonical_body }))
}
