//! The console: one page that shows what the checkout did, for people of the house. It reads and never writes.
//!
//! Promise: the page renders whatever is down, says what is down, and loads nothing from anywhere else.

mod after;
mod page;
mod request_log;
mod store;

use anyhow::Context;
use axum::{
    Router,
    extract::{Query, Request, State, rejection::QueryRejection},
    http::{HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use serde::Deserialize;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use self::{page::Overview, request_log::RequestLog};
use crate::{
    config::{ConsoleArgs, DatabaseArgs},
    credential::Credentials,
    database, serve,
    telemetry::one_line,
};

/// One reader looks at one page at a time.
const CONNECTIONS: u32 = 4;

const STYLE: &str = include_str!("../../templates/style.css");

/// Nothing from elsewhere, no script at all, in nobody's frame. The one style sheet is ours.
const CONTENT_POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[derive(Debug, Clone)]
struct Console {
    pool: PgPool,
    requests: RequestLog,
}

/// Serves the pages until `stop`.
pub async fn run(args: ConsoleArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let credentials = Credentials::new(&args.credentials.secret)?;
    // It writes nothing, so there is nothing to batch.
    let database =
        DatabaseArgs { database_url: args.database_url, connections: CONNECTIONS, batch_limit: 1, batch_lanes: 1 };
    let pool = database::connect(&database, "checkout console").await?;
    let router = router(pool, &args.api_url, credentials)?;
    serve::serve(serve::bind(args.listen)?, router, stop).await
}

/// All routes of the console. The pool may be one that does not reach its database: the page then says so.
pub fn router(pool: PgPool, api_url: &str, credentials: Credentials) -> anyhow::Result<Router> {
    let requests = RequestLog::new(api_url, credentials).context("the client of the api's request log")?;
    Ok(Router::new()
        .route("/", get(overview))
        .route("/style.css", get(style))
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .layer(middleware::from_fn(protect))
        .with_state(Console { pool, requests }))
}

#[derive(Debug, Deserialize)]
struct Wish {
    /// Whether the page should reload itself: `true`, or anything else for no.
    live: Option<String>,
}

async fn overview(State(console): State<Console>, wish: Result<Query<Wish>, QueryRejection>) -> Response {
    // A query that cannot even be read (a name given twice) wishes for nothing.
    let live = wish.is_ok_and(|Query(wish)| wish.live.as_deref() == Some("true"));
    let (books, requests) = tokio::join!(store::books(&console.pool), console.requests.newest());
    let books = books.inspect_err(|error| tracing::warn!(error = one_line(error), "the database cannot be read"));
    let requests =
        requests.inspect_err(|error| tracing::warn!(error = one_line(error), "the request log cannot be read"));
    let status = if books.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    match page::render(&Overview::new(live, books, requests, console.requests.api_url())) {
        Ok(page) => (status, Html(page)).into_response(),
        Err(error) => {
            tracing::error!(%error, "the page cannot be rendered");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn style() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE)
}

async fn readyz(State(console): State<Console>) -> (StatusCode, &'static str) {
    match store::reach(&console.pool).await {
        Ok(()) => (StatusCode::OK, "ok\n"),
        Err(error) => {
            tracing::warn!(%error, "not ready");
            (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer\n")
        }
    }
}

/// The same protection for every answer. Nothing is kept: the pages hold customers' keys.
async fn protect(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
