//! `GET /metrics`: what this api has answered and how it stands, for Prometheus. No customer, no key, no token is in it, and
//! no word of a request: labels are ours.
//!
//! Nothing is asked of the database: a scrape costs the same on the worst day. What waits there is the worker's to tell.

use std::sync::Arc;

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{extract::State, http::header::CONTENT_TYPE, response::IntoResponse};

use super::Door;
use crate::{
    gateway::breaker::Position,
    metrics::{self, Exposition},
    wire::problem::Code,
};

/// What a request is counted under when no route took it.
const OTHER: &str = "other";

/// How many, by method and status.
type Statuses = HashMap<(&'static str, u16), u64>;

/// What was answered since the start. Every count is there from the first scrape on, except that of a route nobody asked.
#[derive(Debug, Default)]
pub struct Answered {
    by_route: Mutex<HashMap<String, Statuses>>,
    problems: [AtomicU64; Code::ALL.len()],
    replays: AtomicU64,
}

impl Answered {
    /// `route` as it is written in the router, never as it came, and `method` one that is known.
    pub(super) fn count(
        &self,
        route: Option<&str>,
        method: &'static str,
        status: u16,
        code: Option<Code>,
        replayed: bool,
    ) {
        let route = route.unwrap_or(OTHER);
        let place = (method, status);
        let mut routes = self.by_route.lock().unwrap_or_else(PoisonError::into_inner);
        // A route is named once, and found without a copy afterwards.
        if let Some(statuses) = routes.get_mut(route) {
            *statuses.entry(place).or_default() += 1;
        } else {
            routes.insert(route.to_owned(), HashMap::from([(place, 1)]));
        }
        drop(routes);
        if let Some(count) = code.and_then(|code| self.problems.get(code as usize)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.replays.fetch_add(replayed.into(), Ordering::Relaxed);
    }

    fn write(&self, text: &mut Exposition) {
        let routes = self.by_route.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut rows: Vec<_> = routes
            .iter()
            .flat_map(|(route, statuses)| {
                statuses.iter().map(move |((method, status), n)| (route, *method, *status, *n))
            })
            .collect();
        rows.sort_unstable();
        let rows: Vec<_> =
            rows.into_iter().map(|(route, method, status, n)| (route, method, status.to_string(), n)).collect();
        let labels: Vec<_> = rows
            .iter()
            .map(|(route, method, status, n)| ([("method", *method), ("route", route), ("status", status)], *n as f64))
            .collect();
        let samples: Vec<_> = labels.iter().map(|(labels, n)| (&labels[..], *n)).collect();
        text.counter("checkout_requests_total", "Requests answered, by route and status.", &samples);
        let problems: Vec<_> =
            Code::ALL.iter().zip(&self.problems).map(|(code, n)| ([("code", code.name())], total(n))).collect();
        text.counter_by("checkout_problems_total", "Problems answered, by code.", &problems);
        let help = "Answers that were an earlier request's, word for word.";
        text.counter("checkout_replays_total", help, &[(&[], total(&self.replays))]);
    }
}

fn total(count: &AtomicU64) -> f64 {
    count.load(Ordering::Relaxed) as f64
}

pub(super) async fn show(State(door): State<Arc<Door>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text(&door))
}

fn text(door: &Door) -> String {
    let mut text = Exposition::default();
    door.answered.write(&mut text);
    let claims: Vec<_> =
        door.checkout.claimed.totals().map(|(outcome, n)| ([("outcome", outcome)], n as f64)).collect();
    text.counter_by("checkout_claims_total", "Claims, by how they came out.", &claims);
    let breaker = &door.admission.breaker;
    let position = match breaker.position() {
        Position::Closed => 0.0,
        Position::HalfOpen => 1.0,
        Position::Open => 2.0,
    };
    let help = "The gateway's circuit breaker: 0 closed, 1 half open, 2 open and no purchase is begun.";
    text.gauge("checkout_gateway_breaker", help, &[(&[], position)]);
    let help = "How often the breaker has opened, probes in vain included.";
    text.counter("checkout_gateway_breaker_opened_total", help, &[(&[], breaker.opened() as f64)]);
    let running = door.shield.running();
    text.gauge(
        "checkout_shielded_tasks",
        "Requests that run the protocol, listened to or not.",
        &[(&[], running as f64)],
    );
    let open = door.census.open();
    text.gauge("checkout_connections", "Connections that are open.", &[(&[], open as f64)]);
    let help = "Connections closed at once, because their address had its share.";
    text.counter("checkout_connections_refused_total", help, &[(&[], door.census.refused() as f64)]);
    text.into_text()
}
