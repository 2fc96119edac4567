//! What a dead process or an unknown outcome leaves behind is finished, with no second charge, or handed to a person.

use crate::support::{Opening, Shop, fresh_key, grinder, wait_for};

const VISA: &str = "pm_card_visa";

fn durable() -> Opening {
    Opening { gateway_in_memory: false, ..Opening::default() }
}

/// The api dies while the gateway is charging, nobody retries, and the worker finishes the order.
#[tokio::test]
async fn an_order_whose_api_was_killed_in_mid_charge_is_finished_by_the_worker() {
    let mut shop = Shop::open_with(durable()).await;
    let key = fresh_key();
    shop.fault("latency_after", 1, 5_000).await;
    let (http, url, token) =
        (shop.http.clone(), format!("{}/v1/orders", shop.api_url), shop.token(crate::support::CUSTOMER));
    let sent = {
        let key = key.clone();
        tokio::spawn(async move {
            http.post(url).bearer_auth(token).header("Idempotency-Key", key).json(&grinder(VISA)).send().await
        })
    };
    wait_for("the gateway has charged", async || shop.captures().await == 1).await;
    shop.api.kill();
    assert!(sent.await.unwrap().is_err(), "the client got an answer from a dead api");
    assert_eq!(shop.count("orders").await, 0);

    shop.set_clock("16 seconds").await;
    shop.start_worker();
    wait_for("the worker has finished the order", async || shop.count("orders").await == 1).await;
    shop.restart_api();
    assert!(shop.order(&key, &grinder(VISA)).await.replayed);
    assert_eq!(shop.captures().await, 1);
    shop.close().await;
}

#[tokio::test]
async fn unknown_outcomes_of_every_kind_are_resolved_without_the_client() {
    let mut shop = Shop::open_with(durable()).await;
    let mut keys = Vec::new();
    for (fault, count) in [("http_500_after", 1), ("drop_after", 2), ("drop_before", 2), ("http_503_before", 2)] {
        shop.fault(fault, count, 0).await;
        let key = fresh_key();
        shop.order(&key, &grinder(VISA)).await.expect(504, "outcome_unknown");
        assert_eq!(shop.state_of(&key).await, "unknown", "{fault}");
        keys.push(key);
    }
    shop.start_worker();
    wait_for("every order is there", async || shop.count("orders").await == 4).await;
    for key in keys {
        assert_eq!(shop.state_of(&key).await, "completed");
    }
    assert_eq!(shop.captures().await, 4);
    shop.close().await;
}

/// After 23 hours the gateway may have forgotten our key, and sending again may charge again.
#[tokio::test]
async fn after_23_hours_nothing_is_sent_again_and_what_cannot_be_found_needs_review() {
    let mut shop = Shop::open_with(durable()).await;
    let (never_arrived, charged) = (fresh_key(), fresh_key());
    shop.fault("drop_before", 2, 0).await;
    shop.order(&never_arrived, &grinder(VISA)).await.expect(504, "outcome_unknown");
    shop.fault("drop_after", 2, 0).await;
    shop.order(&charged, &grinder(VISA)).await.expect(504, "outcome_unknown");
    let arrivals = shop.stats().await["executions"].clone();

    shop.set_clock("23 hours 1 minute").await;
    shop.advance_gateway_clock(25 * 3600).await;
    shop.start_worker();
    wait_for("the charge that happened is found", async || shop.state_of(&charged).await == "completed").await;
    wait_for("the other needs review", async || shop.state_of(&never_arrived).await == "needs_review").await;
    let under_review = shop.order(&never_arrived, &grinder(VISA)).await;
    under_review.expect(504, "outcome_unknown");
    assert_eq!(under_review.json()["retry"], "same_key");
    assert_eq!(shop.stats().await["executions"], arrivals, "nothing was sent after the window");
    assert_eq!((shop.captures().await, shop.count("orders").await), (1, 1));
    let report = serde_json::to_value(shop.audit().await).unwrap();
    assert_eq!(report["counted"]["needs_review"], 1, "{report}");
    shop.close().await;
}

/// A paused process wakes up after its lease: its answer from the gateway is true, and its writing days are over.
#[tokio::test]
async fn an_owner_that_slept_through_its_lease_writes_nothing() {
    let mut shop = Shop::open_with(durable()).await;
    let key = fresh_key();
    shop.fault("latency_after", 1, 1_500).await;
    let (http, url, token) =
        (shop.http.clone(), format!("{}/v1/orders", shop.api_url), shop.token(crate::support::CUSTOMER));
    let sleeper = {
        let key = key.clone();
        tokio::spawn(async move {
            http.post(url).bearer_auth(token).header("Idempotency-Key", key).json(&grinder(VISA)).send().await
        })
    };
    wait_for("the gateway has charged", async || shop.captures().await == 1).await;
    shop.api.pause();
    shop.set_clock("16 seconds").await;
    shop.start_worker();
    wait_for("the worker has finished the order", async || shop.count("orders").await == 1).await;
    shop.api.resume();
    let answer = sleeper.await.unwrap().unwrap();
    assert_eq!(answer.status(), 201);
    assert_eq!(answer.headers()["idempotent-replayed"], "true", "the sleeper passes on the other owner's answer");
    assert_eq!((shop.captures().await, shop.count("orders").await, shop.count("charges").await), (1, 1, 1));
    shop.close().await;
}
