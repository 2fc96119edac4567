//! Day partitions: there before they are needed, gone when nothing in them is, and never with an open key inside.

use std::time::Duration;

use checkout::{
    checkout::upkeep,
    config::DatabaseArgs,
    database,
    database::days::AHEAD_DAYS,
    event_log::EVENT_LOG,
    idempotency::partitions::{RECORDS, maintain},
    inbox::PROCESSED,
    outbox::OUTBOX,
};

use crate::support::{Shop, TestDatabase, fresh_key, grinder, keep_days, set_clock, usual_timing};

const EXPIRY: Duration = Duration::from_secs(72 * 3600);

#[tokio::test]
async fn days_are_made_ahead_and_a_second_round_finds_nothing_to_do() {
    let pool = TestDatabase::create().await.pool().await;
    assert_eq!(RECORDS.ahead(&pool).await.unwrap(), 0);
    let first = maintain(&pool, EXPIRY).await.unwrap();
    assert_eq!((first.made.len() as i64, first.dropped.len()), (AHEAD_DAYS + 1, 0));
    assert_eq!(maintain(&pool, EXPIRY).await.unwrap(), Default::default());
    assert_eq!(RECORDS.ahead(&pool).await.unwrap() as i64, AHEAD_DAYS + 1);
    set_clock(&pool, "1 day").await;
    assert_eq!(maintain(&pool, EXPIRY).await.unwrap().made.len(), 1);
}

#[tokio::test]
async fn several_maintainers_at_once_do_the_work_once() {
    let pool = TestDatabase::create().await.pool().await;
    let rounds = futures_util::future::join_all((0..4).map(|_| maintain(&pool, EXPIRY))).await;
    let made: usize = rounds.into_iter().map(|round| round.unwrap().made.len()).sum();
    assert_eq!(made as i64, AHEAD_DAYS + 1);
}

#[tokio::test]
async fn a_day_goes_when_its_last_record_has_expired_unless_a_key_in_it_is_open() {
    let pool = TestDatabase::create().await.pool().await;
    let made = maintain(&pool, EXPIRY).await.unwrap().made;
    for (day, state) in [(made[0], "unknown"), (made[1], "needs_review")] {
        let open = format!(
            "INSERT INTO idempotency_records (digest, day, customer_id, operation, key, fingerprint, fingerprint_version, state, fence,
                 attempt, next_attempt_at, resource_id, frozen, first_sent_at, created_at)
             VALUES (sha256('{day}'), '{day}', 42, 'orders.create', 'k', sha256('b'), 1, '{state}', 1, gen_random_uuid(),
                 CASE WHEN '{state}' = 'unknown' THEN now() END, gen_random_uuid(), '', now(), now())"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(open)).execute(&pool).await.unwrap();
    }
    // Past the expiry of the first three days, in the middle of that of the fourth.
    set_clock(&pool, "6 days").await;
    let round = maintain(&pool, EXPIRY).await.unwrap();
    assert_eq!((round.kept, round.dropped), (vec![made[0], made[1]], vec![made[2]]));

    let closed = "DELETE FROM idempotency_records WHERE state = 'unknown'";
    sqlx::raw_sql(closed).execute(&pool).await.unwrap();
    let round = maintain(&pool, EXPIRY).await.unwrap();
    assert_eq!((round.kept, round.dropped), (vec![made[1]], vec![made[0]]));
}

/// A maintainer that died between detaching a day and dropping it must not be in the way of the next one.
#[tokio::test]
async fn a_detached_day_that_was_never_dropped_is_finished() {
    let pool = TestDatabase::create().await.pool().await;
    let day = maintain(&pool, EXPIRY).await.unwrap().made[0];
    let name = format!("idempotency_records_{}", day.to_string().replace('-', "_"));
    let detach = format!("ALTER TABLE idempotency_records DETACH PARTITION {name}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(detach)).execute(&pool).await.unwrap();
    set_clock(&pool, "6 days").await;
    maintain(&pool, EXPIRY).await.unwrap();
    let left: bool =
        sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL").bind(&name).fetch_one(&pool).await.unwrap();
    assert!(!left, "{name} is still there");
}

/// A backup, or an audit, holds the table for longer than an upkeep may wait: neither the next upkeep nor a start of the api is
/// in trouble for it.
#[tokio::test]
async fn a_long_reader_delays_a_drop_and_nothing_else() {
    let shop = Shop::open().await;
    let args =
        DatabaseArgs { database_url: shop.database.url.clone(), connections: 4, batch_limit: 256, batch_lanes: 1 };
    let pool = database::connect(&args, "test").await.unwrap();
    shop.set_clock("97 hours").await;
    let mut reader = shop.pool.begin().await.unwrap();
    sqlx::query("SELECT count(*) FROM idempotency_records").execute(&mut *reader).await.unwrap();
    let round = maintain(&pool, EXPIRY).await.unwrap();
    assert!(round.dropped.is_empty() && !round.made.is_empty(), "{round:?}");
    // An api that starts now does its own upkeep, and starts.
    let mut shop = shop;
    shop.restart_api();
    shop.order(&fresh_key(), &grinder("pm_card_visa")).await.expect_order();
    reader.rollback().await.unwrap();

    maintain(&pool, EXPIRY).await.unwrap();
    let left: Vec<String> = sqlx::query_scalar(
        "SELECT relname::text FROM pg_class WHERE relname ~ '^idempotency_records_[0-9_]{10}$' AND relkind = 'r' ORDER BY 1",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    assert_eq!(
        left.len() as i64,
        AHEAD_DAYS + 4,
        "the first day is gone, three past ones and those ahead are there: {left:?}"
    );
    shop.close().await;
}

/// Somebody holds the records for longer than an upkeep waits: events get their days all the same.
#[tokio::test]
async fn one_tables_trouble_does_not_cost_the_others_their_days() {
    let database = TestDatabase::create().await;
    let plain = database.pool().await;
    keep_days(&plain).await;
    let args = DatabaseArgs { database_url: database.url.clone(), connections: 4, batch_limit: 256, batch_lanes: 1 };
    let pool = database::connect(&args, "test").await.unwrap();
    set_clock(&plain, "1 day").await;
    let mut holder = plain.begin().await.unwrap();
    sqlx::query("LOCK TABLE idempotency_records IN ACCESS EXCLUSIVE MODE").execute(&mut *holder).await.unwrap();
    assert!(upkeep::keep_days(&pool, &usual_timing()).await.is_err(), "the records could not be looked after");
    holder.rollback().await.unwrap();
    for table in [OUTBOX, EVENT_LOG, PROCESSED] {
        assert_eq!(table.ahead(&plain).await.unwrap() as i64, AHEAD_DAYS + 1, "{}", table.table);
    }
    assert_eq!(RECORDS.ahead(&plain).await.unwrap() as i64, AHEAD_DAYS);
    keep_days(&plain).await;
    assert_eq!(upkeep::days_ahead(&plain).await.unwrap() as i64, AHEAD_DAYS + 1);
}

/// An api of the version before writes events without a day, while the new version comes in.
#[tokio::test]
async fn an_event_that_was_written_without_a_day_gets_todays() {
    let pool = TestDatabase::create().await.pool().await;
    keep_days(&pool).await;
    sqlx::raw_sql(
        "INSERT INTO outbox (event_id, aggregate_id, sequence, shard, type, payload)
         VALUES (gen_random_uuid(), gen_random_uuid(), 1, 0, 'order.created', '{}')",
    )
    .execute(&pool)
    .await
    .unwrap();
    let of_today: bool = sqlx::query_scalar("SELECT day = db_day() FROM outbox").fetch_one(&pool).await.unwrap();
    assert!(of_today);
}
