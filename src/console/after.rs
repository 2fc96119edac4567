//! What follows from orders, charges and refunds, as values of the page: how much waits, for whom, and what waits for a person.

use uuid::Uuid;

use super::page::{duration, grouped, short};
use crate::{
    delivery::health::{COUNTED_MAX, Health},
    parking::Waiting,
};

#[derive(Debug)]
pub(super) struct After {
    pub(super) figures: Vec<Figure>,
    pub(super) leases: Vec<Lease>,
    pub(super) parked: Vec<Parked>,
}

/// One number, what it is of, and what a reader should know beside it.
#[derive(Debug)]
pub(super) struct Figure {
    pub(super) of: String,
    pub(super) shown: String,
    pub(super) beside: String,
    pub(super) tone: &'static str,
}

#[derive(Debug)]
pub(super) struct Lease {
    pub(super) duty: String,
    /// "64 by 3f2a91c0".
    pub(super) held: String,
}

#[derive(Debug)]
pub(super) struct Parked {
    pub(super) stage: String,
    pub(super) event: String,
    pub(super) about: String,
    pub(super) sequence: i32,
    pub(super) kind: String,
    pub(super) attempts: i32,
    pub(super) error: String,
    pub(super) since: String,
    pub(super) behind: i64,
}

pub(super) fn after(health: &Health, parked: Vec<Waiting>) -> After {
    let outbox = Figure {
        of: "outbox".to_owned(),
        shown: counted(health.outbox.unsent),
        beside: waiting("unsent", health.outbox.oldest_unsent_age_s),
        tone: tone(health.outbox.unsent, "wait"),
    };
    let consumers = health.consumers.iter().map(|consumer| Figure {
        of: consumer.name.clone(),
        shown: grouped(consumer.lag),
        beside: waiting("unread", consumer.oldest_unread_age_s),
        tone: tone(consumer.lag, "wait"),
    });
    let held: i64 = health.stages.iter().map(|stage| stage.held).sum();
    let parked_in_all: i64 = health.stages.iter().map(|stage| stage.parked).sum();
    let by_stage = |count: fn(&crate::delivery::health::Stage) -> i64| -> String {
        let some = health.stages.iter().filter(|stage| count(stage) > 0);
        let some: Vec<_> = some.map(|stage| format!("{} {}", stage.name, counted(count(stage)))).collect();
        if some.is_empty() { "at no stage".to_owned() } else { some.join(", ") }
    };
    let figures = [
        Figure {
            of: "held".to_owned(),
            shown: counted(held),
            beside: by_stage(|of| of.held),
            tone: tone(held, "wait"),
        },
        Figure {
            of: "parked".to_owned(),
            shown: counted(parked_in_all),
            beside: by_stage(|of| of.parked),
            tone: tone(parked_in_all, "bad"),
        },
        Figure {
            of: "keys unknown".to_owned(),
            shown: counted(health.keys.unknown),
            beside: "may have charged".to_owned(),
            tone: tone(health.keys.unknown, "wait"),
        },
        Figure {
            of: "keys in review".to_owned(),
            shown: counted(health.keys.needs_review),
            beside: "wait for a person".to_owned(),
            tone: tone(health.keys.needs_review, "bad"),
        },
    ];
    After {
        figures: std::iter::once(outbox).chain(consumers).chain(figures).collect(),
        leases: leases(health),
        parked: parked.into_iter().map(shown).collect(),
    }
}

/// Per duty, who holds how many.
fn leases(health: &Health) -> Vec<Lease> {
    let duties = health.stages.iter().map(|stage| &stage.name);
    let held = |duty: &String| -> String {
        let by: Vec<_> = health
            .leases
            .iter()
            .filter(|lease| lease.duty == *duty)
            .map(|lease| format!("{} by {}", lease.slots, brief(lease.owner)))
            .collect();
        if by.is_empty() { "nobody works".to_owned() } else { by.join(", ") }
    };
    duties.map(|duty| Lease { duty: duty.clone(), held: held(duty) }).collect()
}

fn shown(Waiting { first, behind }: Waiting) -> Parked {
    Parked {
        event: first.event.id.to_string(),
        about: first.event.aggregate.to_string(),
        sequence: first.event.sequence,
        kind: first.event.kind,
        attempts: first.attempts,
        error: first.error.unwrap_or_default(),
        since: short(first.held_since),
        stage: first.stage,
        behind,
    }
}

fn counted(count: i64) -> String {
    if count >= COUNTED_MAX { format!("{}+", grouped(count)) } else { grouped(count) }
}

fn waiting(what: &str, oldest_s: Option<f64>) -> String {
    oldest_s.map_or_else(|| what.to_owned(), |age| format!("{what}, the oldest for {}", duration(age)))
}

fn tone(count: i64, otherwise: &'static str) -> &'static str {
    if count > 0 { otherwise } else { "" }
}

/// Enough to tell workers apart.
fn brief(owner: Uuid) -> String {
    owner.simple().to_string().chars().take(8).collect()
}
