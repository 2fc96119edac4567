//! The latest requests, in memory: what the console shows, without a write per replay.
//!
//! Every request also gets its id here, and every answer carries it.

use std::sync::Arc;

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use axum::{
    extract::{MatchedPath, Request, State},
    http::HeaderValue,
    middleware::Next,
    response::Response,
};
use serde::Serialize;
use time::OffsetDateTime;
use tokio::time::Instant;

use super::{
    Door,
    reply::REPLAYED,
    shown_path::{known, shown_path},
};
use crate::{idempotency::key::Scope, ids::RequestId, wire::problem::Code};

/// Requests that are remembered.
const REMEMBERED_MAX: usize = 500;

/// One request as the console sees it.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    pub request_id: RequestId,
    pub method: String,
    pub path: String,
    pub customer: Option<i64>,
    pub key: Option<String>,
    pub status: u16,
    pub code: Option<&'static str>,
    pub replayed: bool,
    pub took_ms: f64,
}

/// What a handler knows of its request beyond the status.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    pub scope: Option<Scope>,
    pub code: Option<Code>,
}

impl Facts {
    /// Adds these facts to those an answer carries already.
    pub(super) fn add_to(self, response: &mut Response) {
        let known = response.extensions_mut().remove::<Self>().unwrap_or_default();
        let facts = Self { scope: self.scope.or(known.scope), code: self.code.or(known.code) };
        response.extensions_mut().insert(facts);
    }
}

#[derive(Debug, Default)]
pub struct RequestLog {
    entries: Mutex<VecDeque<Entry>>,
}

impl RequestLog {
    fn push(&self, entry: Entry) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() == REMEMBERED_MAX {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    pub fn newest_first(&self) -> Vec<Entry> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().cloned().collect()
    }
}

/// Gives the request its id and remembers what came of it. Health checks would only push the customers out.
pub(super) async fn record(State(door): State<Arc<Door>>, mut request: Request, next: Next) -> Response {
    let (request_id, began) = (RequestId::mint(), Instant::now());
    request.extensions_mut().insert(request_id);
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map(MatchedPath::as_str);
    let (method, path) = (known(request.method()), shown_path(request.uri().path(), route));
    let mut response = next.run(request).await;
    if let Ok(id) = HeaderValue::from_str(&request_id.to_string()) {
        response.headers_mut().insert("request-id", id);
    }
    let (status, replayed) = (response.status().as_u16(), response.headers().contains_key(REPLAYED));
    let code = response.extensions().get::<Facts>().and_then(|facts| facts.code);
    door.answered.count(route, method, status, code, replayed);
    if path.starts_with("/v1/") {
        door.log.push(entry(request_id, method, path, &response, began));
    }
    response
}

fn entry(request_id: RequestId, method: &str, path: String, response: &Response, began: Instant) -> Entry {
    let facts = response.extensions().get::<Facts>();
    let scope = facts.and_then(|facts| facts.scope.as_ref());
    Entry {
        at: OffsetDateTime::now_utc(),
        request_id,
        method: method.to_string(),
        path,
        customer: scope.map(|scope| scope.customer.0),
        key: scope.map(|scope| scope.key.as_str().to_owned()),
        status: response.status().as_u16(),
        code: facts.and_then(|facts| facts.code).map(Code::name),
        replayed: response.headers().contains_key(REPLAYED),
        took_ms: began.elapsed().as_secs_f64() * 1000.0,
    }
}
