//! `GET /docs/problems`: where the `type` of every problem leads. Written from the table itself.

use axum::{
    http::header,
    response::{Html, IntoResponse},
};

use crate::wire::problem::{Code, Retry};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
                     code{font-size:.95em}td,th{text-align:left;padding:.3rem 1.2rem .3rem 0;vertical-align:top}\
                     :target{outline:2px solid;outline-offset:2px}@media(prefers-color-scheme:dark){body{background:#16181b;color:#e8e8e8}}";

/// Nothing but the page's own style is loaded or run.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

pub(super) async fn problems() -> impl IntoResponse {
    let rows: String = Code::ALL.iter().map(|code| row(*code)).collect();
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Problems</title><style>{STYLE}</style>\
         <h1>Problems</h1><p>Every error is <code>application/problem+json</code> (RFC 9457). Match on <code>code</code>; obey \
         <code>retry</code>.</p><table><tr><th>code<th>status<th>what happened<th>retry</tr>{rows}</table></html>"
    );
    ([(header::CONTENT_SECURITY_POLICY, POLICY)], Html(page))
}

fn row(code: Code) -> String {
    let retry = match code.retry() {
        Retry::SameKey => "<code>same_key</code>: again, unchanged, under the same key",
        Retry::NewKey => "<code>new_key</code>: only after the customer changed something, under a new key",
        Retry::Never => "<code>never</code>: sending it again cannot help",
    };
    let (name, status, title) = (code.name(), code.status(), code.title());
    format!("<tr id=\"{name}\"><td><code>{name}</code><td>{status}<td>{title}<td>{retry}</tr>")
}
