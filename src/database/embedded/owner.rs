//! The owner's end of the pipes to a guardian. Question: how does the owner hear what became of its server, or of the
//! guardian itself?
//!
//! The guardian says one line for each turn of the server's life; the end of that pipe is the end of the guardian, even
//! when it was killed.

use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::Context;
use tokio::sync::mpsc;

use super::guardian::READY;

/// Recovery after a crash replays up to `max_wal_size`.
const START_MAX: Duration = Duration::from_secs(180);
/// Longer than the guardian's own patience with the server.
const STOP_MAX: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Lines that may wait to be read. Of an owner that never asks, the later ones are dropped.
const NEWS_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct GuardianProcess {
    child: Child,
    news: mpsc::Receiver<String>,
}

impl GuardianProcess {
    /// Starts it with the two pipes that tie it to us.
    pub(super) fn spawn(mut command: Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", command.get_program().display()))?;
        let stdout = child.stdout.take().context("the guardian has no stdout")?;
        let (heard, news) = mpsc::channel(NEWS_MAX);
        std::thread::spawn(move || listen(stdout, &heard));
        Ok(Self { child, news })
    }

    /// False: the server ended first, and its guardian with it.
    pub(super) async fn until_ready(&mut self) -> anyhow::Result<bool> {
        match tokio::time::timeout(START_MAX, self.news.recv()).await {
            Ok(Some(line)) => Ok(line == READY),
            Ok(None) => {
                self.ended().await?;
                Ok(false)
            }
            Err(_) => anyhow::bail!("PostgreSQL was not ready within {} s", START_MAX.as_secs()),
        }
    }

    /// The next turn of the server's life; `None` once the guardian is gone.
    pub(super) async fn news(&mut self) -> Option<String> {
        self.news.recv().await
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets go of it, and waits until it has stopped the server.
    pub(super) async fn stop(&mut self) -> anyhow::Result<ExitStatus> {
        drop(self.child.stdin.take());
        if let Ok(ended) = tokio::time::timeout(STOP_MAX, self.ended()).await {
            return ended;
        }
        // Paused, perhaps. What it leaves behind is its owner's to end.
        self.child.kill().context("cannot end the guardian")?;
        self.ended().await
    }

    /// Its end, which the standard library can only wait for by blocking.
    pub(super) async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        loop {
            match self.child.try_wait().context("waiting for the guardian")? {
                Some(status) => return Ok(status),
                None => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }
}

fn listen(stdout: ChildStdout, heard: &mpsc::Sender<String>) {
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        let _nobody_asks = heard.try_send(line);
    }
}
