//! `GET /v1/idempotency-keys/{operation}/{key}`: what a client asks before it dares to start anew.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, State, rejection::PathRejection},
    http::HeaderMap,
    response::Response,
};
use serde::Serialize;
use serde_json::value::RawValue;
use time::OffsetDateTime;

use super::{Door, door, reply};
use crate::{
    checkout::bought,
    idempotency::{
        decide::is_released,
        key::{IdempotencyKey, Operation, Scope},
        record::{Holding, Record, StoredResponse},
        store,
    },
    ids::RequestId,
    wire::problem::{Code, Problem},
};

#[derive(Serialize)]
struct Shown<'a> {
    operation: &'a str,
    key: &'a str,
    /// `in_flight`, `unknown`, `needs_review`, `completed`, `failed`; `released`: nothing was sent, and nobody but a retry will;
    /// or `expired`.
    state: &'a str,
    #[serde(with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    created_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    expires_at: Option<OffsetDateTime>,
    /// What the key bought, once it is past its expiry.
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<ShownResponse<'a>>,
}

#[derive(Serialize)]
struct ShownResponse<'a> {
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<&'a str>,
    body: &'a RawValue,
}

/// 200 with the record's state and, when it is final, its answer; 404 for a key this customer never used.
pub(super) async fn show(
    State(door): State<Arc<Door>>,
    Extension(request_id): Extension<RequestId>,
    path: Result<Path<(String, String)>, PathRejection>,
    headers: HeaderMap,
) -> Response {
    let shown = async {
        let customer = door::reader(&door, &headers)?;
        let Path((operation, key)) = path.map_err(|_| unknown_key())?;
        let operation = Operation::from_name(&operation).ok_or_else(unknown_key)?;
        let key = IdempotencyKey::parse(key.as_bytes())
            .map_err(|reason| Problem::new(Code::IdempotencyKeyInvalid, reason.to_string()))?;
        Ok(look(&door, &Scope { customer, operation, key }, request_id).await?)
    };
    reply::shown(shown.await, request_id)
}

async fn look(door: &Door, scope: &Scope, request_id: RequestId) -> anyhow::Result<Response> {
    let expiry = door.checkout.timing.key_expiry();
    let found = store::find(&door.checkout.pool, scope).await?;
    let bought = match found {
        Some((now, record)) if now < record.expires_at(expiry) || is_open(&record, now) => {
            return shown(scope, &record, now, record.expires_at(expiry), request_id);
        }
        Some(_) | None => bought::by_key(&door.checkout.pool, scope).await?,
    };
    Ok(match bought {
        Some(location) => {
            let shown = Shown { state: "expired", location: Some(location), ..Shown::empty(scope) };
            reply::json(&shown, request_id)
        }
        None => reply::problem(&unknown_key(), request_id),
    })
}

/// An open outcome does not expire. What was released unsent has no outcome.
fn is_open(record: &Record, now: OffsetDateTime) -> bool {
    !record.holding.state().is_final() && !is_released(record, now)
}

fn shown(
    scope: &Scope,
    record: &Record,
    now: OffsetDateTime,
    expires_at: OffsetDateTime,
    request_id: RequestId,
) -> anyhow::Result<Response> {
    let response = match &record.holding {
        Holding::Completed(response) | Holding::Failed(response) => Some(answer(response)?),
        Holding::InFlight { .. } | Holding::Unknown | Holding::NeedsReview => None,
    };
    let shown = Shown {
        state: if is_released(record, now) { "released" } else { record.holding.state().name() },
        created_at: Some(record.created_at),
        expires_at: Some(expires_at),
        response,
        ..Shown::empty(scope)
    };
    Ok(reply::json(&shown, request_id))
}

fn answer(response: &StoredResponse) -> anyhow::Result<ShownResponse<'_>> {
    Ok(ShownResponse {
        status: response.status,
        location: response.location.as_deref(),
        body: serde_json::from_slice(&response.body)?,
    })
}

impl<'a> Shown<'a> {
    fn empty(scope: &'a Scope) -> Self {
        Self {
            operation: scope.operation.name(),
            key: scope.key.as_str(),
            state: "",
            created_at: None,
            expires_at: None,
            location: None,
            response: None,
        }
    }
}

fn unknown_key() -> Problem {
    Problem::new(Code::NotFound, "You have not used this key for this operation.")
}
