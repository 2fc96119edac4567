//! The door: HTTP in, HTTP out. All routes are on this page.

mod charges;
pub mod contract;
mod credential;
mod customers;
mod docs;
pub(crate) mod door;
mod headers;
mod health;
mod idempotency_keys;
mod keyed;
mod metrics;
mod openapi;
mod operator;
mod orders;
mod paging;
mod refunds;
pub(crate) mod reply;
mod request_log;
mod shown_path;
mod webhooks;

use std::sync::Arc;

use axum::{
    Router,
    middleware::{from_fn, from_fn_with_state},
    routing::{get, post},
};
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

use crate::{
    checkout::{
        Checkout,
        admission::{Admission, Buckets},
        shield::Shield,
    },
    credential::Credentials,
    serve::Census,
};

pub use self::{metrics::Answered, openapi::openapi, request_log::RequestLog, webhooks::WebhookSecret};

/// What every handler sees. Shared, not copied: it is handed to each of them.
#[derive(Debug)]
pub struct Door {
    pub checkout: Checkout,
    pub shield: Shield,
    /// What a new purchase must get past.
    pub admission: Admission,
    /// What each customer may read.
    pub reads: Buckets,
    pub credentials: Credentials,
    /// Without one nobody is told anything here.
    pub webhook_secret: Option<WebhookSecret>,
    pub log: Arc<RequestLog>,
    pub answered: Arc<Answered>,
    pub census: Census,
    /// Cancelled when the process was asked to stop.
    pub stopping: CancellationToken,
}

pub fn routes(door: Door) -> Router {
    let routes = Router::new()
        .route("/v1/orders", get(orders::list).post(orders::create))
        .route("/v1/orders/{id}", get(orders::show))
        .route("/v1/orders/{id}/refunds", get(refunds::list).post(refunds::create))
        .route("/v1/orders/{id}/refunds/{refund_id}", get(refunds::show))
        .route("/v1/charges", get(charges::list).post(charges::create))
        .route("/v1/charges/{id}", get(charges::show))
        .route("/v1/customers/me/email", get(customers::email).put(customers::set_email))
        .route("/v1/idempotency-keys/{operation}/{key}", get(idempotency_keys::show))
        .route("/v1/webhooks/gateway", post(webhooks::gateway))
        .route("/openapi.json", get(openapi::document))
        .route("/docs", get(docs::contract))
        .route("/docs/problems", get(docs::problems))
        .route("/operator/requests", get(operator::requests));
    behind(door, routes)
}

/// What every server of ours has around its routes: health, metrics, and an answer to whatever goes wrong.
pub(crate) fn behind(door: Door, routes: Router<Arc<Door>>) -> Router {
    let door = Arc::new(door);
    routes
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(metrics::show))
        .fallback(reply::no_such_path)
        .method_not_allowed_fallback(reply::no_such_method)
        // From the inside out: a panic becomes a 500 with our own body, then the log sees every answer, that one too.
        .layer(CatchPanicLayer::custom(reply::panicked))
        .layer(from_fn_with_state(Arc::clone(&door), request_log::record))
        .layer(from_fn(headers::protect))
        .with_state(door)
}
