//! The museum: each piece does its one thing wrong, everything else right, and the audit says no to it.

use std::time::Duration;

use checkout::audit::{self, AuditOptions, Kind};
use serde_json::{Value, json};

use crate::support::{Opening, Shop, client, fresh_key, grinder, wait_for};

async fn without_keys() -> Shop {
    Shop::open_with(Opening { gateway_in_memory: true, without_keys: true, worker: true, ..Opening::default() }).await
}

/// An order that says what it is for.
fn meant_as(intent: &str) -> Value {
    let mut order = grinder("pm_card_visa");
    order["client_reference"] = json!(intent);
    order
}

#[tokio::test]
async fn without_keys_one_request_is_one_order_with_everything_that_follows() {
    let shop = without_keys().await;
    let answer = shop.order(&fresh_key(), &meant_as("intent-1")).await;
    let order = answer.expect_order();
    assert_eq!(answer.location.as_deref(), Some(format!("/v1/orders/{order}").as_str()));
    assert!(!answer.replayed);
    shop.wait_until_quiet().await;
    assert_eq!((shop.count("orders").await, shop.count("charges").await, shop.captures().await), (1, 1, 1));
    assert_eq!((shop.mails().await.len(), shop.count("idempotency_records").await), (1, 0));
    shop.close().await;
}

#[tokio::test]
async fn without_keys_a_retry_is_a_purchase_and_the_audit_says_so() {
    let shop = without_keys().await;
    let key = fresh_key();
    let first = shop.order(&key, &meant_as("intent-1")).await.expect_order();
    let second = shop.order(&key, &meant_as("intent-1")).await.expect_order();
    assert_ne!(first, second, "the header changes nothing");
    assert_eq!((shop.count("orders").await, shop.captures().await), (2, 2));
    shop.wait_until_quiet().await;
    assert_eq!(named(&shop).await, [Kind::DuplicateOrder, Kind::DuplicateCharge]);
}

#[tokio::test]
async fn without_keys_a_charge_whose_answer_is_lost_belongs_to_nobody() {
    let shop = without_keys().await;
    shop.fault("drop_after", 1, 0).await;
    shop.order(&fresh_key(), &meant_as("intent-1")).await.expect(504, "outcome_unknown");
    assert_eq!((shop.count("orders").await, shop.captures().await), (0, 1));
    assert_eq!(named(&shop).await, [Kind::OrphanCharge]);
    // Whoever asks again, as the answer says, pays again.
    shop.order(&fresh_key(), &meant_as("intent-1")).await.expect_order();
    assert_eq!((shop.count("orders").await, shop.captures().await), (1, 2));
    shop.wait_until_quiet().await;
    assert_eq!(named(&shop).await, [Kind::DuplicateCharge]);
}

/// What the audit finds without a grace: nothing is under way that could still be written down.
async fn named(shop: &Shop) -> Vec<Kind> {
    let options = AuditOptions { grace: Duration::ZERO, event_grace: Duration::ZERO };
    audit::run(&shop.pool, &shop.gateway_url, None, options).await.expect("an audit").kinds()
}

#[tokio::test]
async fn without_keys_work_goes_on_when_its_client_hangs_up() {
    let shop = without_keys().await;
    shop.fault("latency_after", 1, 500).await;
    let patience = Duration::from_millis(100);
    let hung_up = client()
        .post(format!("{}/v1/orders", shop.api_url))
        .bearer_auth(shop.token(crate::support::CUSTOMER))
        .json(&meant_as("intent-1"))
        .timeout(patience)
        .send()
        .await;
    assert!(hung_up.is_err_and(|error| error.is_timeout()));
    wait_for("the order is written down", async || shop.count("orders").await == 1).await;
    assert_eq!(shop.captures().await, 1);
    shop.close().await;
}

#[tokio::test]
async fn without_keys_bad_input_and_a_declined_card_are_told_as_ever() {
    let shop = without_keys().await;
    shop.order(&fresh_key(), &json!({"items": []})).await.expect(422, "validation_failed");
    let mut wrong_total = grinder("pm_card_visa");
    wrong_total["total"] = json!(1);
    assert_eq!(shop.order(&fresh_key(), &wrong_total).await.status, 422);
    assert_eq!((shop.count("charges").await, shop.captures().await), (0, 0));
    let declined = grinder("pm_card_visa_chargeDeclinedInsufficientFunds");
    shop.order(&fresh_key(), &declined).await.expect(402, "card_declined");
    assert_eq!((shop.count("orders").await, shop.count("charges").await, shop.captures().await), (0, 1, 0));
    shop.get("/v1/orders").await.expect(405, "method_not_allowed");
    shop.close().await;
}
