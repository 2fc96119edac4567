//! Is the process alive, and may it be sent traffic?

use axum::{
    Extension,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};

use super::{Door, reply};
use crate::{checkout::upkeep, ids::RequestId};

pub(super) async fn live() -> &'static str {
    "alive\n"
}

/// 200 only while the database answers, today has a partition to claim in, and nobody has asked the process to stop.
pub(super) async fn ready(State(door): State<Door>, Extension(request_id): Extension<RequestId>) -> Response {
    if door.stopping.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    }
    match upkeep::days_ahead(&door.checkout.pool).await {
        Ok(0) => (StatusCode::SERVICE_UNAVAILABLE, "no partition for today\n").into_response(),
        Ok(days) => reply::json(&serde_json::json!({ "ready": true, "days_ahead": days }), request_id),
        Err(error) => {
            tracing::warn!(error = format!("{error:#}"), "not ready");
            (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer\n").into_response()
        }
    }
}
