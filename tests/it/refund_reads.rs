//! What is asked about refunds all day long must not read all the refunds there ever were. Counted in rows, which PostgreSQL keeps
//! count of within a transaction; in the plan settings of the program.

use checkout::{
    config::DatabaseArgs,
    database,
    refunds::store::{known_by_key, take_due},
};
use sqlx::PgConnection;

use crate::support::{Opening, Shop, fresh_key, grinder};

const REFUNDS: i64 = 20_000;

/// Rows of the refunds that this transaction has read so far, by whatever way.
async fn rows_read(tx: &mut PgConnection) -> i64 {
    sqlx::query_scalar("SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'refunds'")
        .fetch_one(tx)
        .await
        .unwrap()
}

/// An order with many refunds, of which every kind is known under a key of its own and one is due.
async fn with_many_refunds() -> Shop {
    let shop = Shop::open_with(Opening { gateway_in_memory: true, ..Opening::default() }).await;
    shop.order(&fresh_key(), &grinder("pm_card_visa")).await.expect_order();
    let many = format!(
        "INSERT INTO refunds (id, order_id, customer_id, key_digest, amount_minor, currency, status, gateway_id, event_id, refusal, finished_at, look_at)
         SELECT gen_random_uuid(), o.id, o.customer_id, sha256(convert_to(i::text, 'UTF8')), 1, o.currency,
                CASE WHEN i % 2 = 0 THEN 'succeeded' ELSE 'refused' END,
                CASE WHEN i % 2 = 0 THEN 're_' || i END, CASE WHEN i % 2 = 0 THEN gen_random_uuid() END,
                CASE WHEN i % 2 = 1 THEN 'no' END, db_clock(),
                CASE WHEN i = 2 THEN db_clock() WHEN i % 3 = 0 THEN db_clock() + interval '1 day' END
         FROM orders AS o, generate_series(1, {REFUNDS}) AS i;"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(many)).execute(&shop.pool).await.unwrap();
    sqlx::raw_sql("ANALYZE refunds").execute(&shop.pool).await.unwrap();
    shop
}

#[tokio::test]
async fn what_is_asked_about_refunds_reads_only_those_that_it_is_about() {
    let shop = with_many_refunds().await;
    let args = DatabaseArgs { database_url: shop.database.url.clone(), connections: 1, batch_limit: 1, batch_lanes: 1 };
    let pool = database::connect(&args, "reads").await.unwrap();

    let mut tx = database::begin(&pool).await.unwrap();
    let due = take_due(&mut tx, 32, std::time::Duration::from_secs(30)).await.unwrap();
    let read = rows_read(&mut tx).await;
    assert_eq!(due.iter().map(|due| due.gateway_id.as_str()).collect::<Vec<_>>(), ["re_2"]);
    assert!(read < 10, "to find the one that is due {read} of {REFUNDS} refunds were read");
    assert_eq!(take_due(&mut tx, 32, std::time::Duration::from_secs(30)).await.unwrap(), [], "it is taken");
    tx.rollback().await.unwrap();

    let digest = |name: &str| <[u8; 32]>::from(<sha2::Sha256 as sha2::Digest>::digest(name));
    let mut tx = database::begin(&pool).await.unwrap();
    let known = known_by_key(&mut tx, &[digest("3"), digest("4"), digest("none")]).await.unwrap();
    let read = rows_read(&mut tx).await;
    assert_eq!(known.len(), 2, "{known:?}");
    assert!(read < 10, "to know of two keys {read} of {REFUNDS} refunds were read");
    tx.rollback().await.unwrap();
}
