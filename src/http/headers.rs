//! What every answer tells a browser that happens to read it: believe the type, run nothing, frame nothing, tell nobody, and
//! keep no copy of what is a customer's. No other site is ever let in (CORS): the api is for programs with a token.

use axum::{
    extract::Request,
    http::{HeaderValue, header},
    middleware::Next,
    response::Response,
};

/// A page of ours names what it needs; everything else needs nothing.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

pub(super) async fn protect(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let private = path.starts_with("/v1/") || path.starts_with("/operator/");
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(NOTHING));
    if private {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}
