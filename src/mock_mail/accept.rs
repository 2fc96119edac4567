//! The port: connections, and how they end.
//!
//! Promise: one small task per connection and nothing between it and the answer, so that the mock is not what a load run
//! measures; and the end waits for answers under way, but not for ever.

use std::{pin::pin, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Service, exchange};

/// Connections at once; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 4_096;
/// For the head of the next request, idle time included: longer than client pools keep an idle connection, so that we do not
/// close one under a sender.
const HEAD_S: u64 = 120;
/// How long the end waits for answers under way.
const STOP_S: u64 = 10;

/// Serves until the service stops, then until what is under way is answered.
pub(super) async fn serve(service: Arc<Service>, listener: TcpListener) {
    let connections = TaskTracker::new();
    tokio::select! {
        () = accept(&service, &listener, &connections) => {}
        () = service.stop.cancelled() => {}
    }
    drop(listener);
    connections.close();
    service.deliveries.close();
    let all = async {
        connections.wait().await;
        service.deliveries.wait().await;
    };
    if tokio::time::timeout(Duration::from_secs(STOP_S), all).await.is_err() {
        tracing::warn!(connections = connections.len(), "stopped with connections still open");
    }
}

async fn accept(service: &Arc<Service>, listener: &TcpListener, connections: &TaskTracker) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(connection(Arc::clone(service), stream, service.stop.child_token(), place));
            }
            Err(error) => {
                // Out of file descriptors, most likely: they come back, and a tight loop would not help.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(service: Arc<Service>, stream: TcpStream, stop: CancellationToken, _place: OwnedSemaphorePermit) {
    // Nagle's algorithm and a delayed acknowledgement together cost 40 ms per answer. A socket that refuses the option is
    // closed already, which the first read will tell.
    let _closed_already = stream.set_nodelay(true);
    let answer = service_fn(move |request| exchange::answer(Arc::clone(&service), request));
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(Duration::from_secs(HEAD_S))
            .serve_connection(TokioIo::new(stream), answer)
    );
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
