//! What delivery must bear besides the death of a process: a backlog, weeks of silence, a sick event among thousands.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use checkout::{
    checkout::upkeep,
    delivery::{
        Next,
        consume::{Consumer, Effect, NoEffect, Step},
        effects::Bookkeeping,
        relay::Relay,
    },
    event_log::partition_of,
    ids::{EventId, OrderId},
    leases::Leases,
    parking,
    wire::event::Event,
};
use sqlx::{PgConnection, PgPool};

use crate::delivery::{LEASE, count, open, run, sold, write};
use crate::support::{TestDatabase, keep_days, set_clock, usual_timing};

/// Longer than any jump of the clock in here.
const LONG: Duration = Duration::from_secs(90 * 24 * 3600);

async fn happen(pool: &PgPool, orders: &[OrderId]) -> Vec<EventId> {
    write(pool, orders.iter().map(|order| sold(*order, 1)).collect()).await
}

fn orders(count: usize) -> Vec<OrderId> {
    (0..count).map(|_| OrderId::mint()).collect()
}

fn orders_in(partition: i16, count: usize) -> Vec<OrderId> {
    std::iter::repeat_with(OrderId::mint)
        .filter(|order| partition_of((*order).into()) == partition)
        .take(count)
        .collect()
}

/// A consumer whose other side fails some events, and remembers how many it was asked for at once.
#[derive(Debug, Clone, Default)]
struct Moody {
    failing: Arc<Mutex<HashSet<EventId>>>,
    refusing: Arc<Mutex<HashSet<EventId>>>,
    /// What the database refuses.
    unwritable: Arc<Mutex<HashSet<EventId>>>,
    asked: Arc<Mutex<Vec<usize>>>,
}

impl Effect for Moody {
    type Made = ();

    fn consumer(&self) -> &'static str {
        "receipts"
    }

    async fn at(&self, _step: Step) {}

    async fn make(&self, events: &[&Event]) -> Vec<Result<(), NoEffect>> {
        self.asked.lock().unwrap().push(events.len());
        let outcome = |event: &&Event| {
            if self.failing.lock().unwrap().contains(&event.id) {
                Err(NoEffect::Unavailable { why: "500".to_owned() })
            } else if self.refusing.lock().unwrap().contains(&event.id) {
                Err(NoEffect::Refused { why: "no such mailbox".to_owned() })
            } else {
                Ok(())
            }
        };
        events.iter().map(outcome).collect()
    }

    async fn record(&self, tx: &mut PgConnection, made: &[(&Event, &())]) -> sqlx::Result<()> {
        if made.iter().any(|(event, ())| self.unwritable.lock().unwrap().contains(&event.id)) {
            sqlx::query("SELECT 1 / 0").execute(tx).await?;
        }
        Ok(())
    }
}

/// The outage of a worker is as long as it is. A relay that reads its way through all that waits for each row that it marks
/// never finishes a mark, and publishes the same events until somebody looks.
#[tokio::test]
async fn a_relay_works_off_a_backlog_however_long() {
    let pool = open().await;
    let mut relay = Relay::new(pool.clone(), LEASE);
    // The statements are planned on an empty table, as on the first day of a shop.
    happen(&pool, &orders(1)).await;
    relay.round().await.unwrap();
    for _ in 0..4 {
        run(
            &pool,
            "INSERT INTO outbox (day, event_id, aggregate_id, sequence, shard, type, payload)
             SELECT db_day(), gen_random_uuid(), gen_random_uuid(), 1, n % 64, 'order.created', '{}'
             FROM generate_series(1, 50000) AS n",
        )
        .await;
    }
    assert_eq!(relay.round().await.unwrap(), Next::GoOn);
    assert_eq!(count(&pool, "outbox WHERE sent_at IS NULL").await, 199_000);
}

/// A parked event is sent on when a person has found out why, and that may be later than the log keeps a day.
#[tokio::test]
async fn an_event_that_was_parked_longer_than_days_are_kept_still_gets_through() {
    let pool = open().await;
    let late = happen(&pool, &orders(1)).await[0];
    run(&pool, "UPDATE outbox SET payload = json_build_object('long', repeat('x', 70000))").await;
    let mut relay = Relay::new(pool.clone(), LONG);
    for attempt in 1..=parking::ATTEMPTS_MAX {
        relay.round().await.unwrap();
        set_clock(&pool, &format!("{attempt} minutes")).await;
    }
    assert_eq!(count(&pool, "parked_events WHERE next_attempt_at IS NULL").await, 1);

    set_clock(&pool, "20 days").await;
    upkeep::keep_days(&pool, &usual_timing()).await.unwrap();
    let order: uuid::Uuid = sqlx::query_scalar("SELECT aggregate_id FROM outbox").fetch_one(&pool).await.unwrap();
    run(
        &pool,
        &format!(
            r#"UPDATE outbox SET payload = '{{"order_id":"{order}","customer_id":42,"charge_id":"{order}","gateway_id":"pi_1","lines":[],"total":4299,"currency":"eur"}}'"#
        ),
    )
    .await;
    assert_eq!(parking::redrive(&pool, None, Some(late)).await.unwrap(), 1);
    happen(&pool, &orders(1)).await;
    relay.round().await.unwrap();
    assert_eq!((count(&pool, "event_log").await, count(&pool, "parked_events").await), (2, 0));
    let mut ledger = Consumer::new(pool.clone(), Bookkeeping, LONG);
    ledger.round().await.unwrap();
    assert_eq!(count(&pool, "ledger_entries").await, 4);

    // And when it is through, its day goes as any other.
    run(&pool, "UPDATE consumer_offsets SET next_offset = 1000").await;
    upkeep::keep_days(&pool, &usual_timing()).await.unwrap();
    let left = "pg_inherits WHERE inhparent IN ('outbox'::regclass, 'event_log'::regclass, 'processed'::regclass)";
    let old = format!("{left} AND inhrelid::regclass::text ~ to_char(db_day() - 20, 'YYYY_MM_DD')");
    assert_eq!(count(&pool, &old).await, 0);
}

/// An outbox of the days before there was a log: what is unsent in it needs the log's days too.
#[tokio::test]
async fn events_older_than_the_log_find_their_days_in_it() {
    let pool = TestDatabase::create().await.pool().await;
    run(
        &pool,
        "CREATE TABLE outbox_2020_02_29 PARTITION OF outbox FOR VALUES FROM ('2020-02-29') TO ('2020-03-01');
         INSERT INTO outbox (day, event_id, aggregate_id, sequence, shard, type, payload)
         VALUES ('2020-02-29', gen_random_uuid(), gen_random_uuid(), 1, 0, 'order.created', '{}')",
    )
    .await;
    keep_days(&pool).await;
    happen(&pool, &orders(1)).await;
    Relay::new(pool.clone(), LEASE).round().await.unwrap();
    assert_eq!(count(&pool, "event_log").await, 2);
    let mut consumer = Consumer::new(pool.clone(), Moody::default(), LEASE);
    consumer.round().await.unwrap();
    assert_eq!(count(&pool, "processed").await, 2);
}

/// PostgreSQL reports a day that is missing with the code of a failed check. It is nobody's fault and passes.
#[tokio::test]
async fn a_missing_day_is_no_events_fault() {
    let pool = open().await;
    happen(&pool, &orders(3)).await;
    Relay::new(pool.clone(), LEASE).round().await.unwrap();
    let today: String = sqlx::query_scalar("SELECT to_char(db_day(), 'YYYY_MM_DD')").fetch_one(&pool).await.unwrap();
    run(&pool, &format!("DROP TABLE processed_{today}")).await;
    let mut consumer = Consumer::new(pool.clone(), Bookkeeping, LEASE);
    assert!(consumer.round().await.is_err());
    assert_eq!(count(&pool, "parked_events").await, 0, "every event would be parked within a minute");
    keep_days(&pool).await;
    consumer.round().await.unwrap();
    assert_eq!(count(&pool, "ledger_entries").await, 6);
}

/// Events that are retried wait for the other side together, not one after another: the new ones wait behind them.
#[tokio::test]
async fn held_events_are_tried_again_side_by_side() {
    let pool = open().await;
    let moody = Moody::default();
    let refused = happen(&pool, &orders(20)).await;
    moody.refusing.lock().unwrap().extend(refused);
    Relay::new(pool.clone(), LEASE).round().await.unwrap();
    let mut consumer = Consumer::new(pool.clone(), moody.clone(), LONG);
    consumer.round().await.unwrap();
    assert_eq!(count(&pool, "parked_events").await, 20);
    set_clock(&pool, "1 minute").await;
    moody.refusing.lock().unwrap().clear();
    moody.asked.lock().unwrap().clear();
    consumer.round().await.unwrap();
    assert_eq!(count(&pool, "parked_events").await, 0);
    assert_eq!(*moody.asked.lock().unwrap(), [20]);
}

/// The limit on retries is a limit on our own: those of another worker's partitions do not use it up.
#[tokio::test]
async fn held_events_of_other_workers_are_not_in_the_way_of_ours() {
    let pool = open().await;
    let moody = Moody::default();
    let theirs = happen(&pool, &orders_in(0, 40)).await;
    let ours = happen(&pool, &orders_in(7, 1)).await[0];
    moody.refusing.lock().unwrap().extend(theirs);
    moody.refusing.lock().unwrap().insert(ours);
    Relay::new(pool.clone(), LEASE).round().await.unwrap();
    let mut alone = Consumer::new(pool.clone(), moody.clone(), LONG);
    alone.round().await.unwrap();
    assert_eq!(count(&pool, "parked_events").await, 41);
    alone.stop().await.unwrap();
    // Another worker has the lower half of the partitions, and is busy.
    Leases::new(pool.clone(), "receipts", LONG).current().await.unwrap();
    run(&pool, "UPDATE leases SET owner = NULL, lease_until = '-infinity' WHERE duty = 'receipts' AND slot >= 4").await;
    run(
        &pool,
        &format!(
            "UPDATE parked_events
             SET next_attempt_at = db_clock() - CASE WHEN event_id = '{ours}' THEN interval '1 s' ELSE interval '1 min' END"
        ),
    )
    .await;
    let mut consumer = Consumer::new(pool.clone(), moody.clone(), LONG);
    moody.refusing.lock().unwrap().clear();
    consumer.round().await.unwrap();
    assert_eq!(count(&pool, "parked_events").await, 40);
}

/// A late owner may hold an event that the next owner has applied. That is found out, and nobody waits behind it.
#[tokio::test]
async fn an_event_that_was_held_and_applied_is_let_go() {
    let pool = open().await;
    let moody = Moody::default();
    let event = happen(&pool, &orders(1)).await[0];
    moody.refusing.lock().unwrap().insert(event);
    Relay::new(pool.clone(), LEASE).round().await.unwrap();
    let mut consumer = Consumer::new(pool.clone(), moody.clone(), LONG);
    consumer.round().await.unwrap();
    run(
        &pool,
        "INSERT INTO processed (day, consumer, event_id, aggregate_id, sequence)
         SELECT day, stage, event_id, aggregate_id, sequence FROM parked_events",
    )
    .await;
    set_clock(&pool, "1 minute").await;
    moody.asked.lock().unwrap().clear();
    consumer.round().await.unwrap();
    assert_eq!(count(&pool, "parked_events").await, 0, "it would be refused until it is parked");
    assert!(moody.asked.lock().unwrap().iter().all(|asked| *asked == 0), "its effect has happened");
}

/// One sick event costs its own partition some rounds, and nobody a pause.
#[tokio::test]
async fn a_round_in_which_others_got_through_is_not_followed_by_the_pause_of_an_outage() {
    let pool = open().await;
    let moody = Moody::default();
    let events = happen(&pool, &orders(40)).await;
    moody.failing.lock().unwrap().insert(events[0]);
    Relay::new(pool.clone(), LEASE).round().await.unwrap();
    let mut consumer = Consumer::new(pool.clone(), moody, LEASE);
    assert_ne!(consumer.round().await.unwrap(), Next::Wait);
}

/// Each partition has its part of a round, however little is in the others: what is left is reason enough to go on.
#[tokio::test]
async fn a_partition_with_a_backlog_is_read_on_without_a_pause() {
    let pool = open().await;
    happen(&pool, &orders_in(3, 200)).await;
    Relay::new(pool.clone(), LEASE).round().await.unwrap();
    let mut consumer = Consumer::new(pool.clone(), Bookkeeping, LEASE);
    assert_eq!(consumer.round().await.unwrap(), Next::GoOn);
    assert_eq!(consumer.round().await.unwrap(), Next::Rest);
    assert_eq!(count(&pool, "processed").await, 200);
}

/// Two kinds of trouble at once: the one that waits must not keep the search from the one that is to blame.
#[tokio::test]
async fn an_event_that_waits_does_not_shield_one_that_cannot_be_written() {
    let pool = open().await;
    let moody = Moody::default();
    let waits = happen(&pool, &orders_in(0, 1)).await[0];
    moody.failing.lock().unwrap().insert(waits);
    let unwritable = happen(&pool, &orders_in(7, 1)).await;
    moody.unwritable.lock().unwrap().extend(unwritable);
    happen(&pool, &orders_in(5, 20)).await;
    Relay::new(pool.clone(), LEASE).round().await.unwrap();
    let mut consumer = Consumer::new(pool.clone(), moody, LEASE);
    for _ in 0..30 {
        consumer.round().await.unwrap();
    }
    assert_eq!(count(&pool, "processed").await, 20);
    assert_eq!(
        count(&pool, "parked_events").await,
        1,
        "and nobody got through meanwhile but by itself: the other one waits"
    );
}
