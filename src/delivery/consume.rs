//! From the log to an effect. Promise: each event works once, an aggregate's events in their order, whoever dies, and one that
//! cannot be dealt with stops nobody but its own aggregate.
//!
//! A consumer works on the partitions it leases. It fetches from where it acknowledged, lets the effect happen, remembers the
//! events as processed in the effect's transaction, and acknowledges after the commit. Dead or late anywhere in between, it
//! fetches the same events again and finds them processed.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use anyhow::Context;
use sqlx::{PgConnection, PgPool};

use super::{Next, health::Tally};
use crate::{
    database,
    event_log::{self, Delivered, PARTITIONS},
    ids::{AggregateId, EventId},
    inbox,
    leases::Leases,
    parking,
    wire::event::Event,
};

/// Most events of one round, an equal part from every partition.
const BATCH_MAX: usize = 1_024;
/// Most held events that one round tries again.
const RETRIES_MAX: i64 = 32;
/// Rounds in which the other side fails an event and serves others, before it is the event's own trouble.
const PATIENCE: u32 = 10;

/// Why there is no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoEffect {
    /// This event, whenever it comes.
    Refused { why: String },
    /// Everybody's trouble, or nobody knows: it may work later.
    Unavailable { why: String },
    /// We are to stop, and nothing was begun: whoever reads it next begins.
    NotTried,
}

/// Where a batch is on its way through a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Fetched; nothing has happened.
    Read,
    /// The effect outside the database has happened, and is not written down.
    Made,
    /// Written in an open transaction.
    BeforeCommit,
    /// Committed and not acknowledged.
    BeforeAck,
}

/// What an event does at the end of its way.
pub trait Effect: Send + Sync {
    /// What has to be written down in the transaction.
    type Made: Send + Sync;

    /// The consumer's name: of its leases, its offsets, its processed events.
    fn consumer(&self) -> &'static str;

    /// Told where its events are: for crash points, which each consumer has of its own.
    fn at(&self, step: Step) -> impl Future<Output = ()> + Send;

    /// What happens outside any transaction: everything but what is in our database. May be asked again for the same event, so
    /// it must carry the event's id to wherever it happens. One answer per event, in order.
    fn make(&self, events: &[&Event]) -> impl Future<Output = Vec<Result<Self::Made, NoEffect>>> + Send;

    /// What happens inside it: for events that were never processed before, and are now.
    fn record(
        &self,
        tx: &mut PgConnection,
        made: &[(&Event, &Self::Made)],
    ) -> impl Future<Output = sqlx::Result<()>> + Send;
}

#[derive(Debug)]
pub struct Consumer<E> {
    pool: PgPool,
    leases: Leases,
    effect: E,
    /// Events that the other side failed, and how often it served others meanwhile. Of the last round only.
    failing_alone: HashMap<EventId, u32>,
    applied: Tally,
    repeated: Tally,
}

/// What is to be written about a batch, decided before the transaction.
struct Verdicts<'a, M> {
    made: Vec<(&'a Event, M)>,
    failed: Vec<(&'a Event, String)>,
    behind: Vec<&'a Event>,
    /// Applied before, or twice in the batch.
    repeated: usize,
    /// Per partition, the first offset that is not dealt with.
    next: HashMap<i16, i64>,
    /// Why the rest has to wait.
    stalled: Option<String>,
    failing_alone: HashMap<EventId, u32>,
}

impl<E: Effect> Consumer<E> {
    pub fn new(pool: PgPool, effect: E, lease: Duration) -> Self {
        let leases = Leases::new(pool.clone(), effect.consumer(), lease);
        Self {
            pool,
            leases,
            effect,
            failing_alone: HashMap::new(),
            applied: Tally::default(),
            repeated: Tally::default(),
        }
    }

    /// How many events had their effect here, and how many came again and had none; both go on counting.
    pub fn tallies(&self) -> (Tally, Tally) {
        (self.applied.clone(), self.repeated.clone())
    }

    /// First what failed before and is due, then what is new.
    pub async fn round(&mut self) -> anyhow::Result<Next> {
        let partitions: Vec<i16> = self.leases.current().await?.iter().map(|held| held.slot).collect();
        if partitions.is_empty() {
            return Ok(Next::Rest);
        }
        self.retry(&partitions).await?;
        let fetched = self.fetch(&partitions).await?;
        if fetched.is_empty() {
            return Ok(Next::Rest);
        }
        self.effect.at(Step::Read).await;
        let next = self.deal_with(&fetched).await?;
        // As much as a full part of one partition: there may be more of it.
        let is_full = fetched.len() >= BATCH_MAX / partitions.len();
        Ok(if next == Next::Rest && is_full { Next::GoOn } else { next })
    }

    async fn fetch(&self, partitions: &[i16]) -> anyhow::Result<Vec<Delivered>> {
        let mut connection = self.pool.acquire().await.context("no database connection")?;
        let from = inbox::store::offsets(&mut connection, self.effect.consumer(), partitions).await?;
        event_log::fetch(&mut connection, &from, BATCH_MAX as i64).await
    }

    async fn deal_with(&mut self, fetched: &[Delivered]) -> anyhow::Result<Next> {
        let mut verdicts = self.judge(fetched).await?;
        self.failing_alone = std::mem::take(&mut verdicts.failing_alone);
        match self.write(&verdicts).await {
            Ok(()) => {}
            // One event's content may be to blame: alone it fails alone.
            Err(error) if fetched.len() > 1 && is_content(&error) => {
                tracing::warn!(consumer = self.effect.consumer(), %error, "a batch failed and is run one by one");
                return self.one_by_one(fetched).await;
            }
            Err(error) if is_content(&error) => self.refuse(fetched, &error.to_string()).await?,
            Err(error) => return Err(error.into()),
        }
        self.effect.at(Step::BeforeAck).await;
        self.acknowledge(&verdicts.next).await?;
        self.repeated.add(verdicts.repeated);
        if let Some(why) = verdicts.stalled {
            tracing::warn!(consumer = self.effect.consumer(), why, "the other side fails; events wait");
            if verdicts.made.is_empty() {
                return Ok(Next::Wait);
            }
        }
        Ok(Next::Rest)
    }

    /// One that has to wait stops its own partition, and not the search for the one that is to blame.
    async fn one_by_one(&mut self, fetched: &[Delivered]) -> anyhow::Result<Next> {
        let mut waiting = HashSet::new();
        for delivered in fetched {
            if waiting.contains(&delivered.partition) {
                continue;
            }
            if Box::pin(self.deal_with(std::slice::from_ref(delivered))).await? == Next::Wait {
                waiting.insert(delivered.partition);
            }
        }
        Ok(Next::GoOn)
    }

    /// Lets the effect happen for the first new event of every aggregate that is not held up, and sorts out what came of it. A
    /// second event of one in a batch is left to the next round: it must not work before the first one has.
    async fn judge<'a>(&self, fetched: &'a [Delivered]) -> anyhow::Result<Verdicts<'a, E::Made>> {
        let events: Vec<&Event> = fetched.iter().map(|delivered| &delivered.event).collect();
        let (applied, held) = self.known(&events).await?;
        let new = events.into_iter().filter(|event| !applied.contains(&event.id) && !held.contains(&event.aggregate));
        let mut aggregates = HashSet::new();
        let fresh: Vec<&Event> = new.filter(|event| aggregates.insert(event.aggregate)).collect();
        let outcomes = self.effect.make(&fresh).await;
        self.effect.at(Step::Made).await;
        let mut outcomes: HashMap<EventId, Result<E::Made, NoEffect>> =
            fresh.iter().map(|event| event.id).zip(outcomes).collect();
        Ok(sort_out(fetched, &applied, held, &mut outcomes, &self.failing_alone))
    }

    async fn known(&self, events: &[&Event]) -> anyhow::Result<(HashSet<EventId>, HashSet<AggregateId>)> {
        let mut connection = self.pool.acquire().await.context("no database connection")?;
        let applied = inbox::store::applied(&mut connection, self.effect.consumer(), events).await?;
        let aggregates: Vec<AggregateId> = events.iter().map(|event| event.aggregate).collect();
        let held = parking::store::held_among(&mut connection, self.effect.consumer(), &aggregates).await?;
        Ok((applied, held.into_iter().collect()))
    }

    /// The transaction of the effect: remembered as processed, recorded, or held. All of it or nothing.
    async fn write(&self, verdicts: &Verdicts<'_, E::Made>) -> sqlx::Result<()> {
        if verdicts.made.is_empty() && verdicts.failed.is_empty() && verdicts.behind.is_empty() {
            return Ok(());
        }
        let consumer = self.effect.consumer();
        let mut tx = database::begin(&self.pool).await?;
        let events: Vec<&Event> = verdicts.made.iter().map(|(event, _)| *event).collect();
        let taken = inbox::store::take(&mut tx, consumer, &events).await?;
        let made: Vec<(&Event, &E::Made)> = verdicts
            .made
            .iter()
            .filter(|(event, _)| taken.contains(&event.id))
            .map(|(event, made)| (*event, made))
            .collect();
        self.effect.record(&mut tx, &made).await?;
        let failed: Vec<(&Event, &str)> = verdicts.failed.iter().map(|(event, why)| (*event, why.as_str())).collect();
        parking::store::hold_failed(&mut tx, consumer, &failed).await?;
        parking::store::hold_behind(&mut tx, consumer, &verdicts.behind).await?;
        self.effect.at(Step::BeforeCommit).await;
        tx.commit().await?;
        self.applied.add(made.len());
        self.repeated.add(verdicts.made.len() - made.len());
        for (event, why) in failed {
            tracing::warn!(consumer, event = %event.id, aggregate = %event.aggregate, why, "an event failed and is held");
        }
        Ok(())
    }

    async fn acknowledge(&self, next: &HashMap<i16, i64>) -> anyhow::Result<()> {
        let mut next: Vec<(i16, i64)> = next.iter().map(|(partition, offset)| (*partition, *offset)).collect();
        next.sort_unstable();
        let mut tx = database::begin(&self.pool).await?;
        inbox::store::acknowledge(&mut tx, self.effect.consumer(), &next).await.context("acknowledging")?;
        tx.commit().await?;
        Ok(())
    }

    /// An event whose effect our own database refuses.
    async fn refuse(&self, fetched: &[Delivered], why: &str) -> anyhow::Result<()> {
        let mut tx = database::begin(&self.pool).await?;
        let failed: Vec<(&Event, &str)> = fetched.iter().map(|delivered| (&delivered.event, why)).collect();
        parking::store::hold_failed(&mut tx, self.effect.consumer(), &failed).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Tries held events again whose time has come, side by side: each is the first of its aggregate.
    async fn retry(&self, partitions: &[i16]) -> anyhow::Result<()> {
        let consumer = self.effect.consumer();
        let mut connection = self.pool.acquire().await.context("no database connection")?;
        let due = parking::store::due(&mut connection, consumer, partitions, PARTITIONS, RETRIES_MAX).await?;
        let due: Vec<&Event> = due.iter().map(|parked| &parked.event).collect();
        // A late owner may have held what the next one had applied.
        let applied = inbox::store::applied(&mut connection, consumer, &due).await?;
        drop(connection);
        let due: Vec<&Event> = due.into_iter().filter(|event| !applied.contains(&event.id)).collect();
        let outcomes = if due.is_empty() { Vec::new() } else { self.effect.make(&due).await };

        let (mut refused, mut unanswered) = (Vec::new(), Vec::new());
        for (event, outcome) in due.into_iter().zip(outcomes) {
            match outcome {
                Ok(made) => match self.let_through(event, &made).await {
                    Ok(()) => {
                        tracing::info!(consumer, event = %event.id, aggregate = %event.aggregate, "a held event came through")
                    }
                    Err(error) if is_content(&error) => refused.push((event, error.to_string())),
                    Err(error) => return Err(error.into()),
                },
                Err(NoEffect::Refused { why }) => refused.push((event, why)),
                Err(NoEffect::NotTried) => {}
                Err(NoEffect::Unavailable { why }) => {
                    tracing::info!(consumer, event = %event.id, why, "a held event still cannot be tried");
                    unanswered.push(event.id);
                }
            }
        }
        self.put_back(&refused, &unanswered, &Vec::from_iter(applied)).await
    }

    async fn put_back(
        &self,
        refused: &[(&Event, String)],
        unanswered: &[EventId],
        applied: &[EventId],
    ) -> anyhow::Result<()> {
        if refused.is_empty() && unanswered.is_empty() && applied.is_empty() {
            return Ok(());
        }
        let consumer = self.effect.consumer();
        let mut tx = database::begin(&self.pool).await?;
        let failed: Vec<(&Event, &str)> = refused.iter().map(|(event, why)| (*event, why.as_str())).collect();
        let parked = parking::store::hold_failed(&mut tx, consumer, &failed).await?;
        // Not the event's fault, so it does not count.
        parking::store::postpone(&mut tx, consumer, unanswered).await?;
        parking::store::release(&mut tx, consumer, applied).await?;
        tx.commit().await?;
        for (event, why) in refused.iter().filter(|(event, _)| parked.contains(&event.id)) {
            tracing::error!(consumer, event = %event.id, aggregate = %event.aggregate, why, "ALARM: an event is parked");
        }
        Ok(())
    }

    async fn let_through(&self, event: &Event, made: &E::Made) -> sqlx::Result<()> {
        let mut tx = database::begin(&self.pool).await?;
        let is_new = !inbox::store::take(&mut tx, self.effect.consumer(), &[event]).await?.is_empty();
        if is_new {
            self.effect.record(&mut tx, &[(event, made)]).await?;
        }
        parking::store::release(&mut tx, self.effect.consumer(), &[event.id]).await?;
        tx.commit().await?;
        if is_new { &self.applied } else { &self.repeated }.add(1);
        Ok(())
    }

    /// Ends the work of this consumer: somebody else may go on at once.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.leases.release().await
    }
}

/// Whether the database objects to what was to be written, as opposed to being out of reach, or in the middle of something.
fn is_content(error: &sqlx::Error) -> bool {
    let Some(refused) = error.as_database_error() else { return false };
    match refused.code().as_deref() {
        // That a day is missing is reported under the code of a failed check, and is nobody's fault. It names no constraint.
        Some("23514") => refused.constraint().is_some(),
        Some(code) => code.starts_with("22") || code.starts_with("23"),
        None => false,
    }
}

/// Sorts events by what is to be done with them, partition by partition, up to the first one that has to wait for the other
/// side. One that fails again and again while others get through is its own trouble, and is held.
fn sort_out<'a, M>(
    fetched: &'a [Delivered],
    applied: &HashSet<EventId>,
    mut held: HashSet<AggregateId>,
    outcomes: &mut HashMap<EventId, Result<M, NoEffect>>,
    failing_alone: &HashMap<EventId, u32>,
) -> Verdicts<'a, M> {
    let others_get_through = u32::from(outcomes.values().any(Result::is_ok));
    let mut verdicts = Verdicts {
        made: Vec::new(),
        failed: Vec::new(),
        behind: Vec::new(),
        repeated: 0,
        next: HashMap::new(),
        stalled: None,
        failing_alone: HashMap::new(),
    };
    let (mut waiting, mut dealt_with) = (HashSet::new(), HashSet::new());
    for Delivered { partition, offset, event } in fetched {
        if waiting.contains(partition) {
            continue;
        }
        // Applied before, or repeated within the batch.
        let is_new = !applied.contains(&event.id) && !dealt_with.contains(&event.id);
        verdicts.repeated += usize::from(!is_new);
        if is_new && held.contains(&event.aggregate) {
            verdicts.behind.push(event);
        } else if is_new {
            match outcomes.remove(&event.id) {
                Some(Ok(made)) => verdicts.made.push((event, made)),
                Some(Err(NoEffect::Refused { why })) => {
                    held.insert(event.aggregate);
                    verdicts.failed.push((event, why));
                }
                Some(Err(NoEffect::Unavailable { why })) => {
                    let times = failing_alone.get(&event.id).copied().unwrap_or_default() + others_get_through;
                    if times < PATIENCE {
                        waiting.insert(*partition);
                        verdicts.failing_alone.insert(event.id, times);
                        verdicts.stalled = Some(why);
                        continue;
                    }
                    held.insert(event.aggregate);
                    verdicts.failed.push((event, why));
                }
                // Not begun, or behind another event of its aggregate in this batch: the next round's.
                Some(Err(NoEffect::NotTried)) | None => {
                    waiting.insert(*partition);
                    continue;
                }
            }
        }
        dealt_with.insert(event.id);
        verdicts.next.insert(*partition, offset + 1);
    }
    verdicts
}
