//! Step 2, the shield: work that has been claimed is finished, whoever stops listening.
//!
//! hyper drops a handler the moment its client hangs up, and phones hang up all the time. So the protocol runs in a task that
//! the server owns. The tasks are bounded in number, and shutdown waits for them.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{sync::Semaphore, time::Instant};
use tokio_util::task::TaskTracker;

#[derive(Debug, Clone)]
pub struct Shield {
    running: TaskTracker,
    room: Arc<Semaphore>,
}

/// What the handler learns of its task.
#[derive(Debug)]
pub enum Shielded<T> {
    Done(T),
    /// It goes on without the client.
    StillRunning,
    /// Too many run already; this one was not started.
    Full,
    /// It panicked. The claim it may have made ends with its lease.
    Broken,
}

impl Shield {
    pub fn new(running_max: usize) -> Self {
        Self { running: TaskTracker::new(), room: Arc::new(Semaphore::new(running_max)) }
    }

    /// Runs `work` to its end, and waits for it until `answer_by`.
    pub async fn run<T: Send + 'static>(
        &self,
        answer_by: Instant,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Shielded<T> {
        let Ok(place) = Arc::clone(&self.room).try_acquire_owned() else { return Shielded::Full };
        let task = self.running.spawn(async move {
            let _place = place;
            work.await
        });
        match tokio::time::timeout_at(answer_by, task).await {
            Ok(Ok(done)) => Shielded::Done(done),
            Ok(Err(_)) => Shielded::Broken,
            Err(_) => Shielded::StillRunning,
        }
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
        let shield = Shield::new(1);
        let (go, gate) = tokio::sync::oneshot::channel::<()>();
        let (done, finished) = tokio::sync::oneshot::channel();
        let listener = {
            let shield = shield.clone();
            tokio::spawn(async move {
                shield
                    .run(soon(), async move {
                        let _ = gate.await;
                        let _ = done.send(());
                    })
                    .await
            })
        };
        tokio::task::yield_now().await;
        listener.abort();
        assert!(
            matches!(shield.run(soon(), async {}).await, Shielded::Full),
            "the given up work still holds its place"
        );
        go.send(()).unwrap();
        assert_eq!(shield.drain(Duration::from_secs(10)).await, 0);
        finished.await.unwrap();
    }

    #[tokio::test]
    async fn a_late_answer_is_admitted_and_a_panic_is_contained() {
        let shield = Shield::new(2);
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
