//! What the house may see of this process: its latest requests, for the console.

use std::sync::Arc;

use axum::{Extension, extract::State, http::HeaderMap, response::Response};
use serde_json::json;

use super::{Door, credential, reply};
use crate::{
    credential::Subject,
    ids::RequestId,
    wire::problem::{Code, Problem},
};

/// `GET /operator/requests`: the latest requests, newest first, for an operator's token.
pub(super) async fn requests(
    State(door): State<Arc<Door>>,
    Extension(request_id): Extension<RequestId>,
    headers: HeaderMap,
) -> Response {
    match credential::subject(&door.credentials, &headers) {
        Ok(Subject::Operator) => reply::json(&json!({ "requests": door.log.newest_first() }), request_id),
        Ok(Subject::Customer(_)) => reply::problem(&Problem::new(Code::NotFound, "No such path."), request_id),
        Err(problem) => reply::problem(&problem, request_id),
    }
}
