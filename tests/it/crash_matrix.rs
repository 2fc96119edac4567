//! The crash matrix: whatever dies, stops or is cut, at whichever point, afterwards there is one order, one charge, one event,
//! one posting, one mail and one answer.
//!
//! Real processes, real signals, a database and a gateway for each row. A row in which nothing was seen to go wrong has
//! proved nothing, and fails.

mod fault;
mod outside;
mod phone;
mod pipeline;
mod rows;
mod stage;
mod table;

use std::time::Instant;

use checkout::database::embedded::{Cluster, ClusterOptions, Lifetime};
use futures_util::{StreamExt, stream};

use self::{
    pipeline::Delivered,
    rows::{TRIALS, TRIALS_WITH_A_RESTART, Trial},
    stage::Stage,
    table::Outcome,
};
use crate::support::{CHECKOUT, MACHINE, TestDatabase, apart};

/// They wait more than they work; a fourth is always one of those with a server of their own.
const AT_ONCE: usize = 3;

/// What a trial showed.
#[derive(Debug)]
struct Seen {
    fired: String,
    /// What the attempts that met the fault were answered.
    first: String,
    /// Of the client afterwards, until its answer was final.
    attempts: usize,
    /// The status of that answer.
    end: u16,
    orders: i64,
    charges: i64,
    captures: u64,
    events: i64,
    delivered: Delivered,
}

/// One trial, from a shop that works to the audit of what is left.
async fn play(trial: Trial, database: Option<TestDatabase>) -> Seen {
    let mut stage = Stage::open(trial, database).await;
    stage.take_orders_before().await;

    let first = stage.send_into_the_fault().await;
    let fired = stage.until_it_has_struck().await;
    let late_owner = stage.heal().await;
    let (told, attempts) = stage.retry_until_final().await;
    stage.wake(late_owner).await;
    let first = stage.compare(first, &told).await;

    stage.until_nothing_is_open().await;
    stage.until_every_event_has_arrived().await;
    stage.until_the_stray_is_back().await;
    stage.replay(&told).await;
    stage.audited(fired, first, attempts, &told).await
}

#[tokio::test]
async fn every_crash_leaves_one_order_one_charge_one_event_one_posting_one_mail_and_one_answer() {
    let begun = Instant::now();
    let numbered = wanted(TRIALS).into_iter().enumerate();
    let side_by_side = stream::iter(numbered)
        .map(async |(n, trial)| (n, timed(trial, None).await))
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<_>>();
    let (mut numbered, restarts) = tokio::join!(side_by_side, one_by_one(wanted(TRIALS_WITH_A_RESTART)));
    numbered.sort_unstable_by_key(|(n, _)| *n);
    let mut rows: Vec<_> = numbered.into_iter().map(|(_, row)| row).collect();
    rows.extend(restarts);
    table::print(&rows, begun.elapsed().as_secs_f64());
    assert!(!rows.is_empty(), "no row is called like that");
    assert!(rows.iter().all(|(_, outcome, _)| outcome.is_ok()), "a promise was broken, or a fault never struck");
}

/// All rows, or with `CRASH_MATRIX=settle` in the environment those with this in their name.
fn wanted(trials: &[Trial]) -> Vec<Trial> {
    let part = std::env::var("CRASH_MATRIX").unwrap_or_default();
    trials.iter().copied().filter(|trial| trial.name().contains(&part)).collect()
}

async fn one_by_one(trials: Vec<Trial>) -> Vec<(Trial, Outcome, f64)> {
    let options = ClusterOptions { lifetime: Lifetime::Ephemeral, program: CHECKOUT.into() };
    let cluster = Cluster::start(options).await.expect("a cluster");
    let mut rows = Vec::new();
    for (n, trial) in trials.into_iter().enumerate() {
        let database = TestDatabase::create_on(&cluster, &format!("restart_{n}")).await;
        rows.push(timed(trial, Some(database)).await);
    }
    cluster.stop().await.expect("the cluster stops");
    rows
}

/// A broken promise is a row of the table, and the other rows go on.
async fn timed(trial: Trial, database: Option<TestDatabase>) -> (Trial, Outcome, f64) {
    let _shared = MACHINE.read().await;
    let begun = Instant::now();
    let outcome = apart(move || play(trial, database)).await;
    (trial, outcome, begun.elapsed().as_secs_f64())
}
