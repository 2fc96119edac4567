//! `GET /docs` and `GET /docs/problems`: the contract for people, written from its table.
//!
//! Pages that need nothing but themselves: no script, and no word from elsewhere.

mod fields;
mod page;

use std::sync::LazyLock;

use axum::{
    Extension,
    body::Bytes,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

use super::reply;
use crate::ids::RequestId;

/// Nothing but the page's own style is loaded or run.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A page, or why there is none. It is the same for everybody, and is written once.
type Written = LazyLock<Result<Bytes, askama::Error>>;

pub(super) async fn contract(Extension(request_id): Extension<RequestId>) -> Response {
    static PAGE: Written = LazyLock::new(|| page::contract().map(Bytes::from));
    html(&PAGE, request_id)
}

/// Where the `type` of every problem leads.
pub(super) async fn problems(Extension(request_id): Extension<RequestId>) -> Response {
    static PAGE: Written = LazyLock::new(|| page::problems().map(Bytes::from));
    html(&PAGE, request_id)
}

fn html(page: &Written, request_id: RequestId) -> Response {
    let page = match page.as_ref() {
        Ok(page) => page.clone(),
        Err(error) => return reply::surprise(&anyhow::anyhow!("a page cannot be written: {error}"), request_id),
    };
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (StatusCode::OK, headers, page).into_response()
}
