//! Whose key is it, for what, and how long? Cases 1, 8, 9 and 12.

use std::time::Duration;

use checkout::{
    audit::Kind,
    credential::{Credentials, Subject},
    ids::CustomerId,
};
use serde_json::{Value, json};

use crate::support::{Answer, CUSTOMER, Opening, SECRET, Shop, answer, fresh_key, grinder, wait_for};

const VISA: &str = "pm_card_visa";
const DECLINED: &str = "pm_card_visa_chargeDeclined";
const OTHER: i64 = 7;

/// The phone after a restart: no connection and no token of before. What it has is the key it kept with the cart.
async fn order_after_a_restart(shop: &Shop, key: &str, lasting_s: u64) -> Answer {
    let credentials = Credentials::new(SECRET).unwrap();
    let token = credentials.mint(Subject::Customer(CustomerId(CUSTOMER)), Duration::from_secs(lasting_s)).unwrap();
    let phone = crate::support::client();
    let request = phone.post(format!("{}/v1/orders", shop.api_url)).bearer_auth(token);
    answer(request.header("Idempotency-Key", key).json(&grinder(VISA))).await
}

#[tokio::test]
async fn b01_a_key_belongs_to_the_purchase_through_failure_and_restart() {
    let mut shop = Shop::open_with(Opening { gateway_in_memory: false, ..Opening::default() }).await;
    let key = fresh_key();
    shop.gateway.kill();
    order_after_a_restart(&shop, &key, 60).await.expect(503, "gateway_unavailable");
    shop.restart_gateway();
    let placed = order_after_a_restart(&shop, &key, 600).await;
    placed.expect_order();
    assert_eq!(order_after_a_restart(&shop, &key, 6_000).await, Answer { replayed: true, ..placed });

    // And nobody makes one up for a client that has none.
    let url = format!("{}/v1/orders", shop.api_url);
    let without = shop.http.post(url).bearer_auth(shop.token(CUSTOMER)).json(&grinder(VISA));
    answer(without).await.expect(400, "idempotency_key_missing");
    assert_eq!((shop.captures().await, shop.count("orders").await), (1, 1));
    shop.close().await;
}

/// No server can tell a new purchase from an old one under a new key. The audit can, and does.
#[tokio::test]
async fn b01_a_key_per_call_buys_twice_and_the_audit_says_so() {
    let mut shop = Shop::open().await;
    let mut cart = grinder(VISA);
    cart["client_reference"] = json!("tap-1");
    for _ in 0..2 {
        assert!(!shop.order(&fresh_key(), &cart).await.replayed);
    }
    assert_eq!(shop.count("orders").await, 2);
    let report = shop.audit().await;
    assert_eq!(report.kinds(), [Kind::DuplicateOrder, Kind::DuplicateCharge], "{report}");
}

#[tokio::test]
async fn b08_two_customers_with_one_key_neither_share_nor_wait() {
    let shop = Shop::open().await;
    shop.fault("latency_after", 1, 1_500).await;
    let mine = shop.order_in_background("1");
    wait_for("mine is under way", async || shop.captures().await == 1).await;
    let theirs = shop.order_as(OTHER, "1", &grinder(VISA)).await;
    assert!(!theirs.replayed);
    let theirs = theirs.expect_order();
    assert_eq!(shop.count("orders").await, 1, "theirs did not wait for mine");
    let mine: Value = mine.await.unwrap().unwrap().json().await.unwrap();
    assert_ne!(mine["id"], theirs);

    // Who it is comes from the credential. A name in the body is a mistake, and changes nobody's key.
    for (field, value) in [("customer_id", json!(CUSTOMER)), ("customer", json!("42")), ("tenant_id", json!(CUSTOMER))]
    {
        for key in ["1", "2"] {
            let mut body = grinder(VISA);
            body[field] = value.clone();
            let refused = shop.order_as(OTHER, key, &body).await;
            refused.expect(422, "validation_failed");
            assert!(!refused.text().contains(mine["id"].as_str().unwrap()));
        }
    }
    let state = shop.get_as(OTHER, "/v1/idempotency-keys/orders.create/1").await;
    assert_eq!(state.json()["response"]["body"]["id"], theirs);
    shop.get_as(OTHER, "/v1/idempotency-keys/orders.create/2").await.expect(404, "not_found");
    assert_eq!((shop.captures().await, shop.count("orders").await), (2, 2));
    shop.close().await;
}

async fn order_text(shop: &Shop, key: &str, body: &str) -> Answer {
    let request = shop.http.post(format!("{}/v1/orders", shop.api_url)).bearer_auth(shop.token(CUSTOMER));
    let request = request.header("Idempotency-Key", key).header("Content-Type", "application/json");
    answer(request.body(body.to_owned())).await
}

/// One purchase with a reference, in every spelling, and what is another one.
#[tokio::test]
async fn b09_a_spelling_is_not_a_request_and_an_amount_is() {
    let shop = Shop::open().await;
    let key = fresh_key();
    let first = r#"{"items":[{"sku":"cup","quantity":1},{"sku":"beans","quantity":2}],"total":3790,"currency":"eur","payment_method":"pm_card_visa","client_reference":"café"}"#;
    let placed = order_text(&shop, &key, first).await;
    placed.expect_order();
    let reordered = r#"{"client_reference":"café","payment_method":"pm_card_visa","currency":"eur","total":3790,
        "items":[{"quantity":1,"sku":"cup"},{"quantity":2,"sku":"beans"}]}"#;
    for same in [
        first.to_owned(),
        reordered.to_owned(),
        format!("\r\n\t {}\n", first.replace(',', " ,\n").replace(':', "\t: ")),
        first.replace('é', "\\u00e9"),
        first.replace("cup", "\\u0063up").replace("\"total\"", "\"t\\u006Ftal\""),
    ] {
        assert_eq!(order_text(&shop, &key, &same).await, Answer { replayed: true, ..placed.clone() }, "{same}");
    }
    for other in [
        first.replace("3790", "3791"),
        first.replace("\"quantity\":2", "\"quantity\":3"),
        first.replace(
            r#"{"sku":"cup","quantity":1},{"sku":"beans","quantity":2}"#,
            r#"{"sku":"beans","quantity":2},{"sku":"cup","quantity":1}"#,
        ),
        first.replace("pm_card_visa", "pm_card_mastercard"),
        first.replace(",\"client_reference\":\"café\"", ""),
        first.replace("\"café\"", "null"),
        first.replace("café", "Café"),
        // Looks the same, and is not what was sent.
        first.replace('é', "e\u{301}"),
        first.replace("café", "café "),
    ] {
        assert_ne!(first, other);
        let refused = order_text(&shop, &key, &other).await;
        refused.expect(422, "idempotency_key_reused");
        assert!(!refused.text().contains("3790"), "{}", refused.text());
    }
    for none in [first.replace("3790", "3790.0"), first.replace("3790", "379e1"), first.replace("3790", "\"3790\"")] {
        order_text(&shop, &key, &none).await.expect(422, "validation_failed");
    }
    // Absent and null are one request under their own key.
    let key = fresh_key();
    let without = order_text(&shop, &key, &grinder(VISA).to_string()).await;
    let mut null = grinder(VISA);
    null["client_reference"] = Value::Null;
    assert_eq!(order_text(&shop, &key, &null.to_string()).await, Answer { replayed: true, ..without });
    assert_eq!((shop.captures().await, shop.count("orders").await), (2, 2));
    shop.close().await;
}

/// What is told of each outcome, and that doing it buys exactly once.
#[tokio::test]
async fn b12_every_outcome_says_whether_the_key_may_change() {
    let shop = Shop::open().await;
    let retry = |answer: &Answer| answer.json()["retry"].as_str().unwrap_or_default().to_owned();

    // Not known, not sent, still running, hung up: the same key, however often, buys once.
    for (fault, count, status, code) in
        [("http_500_after", 1, 504, "outcome_unknown"), ("http_429_before", 2, 503, "gateway_unavailable")]
    {
        let (key, before) = (fresh_key(), shop.captures().await);
        shop.fault(fault, count, 0).await;
        let told = shop.order(&key, &grinder(VISA)).await;
        told.expect(status, code);
        assert_eq!((retry(&told).as_str(), told.retry_after_s.is_some()), ("same_key", true), "{fault}");
        shop.order_until_placed(&key).await;
        assert_eq!(shop.captures().await, before + 1, "{fault}");
    }
    let (key, before) = (fresh_key(), shop.captures().await);
    shop.fault("latency_after", 1, 1_000).await;
    let gave_up = shop.order_in_background(&key);
    wait_for("it is under way", async || shop.captures().await == before + 1).await;
    gave_up.abort();
    let told = shop.order(&key, &grinder(VISA)).await;
    told.expect(409, "request_in_progress");
    assert_eq!(retry(&told), "same_key");
    assert!(shop.order_until_placed(&key).await.replayed);

    // Declined: this key has had its answer. Another card is another purchase, under another key.
    let key = fresh_key();
    let told = shop.order(&key, &grinder(DECLINED)).await;
    told.expect(402, "card_declined");
    assert_eq!(retry(&told), "new_key");
    assert!(shop.order(&key, &grinder(DECLINED)).await.replayed);
    let told = shop.order(&key, &grinder(VISA)).await;
    told.expect(422, "idempotency_key_reused");
    assert_eq!(retry(&told), "never");
    shop.order(&fresh_key(), &grinder(VISA)).await.expect_order();

    // Refused before anything began: the corrected request may keep its key.
    let (key, mut wrong) = (fresh_key(), grinder(VISA));
    wrong["total"] = json!(1);
    let told = shop.order(&key, &wrong).await;
    told.expect(422, "validation_failed");
    assert_eq!(retry(&told), "never");
    shop.order(&key, &grinder(VISA)).await.expect_order();

    assert_eq!((shop.captures().await, shop.count("orders").await), (5, 5));
    shop.close().await;
}
