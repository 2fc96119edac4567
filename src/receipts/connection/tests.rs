use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);
const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

async fn listen() -> (TcpListener, Connections) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/base/", listener.local_addr().unwrap());
    (listener, Connections::to(&url, "re_x").unwrap())
}

async fn ask(connections: &Connections) -> Result<Answer, Failure> {
    connections.exchange(Method::POST, "/emails", Some("k"), Bytes::from_static(b"hello"), PATIENCE).await
}

/// Reads one request with the body `hello`.
async fn request(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"hello") {
        let mut buffer = [0; 1024];
        let length = stream.read(&mut buffer).await.unwrap();
        assert!(length > 0, "the client left");
        read.extend_from_slice(&buffer[..length]);
    }
    String::from_utf8(read).unwrap()
}

#[tokio::test]
async fn a_connection_is_kept_and_one_that_ended_meanwhile_is_replaced() {
    let (listener, connections) = listen().await;
    let serve = async {
        let (mut first, _) = listener.accept().await.unwrap();
        let head = request(&mut first).await;
        assert!(head.starts_with("POST /base/emails HTTP/1.1\r\n") && head.contains("authorization: Bearer re_x\r\n"));
        first.write_all(OK).await.unwrap();
        request(&mut first).await;
        first.write_all(OK).await.unwrap();
        drop(first);
        let (mut second, _) = listener.accept().await.unwrap();
        request(&mut second).await;
        second.write_all(OK).await.unwrap();
    };
    let asked = async {
        for _ in 0..2 {
            assert_eq!(ask(&connections).await.unwrap().status, StatusCode::OK);
        }
        // The end of the first connection reaches us before the next request is written.
        while connections.0.idle.lock().unwrap().iter().any(|sender| !sender.is_closed()) {
            tokio::task::yield_now().await;
        }
        assert_eq!(ask(&connections).await.unwrap().body, "{}");
    };
    tokio::join!(serve, asked);
}

#[tokio::test]
async fn a_request_that_was_written_is_not_written_again() {
    let (listener, connections) = listen().await;
    let serve = async {
        let (mut first, _) = listener.accept().await.unwrap();
        request(&mut first).await;
        first.write_all(OK).await.unwrap();
        request(&mut first).await;
        drop(first);
    };
    let asked = async {
        ask(&connections).await.unwrap();
        assert!(matches!(ask(&connections).await, Err(Failure::Lost(_))));
    };
    tokio::join!(serve, asked);
    assert!(connections.0.idle.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_answer_that_breaks_off_or_never_comes_costs_its_connection() {
    let (listener, connections) = listen().await;
    let serve = async {
        let (mut first, _) = listener.accept().await.unwrap();
        request(&mut first).await;
        first.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{").await.unwrap();
        drop(first);
        let (mut second, _) = listener.accept().await.unwrap();
        request(&mut second).await;
        // Until the client has given up.
        assert_eq!(second.read(&mut [0; 8]).await.unwrap(), 0);
    };
    let asked = async {
        assert!(matches!(ask(&connections).await, Err(Failure::AnswerCut)));
        let short = Duration::from_millis(50);
        let late = connections.exchange(Method::POST, "/emails", None, Bytes::from_static(b"hello"), short).await;
        assert!(matches!(late, Err(Failure::TimedOut)));
    };
    tokio::join!(serve, asked);
    assert!(connections.0.idle.lock().unwrap().is_empty());
}

#[tokio::test]
async fn nobody_there_is_said_and_no_other_protocol_is_pretended() {
    let (listener, connections) = listen().await;
    drop(listener);
    assert!(matches!(ask(&connections).await, Err(Failure::NotConnected(_))));
    assert!(Connections::to("https://mail.example", "re_x").is_err());
    assert!(Connections::to("mail.example:80", "re_x").is_err());
}
