//! A socket with little patience. Question: what of a client that asks and asks and never reads, or begins to ask and never ends?
//!
//! Answers that are not read fill the buffers on both sides, and heads that come byte by byte keep a place as long as they last.
//! hyper has one time-out for the time between two requests and for the head together. Here a head that was begun has its own,
//! much shorter: to be idle between two requests is no offence.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep},
};

use super::Limits;

/// Whose turn it is on one connection.
#[derive(Debug, Default)]
pub(super) struct Talk {
    begun: AtomicU64,
    under_way: AtomicBool,
}

impl Talk {
    /// A head is there in full; the how manieth it is.
    pub(super) fn begin(&self) -> u64 {
        self.under_way.store(true, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Its answer is known.
    pub(super) fn end(&self) {
        self.under_way.store(false, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(super) struct Patient {
    stream: TcpStream,
    patience: Duration,
    /// Runs while a write is stalled.
    until: Pin<Box<Sleep>>,
    stalled: bool,
    talk: Arc<Talk>,
    head_max: Duration,
    /// Runs while a head is awaited that was begun; that of a new connection counts as begun.
    head_until: Pin<Box<Sleep>>,
    head_begun: bool,
    /// Requests that had begun when the last look was taken.
    seen: u64,
}

impl Patient {
    pub(super) fn new(stream: TcpStream, limits: Limits, talk: Arc<Talk>) -> Self {
        Self {
            stream,
            patience: limits.write,
            until: Box::pin(sleep(limits.write)),
            stalled: false,
            talk,
            head_max: limits.head,
            head_until: Box::pin(sleep(limits.head)),
            head_begun: true,
            seen: 0,
        }
    }

    /// Fails once the head that was begun is late.
    fn head(&mut self, cx: &mut Context<'_>, came: bool) -> io::Result<()> {
        let begun = self.talk.begun.load(Ordering::Relaxed);
        if begun != self.seen {
            (self.seen, self.head_begun) = (begun, false);
        }
        if self.talk.under_way.load(Ordering::Relaxed) {
            return Ok(());
        }
        if came && !self.head_begun {
            self.head_begun = true;
            let until = Instant::now() + self.head_max;
            self.head_until.as_mut().reset(until);
        }
        if self.head_begun && self.head_until.as_mut().poll(cx).is_ready() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not finish its request"));
        }
        Ok(())
    }

    fn progress<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = false;
            return written;
        }
        if !self.stalled {
            self.stalled = true;
            self.until.as_mut().reset(Instant::now() + self.patience);
        }
        ready!(self.until.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl AsyncRead for Patient {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.head(cx, buffer.filled().len() > before)?;
        read
    }
}

impl AsyncWrite for Patient {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.progress(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.progress(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.progress(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
