//! From the outbox to an effect: at least once on the way, once at the end, in order, and nobody stops anybody else.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use checkout::{
    config::DatabaseArgs,
    database,
    delivery::{
        Next,
        consume::{Consumer, Effect, NoEffect, Step},
        effects::Bookkeeping,
        relay::Relay,
    },
    event_log,
    ids::{EventId, OrderId},
    leases::Leases,
    outbox::{
        self,
        store::{NewEvent, append},
    },
    parking,
    wire::event::Event,
};
use sqlx::{AssertSqlSafe, PgConnection, PgPool};

use crate::support::{Opening, Shop, TestDatabase, fresh_key, grinder, keep_days, set_clock, wait_for};

pub(crate) const LEASE: Duration = Duration::from_secs(10);

/// The worker's own kind of pool on a database of this test's own.
pub(crate) async fn open() -> PgPool {
    let database = TestDatabase::create().await;
    let upkeep = database.pool().await;
    keep_days(&upkeep).await;
    upkeep.close().await;
    let args = DatabaseArgs { database_url: database.url, connections: 8, batch_limit: 256, batch_lanes: 1 };
    database::connect(&args, "test").await.unwrap()
}

/// An event of an order, as settling one writes it.
pub(crate) fn sold(order: OrderId, sequence: i32) -> NewEvent {
    NewEvent {
        id: EventId::mint(),
        aggregate: order.into(),
        sequence,
        kind: "order.created",
        payload: format!(
            r#"{{"order_id":"{order}","customer_id":42,"charge_id":"{order}","gateway_id":"pi_1","lines":[],"total":4299,"currency":"eur"}}"#
        ),
    }
}

/// Writes events in one transaction, and returns their ids.
pub(crate) async fn write(pool: &PgPool, events: Vec<NewEvent>) -> Vec<EventId> {
    let mut tx = pool.begin().await.unwrap();
    append(&mut tx, &events.iter().collect::<Vec<_>>()).await.unwrap();
    tx.commit().await.unwrap();
    events.into_iter().map(|event| event.id).collect()
}

/// Writes events of one order, numbered from `first`.
async fn happen(pool: &PgPool, order: OrderId, first: i32, count: i32) -> Vec<EventId> {
    write(pool, (first..first + count).map(|sequence| sold(order, sequence)).collect()).await
}

pub(crate) async fn count(pool: &PgPool, of: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(format!("SELECT count(*) FROM {of}"))).fetch_one(pool).await.unwrap()
}

pub(crate) async fn run(pool: &PgPool, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(pool).await.unwrap();
}

/// A consumer that writes down what reached it, and refuses what it was told to.
#[derive(Debug, Clone, Default)]
struct Diary {
    seen: Arc<Mutex<Vec<EventId>>>,
    trouble: Arc<Mutex<HashMap<EventId, NoEffect>>>,
    /// Nobody can be reached.
    out: Arc<Mutex<bool>>,
}

impl Diary {
    fn seen(&self) -> Vec<EventId> {
        self.seen.lock().unwrap().clone()
    }

    fn trouble(&self, event: EventId, how: NoEffect) {
        self.trouble.lock().unwrap().insert(event, how);
    }

    fn no_more_trouble(&self) {
        self.trouble.lock().unwrap().clear();
        *self.out.lock().unwrap() = false;
    }
}

impl Effect for Diary {
    type Made = EventId;

    fn consumer(&self) -> &'static str {
        "receipts"
    }

    async fn at(&self, _step: Step) {}

    async fn make(&self, events: &[&Event]) -> Vec<Result<EventId, NoEffect>> {
        let outcome = |event: &&Event| {
            if *self.out.lock().unwrap() {
                return Err(NoEffect::Unavailable { why: "nobody is there".to_owned() });
            }
            match self.trouble.lock().unwrap().get(&event.id) {
                Some(trouble) => Err(trouble.clone()),
                None => {
                    self.seen.lock().unwrap().push(event.id);
                    Ok(event.id)
                }
            }
        };
        events.iter().map(outcome).collect()
    }

    async fn record(&self, _tx: &mut PgConnection, _made: &[(&Event, &EventId)]) -> sqlx::Result<()> {
        Ok(())
    }
}

fn refused() -> NoEffect {
    NoEffect::Refused { why: "no such mailbox".to_owned() }
}

/// Rounds until there is nothing more to do.
async fn settle_down<E: Effect>(consumer: &mut Consumer<E>) {
    for _ in 0..100 {
        if consumer.round().await.unwrap() == Next::Rest {
            return;
        }
    }
    panic!("a consumer that never rests");
}

#[tokio::test]
async fn an_event_travels_from_the_order_to_the_ledger_and_is_booked_once() {
    let shop = Shop::open_with(Opening { gateway_in_memory: true, worker: true, ..Opening::default() }).await;
    for _ in 0..5 {
        shop.order(&fresh_key(), &grinder("pm_card_visa")).await.expect_order();
    }
    wait_for("every event is booked", async || shop.count("ledger_entries").await == 10).await;
    assert_eq!(shop.count("outbox WHERE sent_at IS NULL").await, 0);
    assert_eq!(shop.count("event_log").await, 5);
    let balances: Vec<(String, i64)> = sqlx::query_as(
        "SELECT account, sum(amount_minor)::bigint FROM ledger_entries GROUP BY account ORDER BY account",
    )
    .fetch_all(&shop.pool)
    .await
    .unwrap();
    assert_eq!(balances, [("gateway".to_owned(), 5 * 4299), ("sales".to_owned(), -5 * 4299)]);
    shop.close().await;
}

#[tokio::test]
async fn a_relay_that_died_before_it_marked_repeats_itself_and_the_consumer_does_not() {
    let pool = open().await;
    let order = OrderId::mint();
    happen(&pool, order, 1, 3).await;
    let mut relay = Relay::new(pool.clone(), LEASE);
    relay.round().await.unwrap();
    assert_eq!((count(&pool, "event_log").await, count(&pool, "outbox WHERE sent_at IS NULL").await), (3, 0));
    // As if the mark had never been committed.
    run(&pool, "UPDATE outbox SET sent_at = NULL").await;
    relay.round().await.unwrap();
    assert_eq!(count(&pool, "event_log").await, 6, "a log is no judge: everything is there twice");
    let mut consumer = Consumer::new(pool.clone(), Bookkeeping, LEASE);
    for _ in 0..6 {
        settle_down(&mut consumer).await;
    }
    assert_eq!((count(&pool, "processed").await, count(&pool, "ledger_entries").await), (3, 6));
}

/// Ids are taken at INSERT and rows appear at COMMIT: a cursor would pass over the late one for ever.
#[tokio::test]
async fn an_event_that_commits_late_is_found_late_and_not_lost() {
    let pool = open().await;
    let (early, late) = (OrderId::mint(), OrderId::mint());
    let event = |order: OrderId| NewEvent {
        id: EventId::mint(),
        aggregate: order.into(),
        sequence: 1,
        kind: "order.created",
        payload: "{}".to_owned(),
    };
    let mut slow = pool.begin().await.unwrap();
    append(&mut slow, &[&event(late)]).await.unwrap();
    let mut quick = pool.begin().await.unwrap();
    append(&mut quick, &[&event(early)]).await.unwrap();
    quick.commit().await.unwrap();
    let mut relay = Relay::new(pool.clone(), LEASE);
    relay.round().await.unwrap();
    assert_eq!(count(&pool, "event_log").await, 1);
    slow.commit().await.unwrap();
    relay.round().await.unwrap();
    let order: Vec<uuid::Uuid> =
        sqlx::query_scalar("SELECT o.aggregate_id FROM outbox AS o JOIN event_log AS l USING (event_id) ORDER BY o.id")
            .fetch_all(&pool)
            .await
            .unwrap();
    assert_eq!(order, [late.0, early.0], "the lower id was committed later, and both are in the log");
}

#[tokio::test]
async fn two_workers_share_the_lanes_and_one_that_leaves_or_dies_is_replaced() {
    let pool = open().await;
    let mut first = Leases::new(pool.clone(), "relay", Duration::ZERO);
    let mut second = Leases::new(pool.clone(), "relay", Duration::from_secs(3600));
    // A lease of no length is dead at once: the second worker takes everything.
    assert_eq!(first.current().await.unwrap().len(), 64);
    assert_eq!(second.current().await.unwrap().len(), 64);
    let epochs: Vec<i64> = second.current().await.unwrap().iter().map(|held| held.epoch).collect();
    assert!(epochs.iter().all(|epoch| *epoch == 2), "{epochs:?}");

    let mut one = Leases::new(pool.clone(), "ledger", Duration::from_secs(3600));
    assert_eq!(one.current().await.unwrap().len(), 8);
    let mut other = Leases::new(pool.clone(), "ledger", Duration::from_secs(3600));
    assert_eq!(other.current().await.unwrap().len(), 0, "everything is taken, but somebody seeks a share now");
    // The first one learns it at its next renewal; a lease of its own that is asked anew stands for that here.
    let mut again = database::begin(&pool).await.unwrap();
    let kept = checkout::leases::store::hold(&mut again, "ledger", one.owner(), LEASE).await.unwrap();
    again.commit().await.unwrap();
    assert_eq!(kept.len(), 4);
    let mut again = database::begin(&pool).await.unwrap();
    let share = checkout::leases::store::hold(&mut again, "ledger", other.owner(), LEASE).await.unwrap();
    again.commit().await.unwrap();
    assert_eq!(share.len(), 4);
    let mut slots: Vec<i16> = kept.iter().chain(&share).map(|held| held.slot).collect();
    slots.sort_unstable();
    assert_eq!(slots, (0..8).collect::<Vec<i16>>());
    one.release().await.unwrap();
    let mut again = database::begin(&pool).await.unwrap();
    assert_eq!(checkout::leases::store::hold(&mut again, "ledger", other.owner(), LEASE).await.unwrap().len(), 8);
    again.commit().await.unwrap();
}

/// Between its look at the lease and its mark a relay may be overtaken: then it finds marked what it wants to mark.
#[tokio::test]
async fn a_mark_that_comes_second_writes_nothing() {
    let pool = open().await;
    happen(&pool, OrderId::mint(), 1, 3).await;
    let lanes: Vec<i16> = (0..64).collect();
    let unsent = outbox::store::unsent(&mut pool.acquire().await.unwrap(), &lanes, &[], 10).await.unwrap();
    assert_eq!(unsent.len(), 3);
    let mut versions = Vec::new();
    for _ in 0..2 {
        let mut tx = database::begin(&pool).await.unwrap();
        outbox::store::mark(&mut tx, &unsent.iter().collect::<Vec<_>>()).await.unwrap();
        tx.commit().await.unwrap();
        let rows = "SELECT xmin::text || sent_at::text FROM outbox ORDER BY id";
        versions.push(sqlx::query_scalar::<_, String>(rows).fetch_all(&pool).await.unwrap());
    }
    assert_eq!((versions[0].len(), &versions[0]), (3, &versions[1]));
}

/// A paused relay wakes up after its lease. What it publishes is a repetition; what it marks is nothing.
#[tokio::test]
async fn a_late_relay_marks_nothing_that_another_one_has_taken_over() {
    let pool = open().await;
    happen(&pool, OrderId::mint(), 1, 1).await;
    let mut late = Relay::new(pool.clone(), LEASE);
    // It reads its lease, and then sleeps on the way to the log: the lock of the partitions stands in for the pause.
    let mut lock = pool.begin().await.unwrap();
    sqlx::query("SELECT * FROM log_partitions FOR UPDATE").execute(&mut *lock).await.unwrap();
    let sleeper = tokio::spawn(async move { late.round().await });
    wait_for("the relay waits for the log", async || {
        count(&pool, "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").await == 1
    })
    .await;
    set_clock(&pool, "11 seconds").await;
    let mut other = Leases::new(pool.clone(), "relay", LEASE);
    assert_eq!(other.current().await.unwrap().len(), 64);
    lock.rollback().await.unwrap();
    sleeper.await.unwrap().unwrap();
    assert_eq!(count(&pool, "event_log").await, 1, "it did publish");
    assert_eq!(count(&pool, "outbox WHERE sent_at IS NULL").await, 1, "and did not mark");
    other.release().await.unwrap();
    Relay::new(pool.clone(), LEASE).round().await.unwrap();
    let mut consumer = Consumer::new(pool.clone(), Bookkeeping, LEASE);
    settle_down(&mut consumer).await;
    assert_eq!((count(&pool, "event_log").await, count(&pool, "ledger_entries").await), (2, 2));
}

#[tokio::test]
async fn a_poison_event_is_parked_its_order_waits_in_order_and_everybody_else_flows() {
    let pool = open().await;
    let (sick, well) = (OrderId::mint(), OrderId::mint());
    let mut events = happen(&pool, sick, 1, 3).await;
    let others = happen(&pool, well, 1, 2).await;
    let diary = Diary::default();
    diary.trouble(events[0], refused());
    let mut consumer = Consumer::new(pool.clone(), diary.clone(), LEASE);
    let mut relay = Relay::new(pool.clone(), LEASE);
    relay.round().await.unwrap();
    for _ in 0..4 {
        settle_down(&mut consumer).await;
    }
    assert_eq!(diary.seen(), others, "the other order is not held up");
    assert_eq!(count(&pool, "parked_events").await, 3);

    // It fails until nobody tries any more.
    for attempt in 2..=parking::ATTEMPTS_MAX {
        set_clock(&pool, &format!("{} seconds", attempt * 60)).await;
        settle_down(&mut consumer).await;
    }
    assert_eq!(count(&pool, "parked_events WHERE next_attempt_at IS NULL AND attempts = 5").await, 1);
    set_clock(&pool, "2 hours").await;
    settle_down(&mut consumer).await;
    assert_eq!(count(&pool, "parked_events WHERE attempts = 5").await, 1, "parked is not tried again");

    // A fourth event of the order comes while it is parked: behind.
    events.extend(happen(&pool, sick, 4, 1).await);
    relay.round().await.unwrap();
    settle_down(&mut consumer).await;
    assert_eq!(count(&pool, "parked_events").await, 4);

    diary.no_more_trouble();
    assert_eq!(parking::redrive(&pool, Some("receipts"), Some(events[1])).await.unwrap(), 0, "only what is parked");
    assert_eq!(parking::redrive(&pool, Some("ledger"), None).await.unwrap(), 0);
    assert_eq!(parking::redrive(&pool, Some("receipts"), None).await.unwrap(), 1);
    for _ in 0..8 {
        settle_down(&mut consumer).await;
    }
    assert_eq!(diary.seen()[2..], events, "in order, each once");
    assert_eq!((count(&pool, "parked_events").await, count(&pool, "processed").await), (0, 6));
}

#[tokio::test]
async fn an_event_the_log_refuses_is_parked_by_the_relay_and_its_order_stays_in_the_outbox() {
    let pool = open().await;
    let (sick, well) = (OrderId::mint(), OrderId::mint());
    happen(&pool, sick, 1, 3).await;
    happen(&pool, well, 1, 1).await;
    run(
        &pool,
        &format!(
            "UPDATE outbox SET payload = json_build_object('long', repeat('x', 70000)) WHERE aggregate_id = '{sick}' AND sequence = 2"
        ),
    )
    .await;
    let mut relay = Relay::new(pool.clone(), Duration::from_secs(36_000));
    for attempt in 1..=parking::ATTEMPTS_MAX {
        relay.round().await.unwrap();
        assert_eq!(count(&pool, &format!("parked_events WHERE stage = 'relay' AND attempts = {attempt}")).await, 1);
        relay.round().await.unwrap();
        set_clock(&pool, &format!("{attempt} minutes")).await;
    }
    relay.round().await.unwrap();
    assert_eq!(count(&pool, "parked_events WHERE next_attempt_at IS NULL").await, 1);
    assert_eq!((count(&pool, "event_log").await, count(&pool, "outbox WHERE sent_at IS NULL").await), (2, 2));

    run(&pool, "UPDATE outbox SET payload = '{}' WHERE sent_at IS NULL").await;
    assert_eq!(parking::redrive(&pool, None, None).await.unwrap(), 1);
    relay.round().await.unwrap();
    let sequences: Vec<i32> =
        sqlx::query_scalar(r#"SELECT sequence FROM event_log WHERE aggregate_id = $1 ORDER BY "offset""#)
            .bind(sick.0)
            .fetch_all(&pool)
            .await
            .unwrap();
    assert_eq!(sequences, [1, 2, 3]);
    assert_eq!(count(&pool, "parked_events").await, 0, "what was published is no longer held");
}

/// An outage is nobody's fault: nothing is held for it, however long it lasts, and everything comes through afterwards.
#[tokio::test]
async fn an_outage_parks_nothing_and_loses_nothing() {
    let pool = open().await;
    let diary = Diary::default();
    let mut consumer = Consumer::new(pool.clone(), diary.clone(), LEASE);
    for _ in 0..40 {
        happen(&pool, OrderId::mint(), 1, 1).await;
    }
    Relay::new(pool.clone(), LEASE).round().await.unwrap();
    *diary.out.lock().unwrap() = true;
    for _ in 0..30 {
        assert_eq!(consumer.round().await.unwrap(), Next::Wait);
    }
    assert_eq!((count(&pool, "parked_events").await, count(&pool, "processed").await), (0, 0));
    diary.no_more_trouble();
    settle_down(&mut consumer).await;
    assert_eq!((diary.seen().len(), count(&pool, "processed").await), (40, 40));
}

/// One that the other side fails again and again while it serves the others is that one's own trouble after all.
#[tokio::test]
async fn an_event_that_is_failed_alone_stops_its_partition_only_for_a_while() {
    let pool = open().await;
    let diary = Diary::default();
    let mut consumer = Consumer::new(pool.clone(), diary.clone(), LEASE);
    let sick = happen(&pool, OrderId::mint(), 1, 1).await[0];
    diary.trouble(sick, NoEffect::Unavailable { why: "500".to_owned() });
    let mut relay = Relay::new(pool.clone(), LEASE);
    let mut rounds = 0;
    while count(&pool, "parked_events").await == 0 {
        // Something else always gets through: the order of another partition.
        happen(&pool, OrderId::mint(), 1, 1).await;
        relay.round().await.unwrap();
        consumer.round().await.unwrap();
        rounds += 1;
        assert!(rounds < 200, "it holds up its partition for ever");
    }
    assert!(
        rounds >= 10,
        "held after {rounds} rounds: an outage that begins in the middle of a batch would hold everything"
    );
    settle_down(&mut consumer).await;
    diary.no_more_trouble();
    set_clock(&pool, "1 minute").await;
    settle_down(&mut consumer).await;
    assert_eq!(count(&pool, "parked_events").await, 0);
    assert_eq!(diary.seen().last(), Some(&sick));
}

/// What the database itself refuses in a batch is found, and stops nobody else in it.
#[tokio::test]
async fn an_event_whose_effect_the_database_refuses_is_held_alone() {
    let pool = open().await;
    let sick = happen(&pool, OrderId::mint(), 1, 1).await[0];
    for _ in 0..20 {
        happen(&pool, OrderId::mint(), 1, 1).await;
    }
    run(&pool, &format!("ALTER TABLE ledger_entries ADD CONSTRAINT not_this_one CHECK (event_id <> '{sick}')")).await;
    Relay::new(pool.clone(), LEASE).round().await.unwrap();
    let mut consumer = Consumer::new(pool.clone(), Bookkeeping, LEASE);
    for _ in 0..3 {
        settle_down(&mut consumer).await;
    }
    assert_eq!((count(&pool, "ledger_entries").await, count(&pool, "parked_events").await), (40, 1));
    run(&pool, "ALTER TABLE ledger_entries DROP CONSTRAINT not_this_one").await;
    set_clock(&pool, "1 minute").await;
    settle_down(&mut consumer).await;
    assert_eq!((count(&pool, "ledger_entries").await, count(&pool, "parked_events").await), (42, 0));
}

/// Readers and publishers at once: an offset that was read is never preceded by one that appears later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_has_no_gaps_however_many_publish() {
    let pool = open().await;
    let event = || Event {
        id: EventId::mint(),
        day: time::OffsetDateTime::now_utc().date(),
        aggregate: OrderId::mint().into(),
        sequence: 1,
        kind: "order.created".to_owned(),
        payload: "{}".to_owned(),
        occurred_at: time::OffsetDateTime::now_utc(),
    };
    let mut publishers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let pool = pool.clone();
        publishers.spawn(async move {
            for _ in 0..40 {
                let batch: Vec<Event> = (0..20).map(|_| event()).collect();
                event_log::publish(&pool, &batch.iter().collect::<Vec<_>>()).await.unwrap();
            }
        });
    }
    let mut next: HashMap<i16, i64> = (0..8).map(|partition| (partition, 0)).collect();
    let mut read = 0;
    while read < 4 * 40 * 20 {
        if let Some(ended) = publishers.try_join_next() {
            ended.unwrap();
        }
        let mut connection = pool.acquire().await.unwrap();
        let from: Vec<(i16, i64)> = next.iter().map(|(partition, offset)| (*partition, *offset)).collect();
        for delivered in event_log::fetch(&mut connection, &from, 400).await.unwrap() {
            let expected = next.get_mut(&delivered.partition).unwrap();
            assert_eq!(delivered.offset, *expected, "a gap in partition {}", delivered.partition);
            *expected += 1;
            read += 1;
        }
    }
}
