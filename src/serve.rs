//! One way to put a router on a port: bind, say where, serve, and stop without dropping a request.

use std::net::SocketAddr;

use anyhow::Context;
use axum::{Router, serve::ListenerExt};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Binds, or says in one line why not.
pub async fn bind(listen: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))
}

/// Tells whoever started us where we are: the supervisor reads this one line from stdout.
pub fn announce(listener: &TcpListener) -> anyhow::Result<()> {
    println!("listening on http://{}", listener.local_addr()?);
    Ok(())
}

/// Serves until `stop`, then until the requests under way are answered.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) -> anyhow::Result<()> {
    announce(&listener)?;
    // Nagle's algorithm and a delayed acknowledgement together cost 40 ms per answer.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await.context("serving HTTP")
}
