//! The pages: what a person sees of the checkout.

use axum::{Router, routing::get};
use tokio_util::sync::CancellationToken;

use crate::{config::ConsoleArgs, serve};

/// STAND-IN until the page lands: health only.
pub async fn run(args: ConsoleArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let health = Router::new().route("/livez", get(async || "alive\n")).route("/readyz", get(async || "ready\n"));
    serve::serve(serve::bind(args.listen).await?, health, stop).await
}
