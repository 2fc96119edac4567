//! One way to put a router on a port: bind, say where, serve, and stop without dropping a request.
//!
//! Promise: no client, however slow or numerous, keeps others out for long or keeps the process from stopping.

mod census;
mod patient;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use axum::Router;
use http::{HeaderValue, Request, header::CONNECTION};
use hyper::{
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::census::Census;
use self::{
    census::Counted,
    patient::{Patient, Talk},
};

/// What one listener grants its clients.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at once; more wait in the kernel's queue.
    pub connections: usize,
    /// Connections at once of one address; one more is closed. 0: no limit.
    pub of_address: usize,
    /// Requests of one connection; the last one's answer says that it closes. 0: no limit. Clients spread anew over several
    /// servers, and nothing that a connection keeps grows for ever.
    pub requests: u64,
    /// For a head that was begun to be there in full, and for a new connection to say something.
    pub head: Duration,
    /// For the next request of a kept connection.
    pub idle: Duration,
    /// For a write to make progress.
    pub write: Duration,
    /// Longest wait, once asked to stop, for clients that have not read their answer or not finished their request.
    pub last_answers: Duration,
}

impl Limits {
    pub const USUAL: Self = Self {
        connections: 4_096,
        of_address: 0,
        requests: 0,
        head: Duration::from_secs(5),
        idle: Duration::from_secs(60),
        write: Duration::from_secs(10),
        last_answers: Duration::from_secs(9),
    };
}

/// Holds the head of a request, which is refused beyond it; bodies have limits of their own. What hyper refuses, it answers by
/// itself and without a body before we hear of it: 400 for what is no HTTP/1.1, 431 for a head that is too large.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Out of file descriptors, most likely: they come back, and a tight loop would not help.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections that the kernel holds for us until we come to them; it caps this by `net.core.somaxconn`. With the usual 128 a
/// burst of phones outruns a process that is off the processor for a moment: some connect a second late, and one that waits
/// to be spoken to first is connected to nobody, for ever.
const BACKLOG: u32 = 4_096;

/// Binds, or says in one line why not.
pub fn bind(listen: SocketAddr) -> anyhow::Result<TcpListener> {
    listening(listen).with_context(|| format!("cannot listen on {listen}"))
}

fn listening(listen: SocketAddr) -> io::Result<TcpListener> {
    let socket = if listen.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // As std does: a port is free again while the last connections of its last owner linger.
    socket.set_reuseaddr(true)?;
    socket.bind(listen)?;
    socket.listen(BACKLOG)
}

/// Tells whoever started us where we are: the supervisor reads this one line from stdout.
pub fn announce(listener: &TcpListener) -> anyhow::Result<()> {
    println!("listening on http://{}", listener.local_addr()?);
    Ok(())
}

/// Serves until `stop`, then until the requests under way are answered, but not for ever.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) -> anyhow::Result<()> {
    announce(&listener)?;
    serve_within(Limits::USUAL, &Census::default(), listener, router, stop).await;
    Ok(())
}

/// [`serve`] within limits of its own, counting the connections. Says nothing of where.
pub async fn serve_within(
    limits: Limits,
    census: &Census,
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
) {
    // The state is built into the routes once, instead of once for every request.
    let service = TowerToHyperService::new(router.with_state(()));
    let (connections, out_of_patience) = (TaskTracker::new(), CancellationToken::new());
    let room = Arc::new(Semaphore::new(limits.connections));
    let accepting = async {
        // The semaphore is never closed.
        while let Ok(place) = Arc::clone(&room).acquire_owned().await {
            let (stream, address) = accept(&listener).await;
            let Some(counted) = census.enter(address, limits.of_address) else { continue };
            // An idle connection is a courtesy. When places are scarce, each client has one for a request at a time.
            let keep = room.available_permits() >= limits.connections / 4;
            // A token of its own: a connection looks at it whenever it wakes, and shares no lock with the others.
            let (service, stop, cut) = (service.clone(), stop.child_token(), out_of_patience.clone());
            connections.spawn(async move {
                converse(stream, service, limits, keep, stop, cut).await;
                leave(counted, place);
            });
        }
    };
    tokio::select! {
        () = accepting => {}
        () = stop.cancelled() => {}
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(limits.last_answers, connections.wait()).await.is_err() {
        tracing::warn!(connections = connections.len(), "some clients did not take their last answer in time");
        out_of_patience.cancel();
        connections.wait().await;
    }
}

/// The place goes last: whoever counts finds no more connections than there are places.
fn leave(counted: Counted, place: tokio::sync::OwnedSemaphorePermit) {
    drop(counted);
    drop(place);
}

async fn accept(listener: &TcpListener) -> (TcpStream, IpAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => return (stream, address.ip()),
            // The client was gone before we came to it: its own affair.
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) => {
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// One connection: its requests one after the other, until it or we have had enough.
async fn converse(
    stream: TcpStream,
    service: TowerToHyperService<Router>,
    limits: Limits,
    keep: bool,
    stop: CancellationToken,
    cut: CancellationToken,
) {
    // Nagle's algorithm and a delayed acknowledgement together cost 40 ms per answer. A socket that refuses the option is
    // closed already, which the first read will tell.
    let _closed_already = stream.set_nodelay(true);
    let talk = Arc::new(Talk::default());
    let stream = Patient::new(stream, limits, Arc::clone(&talk));
    let answer = service_fn(move |request: Request<Incoming>| {
        let last = talk.begin() == limits.requests;
        let (talk, answer) = (Arc::clone(&talk), service.call(request));
        async move {
            let mut answered = answer.await?;
            talk.end();
            if last {
                answered.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, std::convert::Infallible>(answered)
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.idle)
            .keep_alive(keep)
            .max_buf_size(BUFFER_BYTES_MAX)
            // The buffer alone lets a head through that arrives in one piece.
            .max_header_size(BUFFER_BYTES_MAX)
            // A client may say that it has said everything, and still wait for its answer.
            .half_close(true)
            .serve_connection(TokioIo::new(stream), answer)
    );
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            // An idle connection ends with this; one with a request under way ends with its answer.
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => ended,
                () = cut.cancelled() => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

#[cfg(test)]
mod tests;
