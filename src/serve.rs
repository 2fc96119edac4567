//! One way to put a router on a port: bind, say where, serve, and stop without dropping a request.

use std::{future::IntoFuture, net::SocketAddr, time::Duration};

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

/// Longest wait, once asked to stop, for clients that have not read their answer or not finished their request.
const LAST_ANSWERS: Duration = Duration::from_secs(9);

/// Serves until `stop`, then until the requests under way are answered, but not for ever.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) -> anyhow::Result<()> {
    announce(&listener)?;
    // Nagle's algorithm and a delayed acknowledgement together cost 40 ms per answer.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    let serving = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned()).into_future();
    let out_of_patience = async {
        stop.cancelled().await;
        tokio::time::sleep(LAST_ANSWERS).await;
    };
    tokio::select! {
        served = serving => served.context("serving HTTP"),
        () = out_of_patience => {
            tracing::warn!("some clients did not take their last answer in time");
            Ok(())
        }
    }
}
