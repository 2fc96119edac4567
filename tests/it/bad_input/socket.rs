//! One connection, byte by byte: what no HTTP client would send, and what came back.

use std::time::Duration;

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Generous: it only bounds a hang, also that of a server which goes on and on without an end.
const PATIENCE: Duration = Duration::from_secs(60);

/// What comes of this within our patience.
async fn in_time<T>(awaited: &str, what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.unwrap_or_else(|_| panic!("{awaited} does not come"))
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Heard {
    /// The one value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// `Null` when the body is no JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Socket {
    pub(crate) async fn open(host: &str) -> Self {
        let stream = in_time("a connection", TcpStream::connect(host)).await.expect("a connection");
        Self { stream, unread: Vec::new() }
    }

    /// Sends what the other side takes: it may refuse and close in the middle.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let _closed_while_we_send = in_time("its reading", self.stream.write_all(bytes)).await;
    }

    /// We have said everything.
    pub(crate) async fn finish(&mut self) {
        let _closed_already = in_time("our end", self.stream.shutdown()).await;
    }

    /// The next answer, `100 Continue` aside. `None`: the connection ended without one.
    pub(crate) async fn answer(&mut self) -> Option<Heard> {
        in_time("an answer", self.next_answer()).await
    }

    async fn next_answer(&mut self) -> Option<Heard> {
        loop {
            let head_length = loop {
                match self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                    Some(end) => break end + 4,
                    None => self.more().await?,
                }
            };
            let head: Vec<u8> = self.unread.drain(..head_length).collect();
            let mut heard = read_head(&String::from_utf8_lossy(&head))?;
            if heard.status < 200 {
                continue;
            }
            let length: usize = heard.header("content-length").map_or(0, |length| length.parse().expect("a length"));
            while self.unread.len() < length {
                self.more().await?;
            }
            heard.body = self.unread.drain(..length).collect();
            return Some(heard);
        }
    }

    /// Whether the other side has closed, or does so over what is left of what we said; if not, it answers one more request.
    pub(crate) async fn ends(self) -> bool {
        in_time("the end", self.ends_sometime()).await
    }

    async fn ends_sometime(mut self) -> bool {
        self.send(b"GET /livez HTTP/1.1\r\nHost: shop\r\n\r\n").await;
        while let Some(heard) = self.answer().await {
            if heard.text() == "alive\n" {
                return false;
            }
            assert_eq!((heard.status, heard.header("connection")), (400, Some("close")), "another request: {heard:?}");
        }
        true
    }

    /// Sends all of this and meanwhile reads so many answers: status and body of each.
    pub(crate) async fn converse(&mut self, bytes: &[u8], answers: usize) -> Vec<(u16, Vec<u8>)> {
        let mut heard = Vec::with_capacity(answers);
        let mut sent = 0;
        while heard.len() < answers {
            // As much as it takes now; then what it says about it.
            match self.stream.try_write(&bytes[sent..]) {
                Ok(length) => sent += length,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => panic!("it takes no more: {error}"),
            }
            let answer = self.answer().await.expect("an answer");
            heard.push((answer.status, answer.body));
        }
        heard
    }

    async fn more(&mut self) -> Option<()> {
        matches!(self.stream.read_buf(&mut self.unread).await, Ok(1..)).then_some(())
    }
}

fn read_head(head: &str) -> Option<Heard> {
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines.filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
    Some(Heard { status, headers, body: Vec::new() })
}
