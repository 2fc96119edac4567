//! Step 2, the shield: work that has been claimed is finished, whoever stops listening.
//!
//! hyper drops a handler the moment its client hangs up, and phones hang up all the time. So the protocol runs in a task that
//! the server owns, and shutdown waits for it.
//!
//! New purchases are bounded in number by their [`Place`]s. A retry needs none: what happened already is told also when no
//! new order would be taken. All tasks together have a bound too, much further out, where there is no memory left to be kind
//! with.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tokio_util::task::TaskTracker;

/// The right to begin one new purchase, released when it is dropped.
#[derive(Debug)]
pub struct Place {
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug, Clone)]
pub struct Shield {
    running: TaskTracker,
    room: Arc<Semaphore>,
    tasks: Arc<Semaphore>,
}

/// What the handler learns of its task.
#[derive(Debug)]
pub enum Shielded<T> {
    Done(T),
    /// It goes on without the client.
    StillRunning,
    /// There are too many, and it was not begun.
    Overloaded,
    /// It panicked. The claim it may have made ends with its lease.
    Broken,
}

impl Shield {
    /// At most so many purchases, and so many tasks of whatever kind.
    pub fn new(running_max: usize, tasks_max: usize) -> Self {
        let bound = |most| Arc::new(Semaphore::new(most));
        Self { running: TaskTracker::new(), room: bound(running_max), tasks: bound(tasks_max) }
    }

    /// A place for a new purchase, if there is room for one.
    pub fn place(&self) -> Option<Place> {
        Arc::clone(&self.room).try_acquire_owned().ok().map(|permit| Place { _permit: permit })
    }

    /// Runs `work` to its end, and waits for it until `answer_by`.
    pub async fn run<T: Send + 'static>(
        &self,
        answer_by: Instant,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Shielded<T> {
        let Ok(permit) = Arc::clone(&self.tasks).try_acquire_owned() else { return Shielded::Overloaded };
        let task = self.running.spawn(async move {
            let done = work.await;
            drop(permit);
            done
        });
        match tokio::time::timeout_at(answer_by, task).await {
            Ok(Ok(done)) => Shielded::Done(done),
            Ok(Err(_)) => Shielded::Broken,
            Err(_) => Shielded::StillRunning,
        }
    }

    /// How many tasks run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Waits for everything under way, at most `patience`. What is left then ends with its lease.
    pub async fn drain(&self, patience: Duration) -> usize {
        self.running.close();
        let _ = tokio::time::timeout(patience, self.running.wait()).await;
        self.running.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[tokio::test]
    async fn work_goes_on_when_its_listener_is_gone_and_drain_waits_for_it() {
        let shield = Shield::new(1, 9);
        let (go, gate) = tokio::sync::oneshot::channel::<()>();
        let (done, finished) = tokio::sync::oneshot::channel();
        let listener = {
            let (shield, place) = (shield.clone(), shield.place());
            let work = async move {
                let _place = place;
                let _ = gate.await;
                let _ = done.send(());
            };
            tokio::spawn(async move { shield.run(soon(), work).await })
        };
        tokio::task::yield_now().await;
        listener.abort();
        assert!(listener.await.unwrap_err().is_cancelled());
        assert!(shield.place().is_none(), "the work that was given up still holds its place");
        go.send(()).unwrap();
        assert_eq!(shield.drain(Duration::from_secs(10)).await, 0);
        finished.await.unwrap();
        assert!(shield.place().is_some());
    }

    #[tokio::test]
    async fn a_retry_needs_no_place_and_beyond_the_last_task_nothing_is_begun() {
        let shield = Shield::new(1, 2);
        let _only = shield.place().unwrap();
        assert!(shield.place().is_none());
        assert!(matches!(shield.run(soon(), async { 7 }).await, Shielded::Done(7)), "a retry");
        for _ in 0..2 {
            shield.run(Instant::now(), std::future::pending::<()>()).await;
        }
        assert!(matches!(shield.run(soon(), async { 7 }).await, Shielded::Overloaded));
        assert_eq!(shield.running(), 2);
    }

    #[tokio::test]
    async fn a_late_answer_is_admitted_and_a_panic_is_contained() {
        let shield = Shield::new(2, 9);
        assert!(matches!(shield.run(Instant::now(), std::future::pending::<()>()).await, Shielded::StillRunning));
        let broken = shield
            .run(soon(), async {
                if soon() > Instant::now() {
                    panic!("on purpose")
                }
            })
            .await;
        assert!(matches!(broken, Shielded::Broken));
        assert!(matches!(shield.run(soon(), async { 7 }).await, Shielded::Done(7)));
    }
}
