//! Group commit: one transaction for everything that queued while the previous one ran. How can one order per
//! transaction pair be the plain path and still be fast? By being the batch of one.
//!
//! A lane that is free takes what is there, be it one item or [`limit`](Limits::batch): whoever comes alone waits for nobody. Under
//! load the queue fills while a transaction runs, and while its lane rests from it. Items are answered only after their
//! transaction committed. A batch that lost a race is run again as it is; one that fails otherwise is run item by item, so that
//! one bad item fails alone.

use std::{future::Future, io, sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time::{Instant, sleep},
};

/// Longest that a lane waits for a transaction: longer than the server's own time-outs, which end everything but silence.
/// The transaction is not cancelled (see [`super::begin`]), only left to itself; who asks again recognises its work.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// A transaction with as many items is followed by a rest twice as long as it took, at most [`REST_MAX`]: what comes meanwhile
/// shares the round trips of the next one. At 3,000 items per second that is a third of the transactions.
const REST_FROM: usize = 4;
const REST_MAX: Duration = Duration::from_millis(10);

/// How often a batch is run that the server rolls back for no fault of its own, before its caller is told.
const RACES_MAX: usize = 3;

/// What a queue feeds: a transaction over a slice.
pub trait Batch: Send + Sync + 'static {
    type Item: Send + Sync + 'static;
    type Verdict: Send + 'static;

    /// Runs all items in one transaction and returns one verdict per item, in order, after the commit. Runs again with the
    /// same items when the commit's acknowledgement was lost, so it must recognise its own work.
    fn run(&self, items: &[Self::Item]) -> impl Future<Output = sqlx::Result<Vec<Self::Verdict>>> + Send;
}

/// The bounds of one queue.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most items one transaction carries.
    pub batch: usize,
    /// Transactions that may run at once.
    pub lanes: usize,
    /// Most items that wait. One more is refused at once.
    pub waiting: usize,
}

/// Why an item has no verdict.
#[derive(Debug, thiserror::Error)]
pub enum NoVerdict {
    /// Nothing was done: the queue is full.
    #[error("the queue is full")]
    Overloaded,
    /// The database failed. Whether this item was committed is unknown; asking again finds out.
    #[error("the database failed: {0}")]
    Database(#[source] Arc<sqlx::Error>),
    /// The queue was closed: the process is stopping.
    #[error("the queue is closed")]
    Closed,
}

type Answer<B> = oneshot::Sender<Result<<B as Batch>::Verdict, NoVerdict>>;

struct Waiting<B: Batch> {
    item: B::Item,
    answer: Answer<B>,
}

/// The queue in front of a [`Batch`]. Clones share it.
pub struct GroupCommit<B: Batch> {
    queue: mpsc::Sender<Waiting<B>>,
}

impl<B: Batch> Clone for GroupCommit<B> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone() }
    }
}

impl<B: Batch> std::fmt::Debug for GroupCommit<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupCommit").field("free", &self.queue.capacity()).finish()
    }
}

impl<B: Batch> GroupCommit<B> {
    /// Starts the lanes. They end when the last clone of the queue is gone and everything in it is answered; they are
    /// never cancelled: whoever waits gets a verdict.
    pub fn start(batch: B, limits: Limits) -> Self {
        let (queue, items) = mpsc::channel(limits.waiting.max(1));
        let (batch, items) = (Arc::new(batch), Arc::new(Mutex::new(items)));
        for _ in 0..limits.lanes.max(1) {
            tokio::spawn(lane(Arc::clone(&batch), Arc::clone(&items), limits.batch.max(1)));
        }
        Self { queue }
    }

    /// Queues one item and waits for its verdict. Dropping the future gives up the answer, not the work.
    pub async fn submit(&self, item: B::Item) -> Result<B::Verdict, NoVerdict> {
        let (answer, verdict) = oneshot::channel();
        self.queue.try_send(Waiting { item, answer }).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => NoVerdict::Overloaded,
            mpsc::error::TrySendError::Closed(_) => NoVerdict::Closed,
        })?;
        verdict.await.unwrap_or(Err(NoVerdict::Closed))
    }
}

async fn lane<B: Batch>(batch: Arc<B>, queue: Arc<Mutex<mpsc::Receiver<Waiting<B>>>>, limit: usize) {
    loop {
        let mut taken = Vec::new();
        // The lock is held while waiting: the lanes take turns, and the first free one takes all there is.
        if queue.lock().await.recv_many(&mut taken, limit).await == 0 {
            return;
        }
        let (items, answers): (Vec<_>, Vec<_>) = taken.into_iter().map(|w| (w.item, w.answer)).unzip();
        let items = Arc::new(items);
        let began = Instant::now();
        match run_whole(&batch, &items).await {
            Ok(verdicts) => {
                for (answer, verdict) in answers.into_iter().zip(verdicts) {
                    // A receiver that is gone belongs to a request that was given up; its work is committed all the same.
                    let _ = answer.send(Ok(verdict));
                }
            }
            Err(error) => run_apart(&batch, error, &items, answers).await,
        }
        if items.len() >= REST_FROM {
            sleep((2 * began.elapsed()).min(REST_MAX)).await;
        }
    }
}

/// The whole batch, and again while the server says that it lost a race: nothing of it was committed, and no item is to blame.
async fn run_whole<B: Batch>(batch: &Arc<B>, items: &Arc<Vec<B::Item>>) -> sqlx::Result<Vec<B::Verdict>> {
    for _ in 1..RACES_MAX {
        match run_all(batch, items, 0..items.len()).await {
            Err(error) if lost_a_race(&error) => {
                tracing::warn!(%error, items = items.len(), "a transaction runs again")
            }
            ran => return ran,
        }
    }
    run_all(batch, items, 0..items.len()).await
}

/// A serialization failure or a deadlock, in PostgreSQL's codes.
fn lost_a_race(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|refused| refused.code()).is_some_and(|code| matches!(&*code, "40001" | "40P01"))
}

/// After a failed batch. If one of its items may be to blame they are run one by one, so that a bad item fails alone. If the
/// database is out of reach, one by one would only take as many time-outs as there are items, and everybody would wait.
async fn run_apart<B: Batch>(batch: &Arc<B>, error: sqlx::Error, items: &Arc<Vec<B::Item>>, answers: Vec<Answer<B>>) {
    tracing::warn!(%error, items = items.len(), "a transaction failed");
    if items.len() == 1 || out_of_reach(&error) {
        let error = Arc::new(error);
        for answer in answers {
            let _ = answer.send(Err(NoVerdict::Database(Arc::clone(&error))));
        }
        return;
    }
    for (place, answer) in answers.into_iter().enumerate() {
        let verdict = run_all(batch, items, place..place + 1).await;
        let verdict = verdict.and_then(|mut only| only.pop().ok_or(sqlx::Error::RowNotFound));
        let _ = answer.send(verdict.map_err(|error| NoVerdict::Database(Arc::new(error))));
    }
}

fn out_of_reach(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed)
}

/// In a task of its own: neither a panic nor a connection that has fallen silent takes the lane with it.
async fn run_all<B: Batch>(
    batch: &Arc<B>,
    items: &Arc<Vec<B::Item>>,
    some: std::ops::Range<usize>,
) -> sqlx::Result<Vec<B::Verdict>> {
    let wanted = some.len();
    let (batch, items) = (Arc::clone(batch), Arc::clone(items));
    let run = tokio::spawn(async move { batch.run(items.get(some).unwrap_or_default()).await });
    let ended = tokio::time::timeout(SILENCE_MAX, run).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
    let verdicts = ended.map_err(|_| sqlx::Error::WorkerCrashed)??;
    if verdicts.len() == wanted {
        Ok(verdicts)
    } else {
        Err(sqlx::Error::Protocol(format!("{} verdicts for {wanted} items", verdicts.len())))
    }
}

#[cfg(test)]
mod tests;
