//! The mock gateway over PostgreSQL: the stories of the dialect again, and what only durable books can promise.
//!
//! It answers: does a gateway that was killed still know whom it charged?

use std::time::Duration;

use crate::{
    gateway_world::{GRINDER, World, grinder},
    support::{TestDatabase, wait_for},
};
use checkout::mock_gateway::{Books, Settings};

/// A database of the test's own.
pub(crate) async fn fresh_database() -> String {
    TestDatabase::create().await.url
}

pub(crate) async fn world(database_url: &str) -> World {
    World::new(Books::open(database_url).await.expect("the books open"), Settings::default()).await
}

#[tokio::test]
async fn the_books_outlive_their_process() {
    let database_url = fresh_database().await;
    let before = world(&database_url).await;
    let paid = before.pay("k1", GRINDER).await;
    let declined_form = grinder(&[("payment_method", "pm_card_chargeDeclined")]);
    let declined = before.pay("k2", &declined_form).await;
    before.gateway.stop().await;

    let after = world(&database_url).await;
    let replayed = after.pay("k1", GRINDER).await;
    assert_eq!((replayed.status, &replayed.text), (200, &paid.text));
    assert_eq!(replayed.header("original-request"), paid.header("request-id"));
    assert_eq!(after.pay("k2", &declined_form).await.text, declined.text);
    assert_eq!(after.captures().await, 1);
}

#[tokio::test]
async fn a_key_in_progress_dies_with_its_process() {
    let database_url = fresh_database().await;
    let url = database_url.clone();
    let killed = std::thread::spawn(move || {
        // A runtime of its own, ended without ceremony, is as near to a kill as one process comes.
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let world = world(&url).await;
            let slow = grinder(&[("metadata[mock_fault]", "latency_before_60000")]);
            let in_progress = async {
                wait_for("it is under way", async || world.stats().await["faults"]["latency_before"] == 1).await;
            };
            tokio::select! {
                answer = world.pay("k1", &slow) => panic!("answered too early: {answer:?}"),
                () = in_progress => {}
            }
        });
        runtime.shutdown_background();
    });
    tokio::task::spawn_blocking(move || killed.join()).await.expect("a join").expect("killed on time");

    let after = world(&database_url).await;
    assert_eq!(after.captures().await, 0);
    let paid = after.pay("k1", GRINDER).await;
    assert_eq!((paid.status, paid.header("idempotent-replayed")), (200, None));
    assert_eq!(after.captures().await, 1);
}

#[tokio::test]
async fn one_process_has_the_books_open() {
    let database_url = fresh_database().await;
    let first = world(&database_url).await;
    let second = Books::open(&database_url).await;
    let said = second.expect_err("the books are taken").to_string();
    assert!(said.contains("another gateway has these books open"), "{said}");
    first.gateway.stop().await;
    world(&database_url).await;
}

#[tokio::test]
async fn a_client_that_hangs_up_leaves_no_half_payment() {
    let world = world(&fresh_database().await).await;
    let mut kept = 0;
    for serial in 0..40_u64 {
        let request = world.client.post(world.url("/v1/payment_intents")).bearer_auth("sk_test_1").form(GRINDER);
        let request = request.header("Idempotency-Key", format!("k{serial}"));
        // From before the first byte to after the last one.
        let answer = request.timeout(Duration::from_micros(500 * serial)).send().await;
        kept += u64::from(answer.is_ok());
    }
    for serial in 0..40 {
        // The first request of a key may still be running.
        wait_for("it has ended", async || world.pay(&format!("k{serial}"), GRINDER).await.status != 409).await;
    }
    let ledger = world.ledger().await;
    assert_eq!(ledger["count"], 40, "{kept} clients heard of it, all were charged once");
    let once = ledger["captures"].as_array().expect("captures").iter().all(|capture| capture["executions"] == 1);
    assert!(once, "{ledger}");
}
