//! How another company's list is read: in one go, however long, without holding its text.

use std::{
    io::{BufReader, Read},
    time::Duration,
};

use anyhow::Context;
use bytes::{Buf, Bytes};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

/// An entry takes about 300 bytes: room for some three million of them, and a bound on a list that never ends.
const BYTES_MAX: usize = 1 << 30;
/// The whole answer. 200,000 entries take a few seconds.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Pieces of the answer that have come and are not parsed yet.
const PIECES_MAX: usize = 16;

/// Asks for a JSON document. A TLS provider must be installed, as for every HTTP client here.
pub(super) async fn read<T: DeserializeOwned + Send + 'static>(url: &str) -> anyhow::Result<T> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .retry(reqwest::retry::never())
        .connect_timeout(Duration::from_secs(3))
        .timeout(TIMEOUT)
        .build()?;
    let mut response = client.get(url).send().await?.error_for_status()?;
    let (pieces, waiting) = mpsc::channel(PIECES_MAX);
    // serde pulls and the network pushes: they meet in a thread that may wait.
    let parsing = tokio::task::spawn_blocking(move || {
        serde_json::from_reader(BufReader::new(Pieces { waiting, current: Bytes::new() }))
    });
    let mut length = 0;
    while let Some(piece) = response.chunk().await? {
        length += piece.len();
        anyhow::ensure!(length <= BYTES_MAX, "the answer is longer than {BYTES_MAX} bytes");
        // Nobody takes it: the parser has seen enough, and says below what was wrong.
        if pieces.send(piece).await.is_err() {
            break;
        }
    }
    drop(pieces);
    parsing.await.context("reading the answer")?.map_err(Into::into)
}

/// The pieces as one text. It ends where the sender does; one that broke off ends in the middle, and is no JSON.
struct Pieces {
    waiting: mpsc::Receiver<Bytes>,
    current: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while self.current.is_empty() {
            match self.waiting.blocking_recv() {
                Some(piece) => self.current = piece,
                None => return Ok(0),
            }
        }
        let length = into.len().min(self.current.len());
        into[..length].copy_from_slice(&self.current[..length]);
        self.current.advance(length);
        Ok(length)
    }
}
