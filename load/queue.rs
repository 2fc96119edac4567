//! Orders that are due and wait for a free connection. Question: what becomes of a tap when all lines are busy?
//!
//! It waits here, and its wait counts. The room is bounded: a tap that finds no place is dropped, and told so.

use std::{collections::VecDeque, sync::Mutex, time::Instant};

use tokio::sync::Semaphore;

#[derive(Debug)]
pub(crate) struct Queue {
    due: Mutex<VecDeque<Instant>>,
    limit: usize,
    /// One permit per queued order, and at the end one per taker.
    takers: Semaphore,
}

/// What became of an order that was put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Put {
    Queued,
    Full,
}

impl Queue {
    pub(crate) fn new(limit: usize) -> Self {
        Self { due: Mutex::new(VecDeque::with_capacity(limit)), limit, takers: Semaphore::new(0) }
    }

    pub(crate) fn put(&self, due: Instant) -> Put {
        let mut queue = self.lock();
        if queue.len() >= self.limit {
            return Put::Full;
        }
        queue.push_back(due);
        drop(queue);
        self.takers.add_permits(1);
        Put::Queued
    }

    /// The order that has waited longest. `None` once the queue has been closed and is empty.
    pub(crate) async fn take(&self) -> Option<Instant> {
        self.takers.acquire().await.ok()?.forget();
        self.lock().pop_front()
    }

    /// Nothing more will come: each of the takers leaves when it next finds nothing.
    pub(crate) fn close(&self, takers: usize) {
        self.takers.add_permits(takers);
    }

    /// Gives up what still waits, and says how many that were: takers find nothing more.
    pub(crate) fn abandon(&self) -> u64 {
        std::mem::take(&mut *self.lock()).len() as u64
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.lock().len() as u64
    }

    /// A panic elsewhere while the lock was held cannot have left the list half changed.
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Instant>> {
        self.due.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn orders_come_out_in_the_order_they_were_due_and_closing_loses_none() {
        let queue = Queue::new(3);
        let start = Instant::now();
        let due = |ms| start + Duration::from_millis(ms);
        for ms in 0..3 {
            assert_eq!(queue.put(due(ms)), Put::Queued);
        }
        assert_eq!(queue.put(due(3)), Put::Full);
        queue.close(2);
        for ms in 0..3 {
            assert_eq!(queue.take().await, Some(due(ms)));
        }
        assert_eq!((queue.take().await, queue.take().await, queue.waiting()), (None, None, 0));
    }

    #[tokio::test]
    async fn orders_that_were_given_up_are_counted_and_never_handed_out() {
        let queue = Queue::new(3);
        for _ in 0..3 {
            assert_eq!(queue.put(Instant::now()), Put::Queued);
        }
        queue.close(1);
        assert_eq!((queue.abandon(), queue.abandon()), (3, 0));
        assert_eq!((queue.take().await, queue.waiting()), (None, 0));
    }
}
