//! A server that does nothing. Question: how much of a figure is the harness itself?

use std::net::SocketAddr;

use axum::{Router, body::Bytes, http::header, routing::post};
use checkout::serve;
use clap::Args;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Args)]
pub(crate) struct NullServerArgs {
    /// Where to listen. Port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

/// Answers every order with the same 201 until `stop`.
pub(crate) async fn run(args: NullServerArgs, stop: CancellationToken) -> anyhow::Result<()> {
    const ORDER: &[u8] = br#"{"id":"00000000-0000-7000-8000-000000000000","status":"paid","total":4299}"#;
    // The body is taken in: an unread one would cost the connection.
    let answer = |_: Bytes| async {
        (http::StatusCode::CREATED, [(header::CONTENT_TYPE, "application/json")], Bytes::from_static(ORDER))
    };
    serve::serve(serve::bind(args.listen)?, Router::new().route("/v1/orders", post(answer)), stop).await
}
