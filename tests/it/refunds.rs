//! Money that goes back: never more than was taken, once per key, also when keys race, answers are lost and processes die.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{Answer, Opening, Shop, fresh_key, grinder, wait_for};

const VISA: &str = "pm_card_visa";
const REFUND: &str = "orders.refund";
const TOTAL: i64 = 4299;

async fn with_worker() -> Shop {
    Shop::open_with(Opening { gateway_in_memory: true, worker: true, ..Opening::default() }).await
}

async fn placed(shop: &Shop) -> String {
    shop.order(&fresh_key(), &grinder(VISA)).await.expect_order()
}

/// What the gateway gave back of its only capture.
async fn given_back(shop: &Shop) -> i64 {
    shop.ledger().await["captures"][0]["amount_refunded"].as_i64().expect("an amount")
}

async fn shown(shop: &Shop, order: &str) -> (String, i64) {
    let order = shop.get(&format!("/v1/orders/{order}")).await.json();
    (order["status"].as_str().unwrap().to_owned(), order["refunded"].as_i64().unwrap())
}

fn created(answer: &Answer) -> Value {
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn a_part_then_the_rest_each_once_and_what_follows_from_them() {
    let shop = with_worker().await;
    let order = placed(&shop).await;
    let (part, rest) = (fresh_key(), fresh_key());
    let first = shop.refund(&order, &part, Some(1000)).await;
    let refund = created(&first);
    assert_eq!((refund["amount"].as_i64(), refund["status"].as_str()), (Some(1000), Some("succeeded")));
    assert!(refund["gateway_id"].as_str().unwrap().starts_with("re_"), "{refund}");
    assert_eq!(shown(&shop, &order).await, ("partially_refunded".to_owned(), 1000));

    let again = shop.refund(&order, &part, Some(1000)).await;
    assert_eq!((again.status, again.replayed, &again.body), (201, true, &first.body));
    assert_eq!(again.location, first.location);
    // What is at the Location is what was answered, less the request that asked for it.
    let mut found = shop.get(first.location.as_deref().unwrap()).await.json();
    found["request_id"] = refund["request_id"].clone();
    assert_eq!(found, refund);

    assert_eq!(created(&shop.refund(&order, &rest, None).await)["amount"], TOTAL - 1000);
    assert_eq!(shown(&shop, &order).await, ("refunded".to_owned(), TOTAL));
    let listed = shop.get(&format!("/v1/orders/{order}/refunds")).await.json();
    let amounts: Vec<_> = listed["data"].as_array().unwrap().iter().map(|refund| refund["amount"].as_i64()).collect();
    assert_eq!(amounts, [Some(TOTAL - 1000), Some(1000)], "newest first");
    let first = shop.get(&format!("/v1/orders/{order}/refunds?limit=1")).await.json();
    let next = first["next"].as_str().expect("more");
    let second = shop.get(&format!("/v1/orders/{order}/refunds?limit=1&starting_after={next}")).await.json();
    assert_eq!((first["data"][0]["amount"].as_i64(), second["data"][0]["amount"].as_i64()), (amounts[0], amounts[1]));
    assert_eq!((&second["has_more"], &second["next"]), (&json!(false), &Value::Null));
    shop.refund(&order, &fresh_key(), None).await.expect(422, "refund_exceeds_balance");
    assert_eq!(given_back(&shop).await, TOTAL);

    shop.wait_until_quiet().await;
    let net = "ledger_entries WHERE account = 'gateway' HAVING sum(amount_minor) = 0";
    assert_eq!((shop.count(net).await, shop.mails().await.len()), (3, 3), "three entries that cancel out, three mails");
    shop.close().await;
}

#[tokio::test]
async fn keys_that_race_give_back_no_more_than_was_taken() {
    let shop = with_worker().await;
    let order = placed(&shop).await;
    let racing = (0..24).map(|_| {
        let (shop, order) = (&shop, &order);
        async move { shop.refund(order, &fresh_key(), Some(1000)).await }
    });
    let answers = join_all(racing).await;
    let succeeded = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(succeeded, 4, "{answers:?}");
    for refused in answers.iter().filter(|answer| answer.status != 201) {
        refused.expect(422, "refund_exceeds_balance");
    }
    assert_eq!((given_back(&shop).await, shown(&shop, &order).await.1), (4000, 4000));
    shop.close().await;
}

#[tokio::test]
async fn one_key_on_many_lines_gives_back_once() {
    let shop = with_worker().await;
    let order = placed(&shop).await;
    let key = fresh_key();
    let answers = join_all((0..24).map(|_| shop.refund(&order, &key, Some(1000)))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 201 && !answer.replayed).count(), 1, "{answers:?}");
    for answer in &answers {
        assert!(matches!(answer.status, 201 | 409), "{}", answer.text());
    }
    assert_eq!(given_back(&shop).await, 1000);
    shop.close().await;
}

#[tokio::test]
async fn what_is_unknown_is_held_back_until_it_is_known() {
    let mut shop = Shop::open().await;
    let order = placed(&shop).await;
    let (unknown, other) = (fresh_key(), fresh_key());
    shop.fault("drop_after", 2, 0).await;
    shop.refund(&order, &unknown, Some(2000)).await.expect(504, "outcome_unknown");
    assert_eq!(shop.state_of_operation(REFUND, &unknown).await, "unknown");
    let pending = shop.get(&format!("/v1/orders/{order}/refunds")).await.json();
    assert_eq!((pending["data"][0]["status"].as_str(), shown(&shop, &order).await.1), (Some("pending"), 0));
    // Another key may have what is left besides, and not a cent of what is in doubt.
    shop.refund(&order, &other, Some(TOTAL - 2000 + 1)).await.expect(422, "refund_exceeds_balance");
    assert_eq!(created(&shop.refund(&order, &other, None).await)["amount"], TOTAL - 2000);
    assert_eq!(created(&shop.refund(&order, &unknown, Some(2000)).await)["amount"], 2000);
    assert_eq!(given_back(&shop).await, TOTAL);
    shop.start_worker();
    shop.close().await;
}

#[tokio::test]
async fn recovery_finishes_what_its_client_never_asked_for_again() {
    let mut shop = Shop::open().await;
    let order = placed(&shop).await;
    let keys: Vec<String> = ["drop_after", "drop_before", "http_500_after"].iter().map(|_| fresh_key()).collect();
    for (key, fault) in keys.iter().zip(["drop_after", "drop_before", "http_500_after"]) {
        shop.fault(fault, 2, 0).await;
        shop.refund(&order, key, Some(1000)).await.expect(504, "outcome_unknown");
        // What a fault left over must not meet the next one.
        shop.clear_faults().await;
    }
    shop.start_worker();
    for key in &keys {
        wait_for("the refund is finished", async || shop.state_of_operation(REFUND, key).await == "completed").await;
    }
    assert_eq!((given_back(&shop).await, shown(&shop, &order).await.1), (3000, 3000));
    for key in &keys {
        assert!(shop.refund(&order, key, Some(1000)).await.replayed);
    }
    shop.close().await;
}

#[tokio::test]
async fn what_was_never_sent_is_free_again_and_its_retry_must_find_it_free() {
    let mut shop = Shop::open_with(Opening { worker: true, ..Opening::default() }).await;
    let order = placed(&shop).await;
    let (unsent, lucky, late) = (fresh_key(), fresh_key(), fresh_key());
    shop.gateway.kill();
    for key in [&unsent, &late] {
        shop.refund(&order, key, Some(3000)).await.expect(503, "gateway_unavailable");
        assert_eq!(shop.state_of_operation(REFUND, key).await, "released");
    }
    shop.restart_gateway();
    created(&shop.refund(&order, &unsent, Some(3000)).await);
    shop.refund(&order, &late, Some(3000)).await.expect(422, "refund_exceeds_balance");
    assert_eq!(shop.state_of_operation(REFUND, &late).await, "released", "the key is not burned");
    created(&shop.refund(&order, &lucky, None).await);
    assert_eq!((given_back(&shop).await, shown(&shop, &order).await.1), (TOTAL, TOTAL));
    shop.close().await;
}

#[tokio::test]
async fn all_that_is_left_is_what_is_left_when_nothing_was_ever_sent() {
    let mut shop = Shop::open_with(Opening { worker: true, ..Opening::default() }).await;
    let order = placed(&shop).await;
    let (all, part) = (fresh_key(), fresh_key());
    shop.gateway.kill();
    shop.refund(&order, &all, None).await.expect(503, "gateway_unavailable");
    shop.restart_gateway();
    created(&shop.refund(&order, &part, Some(1000)).await);
    let rest = shop.refund(&order, &all, None).await;
    assert_eq!(created(&rest)["amount"], TOTAL - 1000);
    assert_eq!(shop.get(rest.location.as_deref().unwrap()).await.json()["amount"], TOTAL - 1000);
    assert_eq!(given_back(&shop).await, TOTAL);
    shop.close().await;
}

#[tokio::test]
async fn a_refund_belongs_to_its_order_its_customer_and_its_amount() {
    let shop = with_worker().await;
    let (order, another) = (placed(&shop).await, placed(&shop).await);
    let key = fresh_key();
    created(&shop.refund(&order, &key, Some(1000)).await);
    shop.refund(&another, &key, Some(1000)).await.expect(422, "idempotency_key_reused");
    shop.refund(&order, &key, Some(1001)).await.expect(422, "idempotency_key_reused");
    shop.refund(&order, &key, None).await.expect(422, "idempotency_key_reused");
    // One key, three operations: three things.
    created(&shop.order(&key, &grinder(VISA)).await);
    let body = json!({"amount": 100, "currency": "eur", "payment_method": VISA});
    created(&shop.post("/v1/charges", &key, &body).await);

    let path = format!("/v1/orders/{order}/refunds");
    shop.post_as(7, &path, &fresh_key(), &json!({})).await.expect(404, "not_found");
    shop.get_as(7, &path).await.expect(404, "not_found");
    let refund = shop.get(&path).await.json()["data"][0]["id"].as_str().unwrap().to_owned();
    shop.get_as(7, &format!("{path}/{refund}")).await.expect(404, "not_found");
    shop.get(&format!("/v1/orders/{another}/refunds/{refund}")).await.expect(404, "not_found");
    for nobody in ["00000000-0000-0000-0000-000000000000", "x", "%00"] {
        shop.refund(nobody, &fresh_key(), None).await.expect(404, "not_found");
    }
    shop.close().await;
}

#[tokio::test]
async fn a_key_past_its_expiry_gives_nothing_back_again_and_says_where_it_did() {
    let shop = with_worker().await;
    let order = placed(&shop).await;
    let key = fresh_key();
    let first = shop.refund(&order, &key, Some(1000)).await;
    created(&first);
    shop.wait_until_quiet().await;
    shop.set_clock("73 hours").await;
    let late = shop.refund(&order, &key, Some(1000)).await;
    late.expect(410, "idempotency_key_expired");
    assert_eq!((late.location, given_back(&shop).await), (first.location, 1000));
    assert_eq!(shop.state_of_operation(REFUND, &key).await, "expired");
    shop.close().await;
}
