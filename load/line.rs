//! One keep-alive connection. Question: what does it cost to ask?
//!
//! Hyper's connection is driven by the very task that waits for the answer: no second task, no pool, no wake-up across
//! threads. A benchmark drains its answers; a phone reads them. Nothing is retried: a broken connection is reported, and the order on it is
//! an order whose outcome we do not know.

use std::{net::SocketAddr, pin::pin, time::Duration};

use anyhow::Context;
use bytes::Bytes;
use checkout::phone::Answer;
use futures_util::FutureExt;
use http::{
    HeaderName,
    header::{LOCATION, RETRY_AFTER},
};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::{measure::Ended, orders::OrderRequest};

const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

type Connection = http1::Connection<TokioIo<TcpStream>, Full<Bytes>>;

#[derive(Debug)]
pub(crate) struct Line {
    sender: SendRequest<Full<Bytes>>,
    connection: Connection,
}

impl Line {
    pub(crate) async fn connect(server: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(server).await.with_context(|| format!("cannot connect to {server}"))?;
        // Head and body leave in one write already; this keeps the kernel from waiting for more.
        stream.set_nodelay(true).context("cannot switch Nagle's algorithm off")?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.context("HTTP handshake")?;
        Ok(Self { sender, connection })
    }

    /// Can another order be sent on this line? A server may close it after any answer.
    pub(crate) async fn is_ready(&mut self) -> bool {
        let Self { sender, connection } = self;
        matches!(driven(connection, sender.ready()).await, Some(Ok(())))
    }

    /// Sends one order and reads the answer.
    pub(crate) async fn ask(&mut self, request: OrderRequest) -> Result<Answer, LineBroken> {
        let Self { sender, connection } = self;
        driven(connection, listen(sender, request)).await.unwrap_or(Err(LineBroken::NoAnswer))
    }

    /// Sends one order and takes in the whole answer.
    pub(crate) async fn exchange(&mut self, request: OrderRequest) -> Ended {
        let Self { sender, connection } = self;
        match driven(connection, ask(sender, request)).await {
            Some(Ok(status)) => Ended::Status(status),
            Some(Err(_)) | None => Ended::Broken,
        }
    }
}

/// The connection ended before the answer was whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineBroken {
    /// Not even its beginning came.
    NoAnswer,
    Truncated {
        status: u16,
    },
}

/// Waits for `work` while it drives the connection. `None`: the connection ended and the work will never be done.
async fn driven<T>(connection: &mut Connection, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => Some(done),
        // The server may close right behind its answer, which is then already on our side.
        _ended = connection => work.now_or_never(),
    }
}

async fn listen(sender: &mut SendRequest<Full<Bytes>>, request: OrderRequest) -> Result<Answer, LineBroken> {
    let response = sender.send_request(request).await.map_err(|_| LineBroken::NoAnswer)?;
    let (head, body) = response.into_parts();
    let status = head.status.as_u16();
    // Our own server's: a few hundred bytes each.
    let body = body.collect().await.map_err(|_| LineBroken::Truncated { status })?.to_bytes();
    let text = |name: &HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
    Ok(Answer {
        status,
        replayed: text(&IDEMPOTENT_REPLAYED) == Some("true"),
        location: text(&LOCATION).map(str::to_owned),
        retry_after: text(&RETRY_AFTER).and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs),
        body: body.into(),
    })
}

async fn ask(sender: &mut SendRequest<Full<Bytes>>, request: OrderRequest) -> hyper::Result<u16> {
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;
    use crate::orders::Orders;

    /// A server that meets each connection with the next of these answers, byte for byte, then closes.
    async fn closing_server(answers: Vec<&'static str>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"}") {
                    stream.read_buf(&mut request).await.unwrap();
                }
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn an_answer_with_the_end_of_the_connection_behind_it_is_an_answer_and_a_cut_one_is_not() {
        let whole = "HTTP/1.1 201 Created\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
        let cut = "HTTP/1.1 201 Created\r\ncontent-length: 20\r\n\r\n{}";
        let server = closing_server(vec![whole, cut, ""]).await;
        let orders = Orders::of_customers(1, "0123456789abcdef0123456789abcdef", server).unwrap();
        let mut random = rand::make_rng();
        for expected in [Ended::Status(201), Ended::Broken, Ended::Broken] {
            let mut line = Line::connect(server).await.unwrap();
            assert!(line.is_ready().await);
            assert_eq!(line.exchange(orders.next(&mut random)).await, expected);
            assert!(!line.is_ready().await, "nothing more can be sent on a line that the server closed");
        }
    }
}
