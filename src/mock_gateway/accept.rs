//! The port: connections, and how they end.
//!
//! Promise: a connection ends as its fate says - in order, with a FIN before any answer, or with a RST - and otherwise lives
//! as long as its client wants it.
//! It answers: how does a client see a gateway that charged it and then went silent?

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Gateway, exchange};

/// Connections at once; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 8_192;
/// For the headers of the next request, idle time included. Client pools commonly keep an idle connection for 90 s: were this
/// shorter, we would close under a sender, who could not know whether it was charged.
const HEADERS_S: u64 = 120;
/// How long the end waits for answers under way.
const STOP_S: u64 = 10;

/// Serves until the gateway stops, then until what is under way is answered.
pub(super) async fn serve(gateway: Arc<Gateway>, listener: TcpListener, mut refusals: mpsc::Receiver<Duration>) {
    let stop = gateway.stop.clone();
    let connections = TaskTracker::new();
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut listener = listener;
    loop {
        let closing = stop.child_token();
        let ended = tokio::select! {
            () = accept(&gateway, &listener, &connections, &permits, &closing) => Ended::Stopped,
            pause = refusals.recv() => pause.map_or(Ended::Stopped, Ended::Refusing),
            () = stop.cancelled() => Ended::Stopped,
        };
        closing.cancel();
        listener = match ended {
            Ended::Stopped => break,
            Ended::Refusing(pause) => match refuse(listener, pause, &stop).await {
                Some(listener) => listener,
                None => break,
            },
        };
    }
    connections.close();
    gateway.executions.close();
    let all = async {
        connections.wait().await;
        gateway.executions.wait().await;
    };
    if tokio::time::timeout(Duration::from_secs(STOP_S), all).await.is_err() {
        tracing::warn!(connections = connections.len(), "stopped with connections still open");
    }
}

enum Ended {
    Stopped,
    Refusing(Duration),
}

async fn accept(
    gateway: &Arc<Gateway>,
    listener: &TcpListener,
    connections: &TaskTracker,
    permits: &Arc<Semaphore>,
    closing: &CancellationToken,
) {
    loop {
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(connection(Arc::clone(gateway), stream, closing.clone(), permit));
            }
            Err(error) => {
                // Out of file descriptors, most likely: they come back, and a tight loop would not help.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Closes the port for a while, so that the kernel refuses connections. `None` when told to stop meanwhile.
async fn refuse(listener: TcpListener, pause: Duration, stop: &CancellationToken) -> Option<TcpListener> {
    let address: SocketAddr = listener.local_addr().ok()?;
    drop(listener);
    let mut wait = pause;
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stop.cancelled() => return None,
        }
        match crate::serve::bind(address) {
            Ok(listener) => return Some(listener),
            Err(error) => tracing::warn!("not yet: {error:#}"),
        }
        wait = Duration::from_millis(100);
    }
}

async fn connection(
    gateway: Arc<Gateway>,
    stream: TcpStream,
    closing: CancellationToken,
    _permit: OwnedSemaphorePermit,
) {
    // Nagle's algorithm and a delayed acknowledgement together cost 40 ms per answer.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let reset = Arc::new(AtomicBool::new(false));
    let service = {
        let reset = Arc::clone(&reset);
        service_fn(move |request| exchange::answer(Arc::clone(&gateway), Arc::clone(&reset), request))
    };
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(HEADERS_S))
        .serve_connection(TokioIo::new(stream), service);
    let ended = tokio::select! {
        ended = &mut connection => Some(ended),
        () = closing.cancelled() => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
    if reset.load(Ordering::Relaxed) {
        let stream = connection.into_parts().io.into_inner();
        // Closing with nothing left to linger for is what makes the kernel send RST in place of FIN.
        if let Err(error) = stream.set_zero_linger() {
            tracing::warn!(%error, "cannot reset a connection");
        }
    }
}
