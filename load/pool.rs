//! A fixed number of keep-alive connections. Question: who waits for whom?
//!
//! A phone that has something to say takes a line, and waits where none is free; a phone that waits for time to pass holds none.
//! So ten thousand phones in a tunnel cost ten thousand timers and no socket.

use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
};

use checkout::phone::Answer;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{
    line::{Line, LineBroken},
    orders::OrderRequest,
};

#[derive(Debug)]
pub(crate) struct Pool {
    server: SocketAddr,
    places: Semaphore,
    free: Mutex<Vec<Line>>,
}

/// A line that is nobody else's. Dropped without [`OnLine::keep`], the connection is closed: that is how a phone hangs up.
#[derive(Debug)]
pub(crate) struct OnLine<'a> {
    line: Line,
    pool: &'a Pool,
    _place: SemaphorePermit<'a>,
}

impl Pool {
    /// All connections at once, so that none has to be made while somebody waits.
    pub(crate) async fn open(server: SocketAddr, size: usize) -> anyhow::Result<Self> {
        let mut free = Vec::with_capacity(size);
        for _ in 0..size {
            free.push(Line::connect(server).await?);
        }
        Ok(Self { server, places: Semaphore::new(size), free: Mutex::new(free) })
    }

    /// Waits for a place. `None`: the server cannot be connected to.
    pub(crate) async fn take(&self) -> Option<OnLine<'_>> {
        // Nobody closes the semaphore.
        let place = self.places.acquire().await.ok()?;
        let kept = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let line = match kept {
            // A server may close a connection after any answer.
            Some(mut line) => line.is_ready().await.then_some(line),
            None => None,
        };
        let line = match line {
            Some(line) => line,
            None => Line::connect(self.server).await.ok()?,
        };
        Some(OnLine { line, pool: self, _place: place })
    }
}

impl OnLine<'_> {
    pub(crate) async fn ask(&mut self, request: OrderRequest) -> Result<Answer, LineBroken> {
        self.line.ask(request).await
    }

    /// The answer is whole: the next one may use the connection.
    pub(crate) fn keep(self) {
        self.pool.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.line);
    }
}
