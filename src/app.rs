//! STAND-IN, to be replaced at merge: answers health and nothing else.

use axum::{Router, routing::get};
use tokio_util::sync::CancellationToken;

use crate::config::{ApiArgs, WorkerArgs};

pub async fn api(args: ApiArgs, stop: CancellationToken) -> anyhow::Result<()> {
    crate::serve::serve(crate::serve::bind(args.listen).await?, health(), stop).await
}

pub async fn worker(args: WorkerArgs, stop: CancellationToken) -> anyhow::Result<()> {
    crate::serve::serve(crate::serve::bind(args.listen).await?, health(), stop).await
}

pub(crate) fn health() -> Router {
    Router::new().route("/livez", get(|| async { "ok" })).route("/readyz", get(|| async { "ok" }))
}
