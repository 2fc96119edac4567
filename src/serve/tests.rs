//! Slow, idle and half-closed clients, over real connections.

use axum::routing::{get, post};
use http::{
    HeaderMap,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Notify,
    task::JoinHandle,
};

use super::*;

/// Never reached: a test that waits this long has failed.
const LONG: Duration = Duration::from_secs(60);
const PATIENT: Limits =
    Limits { connections: 8, of_address: 0, requests: 0, head: LONG, idle: LONG, write: LONG, last_answers: LONG };
const REQUEST: &[u8] = b"GET /slow HTTP/1.1\r\nHost: shop\r\n\r\n";

/// A server whose one answer waits until it may go.
struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    asked: Arc<Notify>,
    go: Arc<Notify>,
}

impl Server {
    async fn start(limits: Limits) -> Self {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let (asked, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let slow = {
            let (asked, go) = (Arc::clone(&asked), Arc::clone(&go));
            async move || {
                asked.notify_one();
                go.notified().await;
                "done"
            }
        };
        // What is left of the head: is there a length, is there a coding?
        let told = async |headers: HeaderMap| {
            format!("{} {}", headers.contains_key(CONTENT_LENGTH), headers.contains_key(TRANSFER_ENCODING))
        };
        let router =
            Router::new().route("/slow", get(slow)).route("/told", post(told)).route("/", get(async || "here"));
        let serving = {
            let stop = stop.clone();
            tokio::spawn(async move { serve_within(limits, &Census::default(), listener, router, stop).await })
        };
        Self { address, stop, serving, asked, go }
    }

    async fn client(&self, sends: &[u8]) -> TcpStream {
        let mut client = TcpStream::connect(self.address).await.unwrap();
        client.write_all(sends).await.unwrap();
        client
    }

    async fn stopped(self) {
        self.stop.cancel();
        tokio::time::timeout(LONG / 2, self.serving).await.expect("it stops").unwrap();
    }
}

/// Everything until the server closes the connection, in order or not.
async fn until_closed(mut client: TcpStream) -> String {
    let mut read = Vec::new();
    let _reset_is_closed_too =
        tokio::time::timeout(LONG / 2, client.read_to_end(&mut read)).await.expect("it is closed");
    String::from_utf8(read).unwrap()
}

async fn one_answer(client: &mut TcpStream) -> String {
    let mut read = [0; 1024];
    let length = client.read(&mut read).await.unwrap();
    String::from_utf8_lossy(&read[..length]).into_owned()
}

#[tokio::test]
async fn half_a_head_and_silence_are_closed_after_a_time() {
    let server = Server::start(Limits { head: Duration::from_millis(50), ..PATIENT }).await;
    for sent in [&b""[..], b"GET / HTTP/1.1\r\nHost:"] {
        until_closed(server.client(sent).await).await;
    }
    // The next head is begun, and not finished either.
    let mut client = server.client(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n").await;
    one_answer(&mut client).await;
    client.write_all(b"GET").await.unwrap();
    until_closed(client).await;
    server.stopped().await;
}

/// Byte by byte there is always progress, and never a request.
#[tokio::test]
async fn a_head_that_drips_is_closed_too() {
    let server = Server::start(Limits { head: Duration::from_millis(100), ..PATIENT }).await;
    let mut client = server.client(b"GET / HTTP/1.1\r\nX: ").await;
    let dripping = async {
        while client.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await
        }
    };
    tokio::time::timeout(LONG / 2, dripping).await.expect("it is closed");
    server.stopped().await;
}

#[tokio::test]
async fn an_idle_connection_is_kept_beyond_the_time_for_a_head_and_closed_after_its_own() {
    let (head, idle) = (Duration::from_millis(100), Duration::from_millis(600));
    let server = Server::start(Limits { head, idle, ..PATIENT }).await;
    let mut client = server.client(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n").await;
    one_answer(&mut client).await;
    tokio::time::timeout(2 * head, client.readable()).await.expect_err("it is idle, and kept").to_string();
    until_closed(client).await;
    server.stopped().await;
}

/// What a slow handler or a long body takes is not the head's time.
#[tokio::test]
async fn a_request_under_way_is_not_hurried() {
    let server = Server::start(Limits { head: Duration::from_millis(50), ..PATIENT }).await;
    let mut client = server.client(REQUEST).await;
    server.asked.notified().await;
    tokio::time::timeout(Duration::from_millis(150), client.readable())
        .await
        .expect_err("the answer is not there yet")
        .to_string();
    server.go.notify_one();
    assert!(one_answer(&mut client).await.ends_with("done"));
    server.stopped().await;
}

#[tokio::test]
async fn the_last_answer_of_a_connection_says_so() {
    let server = Server::start(Limits { requests: 3, ..PATIENT }).await;
    let answers = until_closed(server.client(&b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n".repeat(3)).await).await;
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 3, "{answers}");
    assert_eq!(answers.matches("connection: close").count(), 1, "{answers}");
    server.stopped().await;
}

#[tokio::test]
async fn one_address_has_its_share_of_places_and_gets_them_back() {
    let server = Server::start(Limits { of_address: 2, ..PATIENT }).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut client = server.client(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n").await;
        assert!(one_answer(&mut client).await.ends_with("here"));
        held.push(client);
    }
    assert_eq!(until_closed(TcpStream::connect(server.address).await.unwrap()).await, "");
    held.clear();
    loop {
        let mut client = TcpStream::connect(server.address).await.unwrap();
        let sent = client.write_all(b"GET / HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n").await;
        // Refused as long as the server has not noticed that the two are gone.
        if sent.is_ok() && until_closed(client).await.ends_with("here") {
            break;
        }
    }
    server.stopped().await;
}

#[tokio::test]
async fn a_request_under_way_is_answered_and_an_idle_connection_does_not_delay_the_stop() {
    let server = Server::start(PATIENT).await;
    let mut idle = server.client(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n").await;
    assert!(one_answer(&mut idle).await.ends_with("here"));
    let silent = server.client(b"").await;
    let waiting = server.client(REQUEST).await;
    server.asked.notified().await;
    server.stop.cancel();
    assert_eq!(until_closed(idle).await, "");
    assert_eq!(until_closed(silent).await, "");
    TcpStream::connect(server.address).await.expect_err("nobody is let in any more");
    server.go.notify_one();
    assert!(until_closed(waiting).await.ends_with("done"));
    server.stopped().await;
}

#[tokio::test]
async fn a_client_that_never_finishes_delays_the_stop_only_so_long() {
    let server = Server::start(Limits { last_answers: Duration::from_millis(50), ..PATIENT }).await;
    let half = server.client(b"GET / HTTP/1.1\r\nHost:").await;
    let waiting = server.client(REQUEST).await;
    server.asked.notified().await;
    server.stopped().await;
    until_closed(half).await;
    assert_eq!(until_closed(waiting).await, "");
}

#[tokio::test]
async fn one_connection_too_many_waits_for_its_turn() {
    let server = Server::start(Limits { connections: 1, ..PATIENT }).await;
    let first = server.client(REQUEST).await;
    server.asked.notified().await;
    let second = server.client(b"GET / HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n").await;
    let mut second = tokio::spawn(until_closed(second));
    tokio::time::timeout(Duration::from_millis(50), &mut second).await.expect_err("there is no room for it");
    server.go.notify_one();
    drop(first);
    assert!(second.await.unwrap().ends_with("here"));
    server.stopped().await;
}

#[tokio::test]
async fn a_client_that_said_everything_still_gets_its_answer() {
    let server = Server::start(PATIENT).await;
    let mut client = server.client(REQUEST).await;
    client.shutdown().await.unwrap();
    server.asked.notified().await;
    server.go.notify_one();
    assert!(until_closed(client).await.ends_with("done"));
    server.stopped().await;
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let server = Server::start(PATIENT).await;
    let mut head = b"GET / HTTP/1.1\r\nHost: shop\r\nX-Long: ".to_vec();
    head.resize(head.len() + 2 * BUFFER_BYTES_MAX, b'a');
    let mut client = TcpStream::connect(server.address).await.unwrap();
    let _closed_while_we_send = client.write_all(&head).await;
    let answer = until_closed(client).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    server.stopped().await;
}

/// As the documentation says it. A target that is too long never comes to be a 414: its head is too large before.
#[tokio::test]
async fn what_is_no_http_is_answered_below_us_without_a_body_and_closed() {
    let server = Server::start(PATIENT).await;
    let head = |line: &str, fields: &str| format!("{line}\r\nHost: shop\r\n{fields}\r\n");
    let (get, post) = ("GET / HTTP/1.1", "POST / HTTP/1.1");
    let long = "a".repeat(BUFFER_BYTES_MAX);
    for (status, request) in [
        (400, head("G(T / HTTP/1.1", "")),
        (400, head("GET /\0 HTTP/1.1", "")),
        (400, head("GET /", "")),
        (400, head("GET / HTTP/1.2", "")),
        (400, head(get, "no colon\r\n")),
        (400, head(get, "X: a\0b\r\n")),
        (400, head(get, "X : a\r\n")),
        (400, head(post, "Content-Length: x\r\n")),
        (400, head(post, "Content-Length: 1\r\nContent-Length: 2\r\n")),
        (400, head(post, "Transfer-Encoding: gzip\r\n")),
        (400, head("POST / HTTP/1.0", "Transfer-Encoding: chunked\r\n")),
        (431, head(post, "Content-Length: 18446744073709551615\r\n")),
        (431, head(get, &"X: 1\r\n".repeat(100))),
        (431, head(get, &format!("X: {long}\r\n"))),
        (431, head(&format!("GET /{long} HTTP/1.1"), "")),
    ] {
        let answer = until_closed(server.client(request.as_bytes()).await).await;
        let shown = &request[..request.len().min(80)];
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{shown:?}: {answer}");
        let answer = answer.to_ascii_lowercase();
        assert!(answer.contains("content-length: 0\r\n") && answer.ends_with("\r\n\r\n"), "{shown:?}: {answer}");
    }
    // HTTP/2 without being asked whether we speak it: not even an answer that it could read.
    let answer = until_closed(server.client(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await).await;
    assert!(answer.is_empty(), "{answer}");
    server.stopped().await;
}

/// RFC 9112, section 6.3: of a length and a coding the coding counts, and the connection ends with the answer. So whatever a
/// proxy that believed the length took for the next request, or for somebody else's, is never read as one. hyper takes the
/// length away before anybody else sees the head.
#[tokio::test]
async fn behind_a_length_and_a_coding_nothing_more_is_read() {
    let server = Server::start(PATIENT).await;
    let smuggled = "GET / HTTP/1.1\r\nHost: shop\r\n\r\n";
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\nConnection: keep-alive\r\n",
    ] {
        let both = format!("POST /told HTTP/1.1\r\nHost: shop\r\n{fields}\r\n0\r\n\r\n{smuggled}");
        let answer = until_closed(server.client(both.as_bytes()).await).await;
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{fields}: {answer}");
        assert!(answer.ends_with("false true"), "{fields}: {answer}");
        assert!(answer.to_ascii_lowercase().contains("connection: close\r\n"), "{fields}: {answer}");
    }
    server.stopped().await;
}

#[tokio::test]
async fn a_client_that_never_reads_gives_up_its_place() {
    let server = Server::start(Limits { connections: 1, write: Duration::from_millis(100), ..PATIENT }).await;
    let mut deaf = TcpStream::connect(server.address).await.unwrap();
    let (_unread, mut sends) = deaf.split();
    let many = b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n".repeat(10_000);
    // Until the buffers of both sides are full and the server takes no more, or has closed the connection.
    while let Ok(Ok(_)) = tokio::time::timeout(Duration::from_millis(500), sends.write(&many)).await {}
    let second = server.client(b"GET / HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n").await;
    assert!(until_closed(second).await.ends_with("here"));
    server.stopped().await;
}

#[tokio::test]
async fn clients_that_have_their_answer_keep_nobody_out() {
    let server = Server::start(Limits { connections: 4, ..PATIENT }).await;
    let mut idle = Vec::new();
    for _ in 0..12 {
        let mut client = server.client(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n").await;
        assert!(one_answer(&mut client).await.ends_with("here"));
        idle.push(client);
    }
    server.stopped().await;
}
