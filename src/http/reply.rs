//! From values to HTTP answers: the one place where a status becomes a header and bytes become a body.

use std::{any::Any, time::Duration};

use axum::{
    Extension,
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};

use super::request_log::Facts;
use crate::{
    checkout::perform::Reply,
    database,
    idempotency::record::StoredResponse,
    ids::RequestId,
    wire::problem::{self, Code, Problem},
};

pub(super) const REPLAYED: &str = "idempotent-replayed";

pub(crate) fn reply(reply: Reply, request_id: RequestId) -> Response {
    match reply {
        Reply::Fresh(response) => stored(response),
        Reply::Replayed(response) => {
            let mut response = stored(response);
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            response
        }
        Reply::Problem(problem) => self::problem(&problem, request_id),
    }
}

/// The bytes as they were first given, and none but the allow-listed headers.
fn stored(stored: StoredResponse) -> Response {
    let mut response = Response::new(Body::from(stored.body));
    *response.status_mut() = StatusCode::from_u16(stored.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    // The two problems that are ever stored.
    let code = [Code::CardDeclined, Code::RefundRefused].into_iter().find(|code| code.status() == stored.status);
    response.extensions_mut().insert(Facts { code, ..Facts::default() });
    let headers = response.headers_mut();
    if let Ok(content_type) = HeaderValue::from_str(&stored.content_type) {
        headers.insert(header::CONTENT_TYPE, content_type);
    }
    if let Some(location) = stored.location.and_then(|location| HeaderValue::from_str(&location).ok()) {
        headers.insert(header::LOCATION, location);
    }
    response
}

pub(crate) fn problem(problem: &Problem, request_id: RequestId) -> Response {
    let mut response = Response::new(Body::from(problem.body(request_id)));
    *response.status_mut() = StatusCode::from_u16(problem.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.extensions_mut().insert(Facts { code: Some(problem.code), ..Facts::default() });
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(problem::CONTENT_TYPE));
    if let Some(wait) = problem.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(wait)));
    }
    if let Some(location) = problem.location.as_deref().and_then(|location| HeaderValue::from_str(location).ok()) {
        headers.insert(header::LOCATION, location);
    }
    if problem.code == Code::RequestTimeout {
        // The rest of the body is still to come, and would be taken for the next request.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if problem.code == Code::Unauthenticated {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// `Retry-After` knows whole seconds only; zero would mean at once.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX).max(1)
}

/// Why something is not shown.
#[derive(Debug)]
pub(super) enum NotShown {
    Problem(Problem),
    Surprise(anyhow::Error),
}

impl From<Problem> for NotShown {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<anyhow::Error> for NotShown {
    fn from(error: anyhow::Error) -> Self {
        Self::Surprise(error)
    }
}

/// The answer to a request that changes nothing twice.
pub(super) fn shown(shown: Result<Response, NotShown>, request_id: RequestId) -> Response {
    match shown {
        Ok(response) => response,
        Err(NotShown::Problem(told)) => problem(&told, request_id),
        Err(NotShown::Surprise(error)) if database::is_out_of_reach(&error) => no_database(&error, request_id),
        Err(NotShown::Surprise(error)) => surprise(&error, request_id),
    }
}

/// Nobody's mistake, and over when the database is back.
fn no_database(error: &anyhow::Error, request_id: RequestId) -> Response {
    tracing::error!(%request_id, error = format!("{error:#}"), "a request found no database");
    let told = Problem::new(Code::Unavailable, "This attempt moved no money. Send it again, unchanged.");
    problem(&told.retry_after(Duration::from_secs(2)), request_id)
}

pub(super) fn json(value: &impl serde::Serialize, request_id: RequestId) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => {
            let mut response = Response::new(Body::from(body));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => surprise(&error.into(), request_id),
    }
}

/// A surprise: logged here, once, and told without its cause.
pub(crate) fn surprise(error: &anyhow::Error, request_id: RequestId) -> Response {
    tracing::error!(%request_id, error = format!("{error:#}"), "a request failed");
    let told =
        Problem::new(Code::Internal, "The failure is logged under this request_id. What was begun will be finished.");
    problem(&told.retry_after(Duration::from_secs(1)), request_id)
}

pub(super) fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response {
    let what = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    surprise(&anyhow::anyhow!("panic: {}", what.unwrap_or("without a message")), RequestId::mint())
}

pub(super) async fn no_such_path(Extension(request_id): Extension<RequestId>) -> Response {
    problem(&Problem::new(Code::NotFound, "No such path."), request_id)
}

pub(super) async fn no_such_method(Extension(request_id): Extension<RequestId>) -> Response {
    problem(&Problem::new(Code::MethodNotAllowed, "The Allow header names the methods."), request_id)
}
