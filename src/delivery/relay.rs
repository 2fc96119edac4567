//! From the outbox into the log. Promise: every committed event gets there, an aggregate's events in their order, whoever dies and
//! however many relays run.
//!
//! A relay works on the lanes it leases. It looks for rows that are not marked as sent, publishes them, and marks exactly those,
//! under the epochs it took them with. Dead or late anywhere in between, an event is published again: twice in the log, and
//! once for those who dedupe. It is never passed over, because nobody remembers a place before which everything was sent.

use std::{collections::HashSet, time::Duration};

use anyhow::Context;
use sqlx::PgPool;

use super::{Next, health::Tally};
use crate::{
    crash_point::crash_point,
    database,
    event_log::{self, Published},
    ids::{AggregateId, EventId},
    leases::{self, Held, Leases},
    outbox::{self, store::Unsent},
    parking,
    wire::event::Event,
};

/// The duty that lanes are leased for, and the stage that events are held at.
pub const RELAY: &str = "relay";

/// Most events of one round. At 3,000 orders a second, and twenty rounds, there are 150.
const BATCH_MAX: usize = 1_000;

/// Most aggregates with a held event that are kept out of a round by name. Far beyond any that a person would let pile up; what is
/// not named is only tried too early.
const RESTING_MAX: i64 = 10_000;

/// The work of one round.
#[derive(Debug, Default)]
struct Taken {
    unsent: Vec<Unsent>,
    /// Whether some event failed before and is held, perhaps one of these.
    any_held: bool,
}

#[derive(Debug)]
pub struct Relay {
    pool: PgPool,
    leases: Leases,
    published: Tally,
}

impl Relay {
    pub fn new(pool: PgPool, lease: Duration) -> Self {
        Self { leases: Leases::new(pool.clone(), RELAY, lease), pool, published: Tally::default() }
    }

    /// How many events the log has acknowledged to this relay; goes on counting.
    pub fn published(&self) -> Tally {
        self.published.clone()
    }

    /// Takes what is unsent, publishes it, marks it.
    pub async fn round(&mut self) -> anyhow::Result<Next> {
        let held = self.leases.current().await?.to_vec();
        let Taken { unsent, any_held } = self.take(&held).await?;
        if unsent.is_empty() {
            return Ok(Next::Rest);
        }
        crash_point!(RelayTaken);
        let events: Vec<&Event> = unsent.iter().map(|unsent| &unsent.event).collect();
        let answers = event_log::publish(&self.pool, &events).await?;
        self.published.add(answers.iter().filter(|answer| **answer == Published::Acknowledged).count());
        self.mark(&held, &unsent, &answers, any_held).await?;
        Ok(if unsent.len() < BATCH_MAX { Next::Rest } else { Next::GoOn })
    }

    async fn take(&self, held: &[Held]) -> anyhow::Result<Taken> {
        if held.is_empty() {
            return Ok(Taken::default());
        }
        let lanes: Vec<i16> = held.iter().map(|held| held.slot).collect();
        let mut connection = self.pool.acquire().await.context("no database connection")?;
        let on_hold = parking::store::held_at(&mut connection, RELAY, RESTING_MAX).await?;
        let resting: Vec<AggregateId> = on_hold.iter().filter(|held| held.resting).map(|held| held.aggregate).collect();
        let unsent = outbox::store::unsent(&mut connection, &lanes, &resting, BATCH_MAX as i64).await;
        Ok(Taken { unsent: unsent.context("looking for unsent events")?, any_held: !on_hold.is_empty() })
    }

    /// Marks what the log acknowledged, and holds what it refused: only in lanes that are still ours. In the others somebody
    /// else has taken the same rows, and will mark them.
    async fn mark(
        &self,
        held: &[Held],
        unsent: &[Unsent],
        answers: &[Published],
        any_held: bool,
    ) -> anyhow::Result<()> {
        let mut tx = database::begin(&self.pool).await?;
        let lanes = leases::store::still_held(&mut tx, RELAY, self.leases.owner(), held).await?;
        let lanes: HashSet<i16> = lanes.into_iter().collect();
        let ours = || unsent.iter().zip(answers).filter(|(unsent, _)| lanes.contains(&unsent.shard));
        let sent: Vec<&Unsent> =
            ours().filter(|(_, answer)| **answer == Published::Acknowledged).map(|(unsent, _)| unsent).collect();
        let refused: Vec<(&Event, &str)> = ours()
            .filter_map(|(unsent, answer)| match answer {
                Published::Refused { why } => Some((&unsent.event, why.as_str())),
                Published::Acknowledged | Published::Behind => None,
            })
            .collect();
        outbox::store::mark(&mut tx, &sent).await.context("marking events as sent")?;
        if any_held {
            let through: Vec<EventId> = sent.iter().map(|unsent| unsent.event.id).collect();
            parking::store::release(&mut tx, RELAY, &through).await?;
        }
        for event in parking::store::hold_failed(&mut tx, RELAY, &refused).await? {
            tracing::error!(%event, "ALARM: an event cannot be published and is parked");
        }
        crash_point!(RelayBeforeMark);
        tx.commit().await?;
        crash_point!(RelayMarked);
        Ok(())
    }

    /// Ends the work of this relay: somebody else may go on at once.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.leases.release().await
    }
}
