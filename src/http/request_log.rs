//! The latest requests, in memory: what the console shows, without a write per replay.
//!
//! Every request also gets its id here, and every answer carries it.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use axum::{
    extract::{Request, State},
    http::{HeaderValue, Method},
    middleware::Next,
    response::Response,
};
use serde::Serialize;
use time::OffsetDateTime;
use tokio::time::Instant;

use super::{Door, reply::REPLAYED};
use crate::{
    idempotency::key::Scope,
    ids::RequestId,
    wire::{card_number::holds_card_number, problem::Code},
};

/// Requests that are remembered.
const REMEMBERED_MAX: usize = 500;
/// Longest path that is remembered whole, in characters.
const PATH_LENGTH_MAX: usize = 200;

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
pub(super) async fn record(State(door): State<Door>, mut request: Request, next: Next) -> Response {
    let (request_id, began) = (RequestId::mint(), Instant::now());
    request.extensions_mut().insert(request_id);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut response = next.run(request).await;
    if let Ok(id) = HeaderValue::from_str(&request_id.to_string()) {
        response.headers_mut().insert("request-id", id);
    }
    if path.starts_with("/v1/") {
        door.log.push(entry(request_id, &method, path, &response, began));
    }
    response
}

fn shown(path: String) -> String {
    if holds_card_number(&path) {
        "(a path that holds a card number)".to_owned()
    } else if path.len() > PATH_LENGTH_MAX {
        path.chars().take(PATH_LENGTH_MAX).collect()
    } else {
        path
    }
}

fn entry(request_id: RequestId, method: &Method, path: String, response: &Response, began: Instant) -> Entry {
    let facts = response.extensions().get::<Facts>();
    let scope = facts.and_then(|facts| facts.scope.as_ref());
    Entry {
        at: OffsetDateTime::now_utc(),
        request_id,
        method: method.to_string(),
        path: shown(path),
        customer: scope.map(|scope| scope.customer.0),
        key: scope.map(|scope| scope.key.as_str().to_owned()),
        status: response.status().as_u16(),
        code: facts.and_then(|facts| facts.code).map(Code::name),
        replayed: response.headers().contains_key(REPLAYED),
        took_ms: began.elapsed().as_secs_f64() * 1000.0,
    }
}
