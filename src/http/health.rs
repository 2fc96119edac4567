//! Is the process alive, and may it be sent traffic?

use std::sync::Arc;

use std::time::Duration;

use axum::{Extension, extract::State, response::Response};

use super::{Door, reply};
use crate::{
    checkout::upkeep,
    ids::RequestId,
    wire::problem::{Code, Problem},
};

pub(super) async fn live() -> &'static str {
    "alive\n"
}

/// 200 only while the database answers, today has a partition to claim in, and nobody has asked the process to stop.
pub(super) async fn ready(State(door): State<Arc<Door>>, Extension(request_id): Extension<RequestId>) -> Response {
    if door.stopping.is_cancelled() {
        return not_ready("The process is about to stop.", request_id);
    }
    match upkeep::days_ahead(&door.checkout.pool).await {
        Ok(0) => not_ready("There is no partition for today.", request_id),
        Ok(days) => reply::json(&serde_json::json!({ "ready": true, "days_ahead": days }), request_id),
        Err(error) => {
            tracing::warn!(error = format!("{error:#}"), "not ready");
            not_ready("The database does not answer.", request_id)
        }
    }
}

fn not_ready(why: &str, request_id: RequestId) -> Response {
    let problem = Problem::new(Code::Unavailable, why).retry_after(Duration::from_secs(1));
    reply::problem(&problem, request_id)
}
