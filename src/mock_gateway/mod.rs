//! STAND-IN, to be replaced at merge: another company: a mock payment gateway.

use axum::routing::get;
use tokio_util::sync::CancellationToken;

use crate::config::MockGatewayArgs;

pub async fn run(args: MockGatewayArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let router = crate::app::health().route("/_mock/stats", get(|| async { "{}" }));
    crate::serve::serve(crate::serve::bind(args.listen).await?, router, stop).await
}
