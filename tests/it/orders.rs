//! The contract of an order over real HTTP, with the audit at the end of each test.

use std::collections::HashMap;

use futures_util::future::join_all;
use serde_json::json;

use crate::support::{Answer, CUSTOMER, Opening, Shop, answer, fresh_key, grinder, wait_for};

const VISA: &str = "pm_card_visa";
const INSUFFICIENT_FUNDS: &str = "pm_card_visa_chargeDeclinedInsufficientFunds";

#[tokio::test]
async fn an_order_is_placed_once_and_replayed_byte_for_byte() {
    let shop = Shop::open().await;
    let key = fresh_key();
    let first = shop.order(&key, &grinder(VISA)).await;
    let id = first.expect_order();
    assert!(!first.replayed);
    assert_eq!(first.location.as_deref(), Some(format!("/v1/orders/{id}").as_str()));

    for key in [key.clone(), format!("\"{key}\"")] {
        let again = shop.order(&key, &grinder(VISA)).await;
        assert_eq!(again, Answer { replayed: true, ..first.clone() });
    }
    let shuffled = json!({
        "payment_method": VISA, "client_reference": null, "total": 4299, "currency": "eur",
        "items": [{"quantity": 1, "sku": "grinder"}]
    });
    assert_eq!(shop.order(&key, &shuffled).await.body, first.body);

    let shown = shop.get(&format!("/v1/orders/{id}")).await;
    let (mut shown, mut placed) = (shown.json(), first.json());
    assert!(placed["request_id"].is_string());
    placed.as_object_mut().unwrap().remove("request_id");
    shown["created_at"] = placed["created_at"].clone();
    assert_eq!(shown, placed);
    assert_eq!((shop.captures().await, shop.count("orders").await, shop.count("outbox").await), (1, 1, 1));
    shop.close().await;
}

#[tokio::test]
async fn two_hundred_identical_first_requests_give_one_fresh_answer() {
    let shop = Shop::open().await;
    let (key, body) = (fresh_key(), grinder(VISA));
    let answers = join_all((0..200).map(|_| shop.order(&key, &body))).await;

    let mut seen: HashMap<(u16, bool), usize> = HashMap::new();
    for answer in &answers {
        *seen.entry((answer.status, answer.replayed)).or_default() += 1;
        match answer.status {
            201 => {}
            409 => {
                answer.expect(409, "request_in_progress");
                assert_eq!(answer.retry_after_s, Some(1));
            }
            other => panic!("{other}: {}", answer.text()),
        }
    }
    assert_eq!(seen.get(&(201, false)), Some(&1), "{seen:?}");
    let mut bodies: Vec<&[u8]> = answers.iter().filter(|a| a.status == 201).map(|a| a.body.as_slice()).collect();
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "all 201s are the same bytes");
    assert!(shop.order(&key, &body).await.replayed);
    assert_eq!((shop.captures().await, shop.count("orders").await), (1, 1));
    shop.close().await;
}

#[tokio::test]
async fn another_request_under_a_used_key_is_refused_whatever_became_of_the_first() {
    let shop = Shop::open().await;
    let kettle =
        json!({"items": [{"sku": "kettle", "quantity": 1}], "total": 2950, "currency": "eur", "payment_method": VISA});
    for first in [grinder(VISA), grinder(INSUFFICIENT_FUNDS)] {
        let key = fresh_key();
        let answered = shop.order(&key, &first).await;
        let refused = shop.order(&key, &kettle).await;
        refused.expect(422, "idempotency_key_reused");
        assert!(!refused.text().contains("4299"), "the stored answer is not echoed");
        assert_eq!(shop.order(&key, &first).await.body, answered.body, "the first answer stands");
    }
    assert_eq!(shop.captures().await, 1);
    shop.close().await;
}

#[tokio::test]
async fn customers_do_not_see_each_others_keys_or_orders() {
    let shop = Shop::open().await;
    let (key, body) = (fresh_key(), grinder(VISA));
    let mine = shop.order(&key, &body).await.expect_order();
    let theirs = shop.order_as(7, &key, &body).await;
    assert!(!theirs.replayed);
    let theirs = theirs.expect_order();
    assert_ne!(mine, theirs);

    shop.get_as(7, &format!("/v1/orders/{mine}")).await.expect(404, "not_found");
    shop.get(&format!("/v1/orders/{theirs}")).await.expect(404, "not_found");
    shop.get("/v1/orders/not-an-id").await.expect(404, "not_found");
    shop.get_as(8, &format!("/v1/idempotency-keys/orders.create/{key}")).await.expect(404, "not_found");
    assert_eq!(shop.captures().await, 2);
    shop.close().await;
}

#[tokio::test]
async fn a_decline_is_a_result_stored_and_replayed() {
    let shop = Shop::open().await;
    for (payment_method, decline_code) in [
        (INSUFFICIENT_FUNDS, "insufficient_funds"),
        ("pm_card_chargeDeclinedExpiredCard", "expired_card"),
        ("pm_card_authenticationRequired", "authentication_required"),
        ("pm_nobody_knows", "payment_method_unknown"),
    ] {
        let (key, body) = (fresh_key(), grinder(payment_method));
        let first = shop.order(&key, &body).await;
        first.expect(402, "card_declined");
        assert_eq!(first.json()["decline_code"], decline_code, "{}", first.text());
        assert_eq!(first.json()["retry"], "new_key");
        assert_eq!(first.content_type.as_deref(), Some("application/problem+json"));
        assert_eq!(shop.order(&key, &body).await, Answer { replayed: true, ..first });
        assert_eq!(shop.state_of(&key).await, "failed");
    }
    assert_eq!((shop.captures().await, shop.count("orders").await, shop.count("outbox").await), (0, 0, 0));
    assert_eq!(shop.count("charges WHERE status = 'declined'").await, 4);
    shop.close().await;
}

/// Whatever the gateway does to one answer: one order, one charge, and the truth in the meantime.
#[tokio::test]
async fn a_fault_at_the_gateway_never_costs_an_order_or_a_second_charge() {
    let shop = Shop::open().await;
    for fault in [
        "drop_before",
        "http_503_before",
        "http_429_before",
        "drop_after",
        "rst_after",
        "truncate_after",
        "http_500_after",
    ] {
        let before = shop.captures().await;
        shop.fault(fault, 1, 0).await;
        let (key, body) = (fresh_key(), grinder(VISA));
        let mut answer = shop.order(&key, &body).await;
        let mut asked = 1;
        while answer.status != 201 {
            assert!(matches!(answer.status, 503 | 504), "{fault}: {} {}", answer.status, answer.text());
            assert_eq!(answer.json()["retry"], "same_key", "{fault}");
            assert!(answer.retry_after_s.is_some(), "{fault}");
            assert!(asked < 10, "{fault}: no order after {asked} requests");
            answer = shop.order(&key, &body).await;
            asked += 1;
        }
        assert_eq!(shop.captures().await, before + 1, "{fault}");
        assert!(shop.order(&key, &body).await.replayed, "{fault}");
    }
    shop.close().await;
}

#[tokio::test]
async fn what_surely_was_not_sent_is_503_and_what_may_have_been_is_504_and_neither_is_stored() {
    let mut shop = Shop::open_with(Opening { gateway_in_memory: false, ..Opening::default() }).await;
    let body = grinder(VISA);

    shop.gateway.kill();
    let not_sent = fresh_key();
    shop.order(&not_sent, &body).await.expect(503, "gateway_unavailable");
    assert_eq!(shop.state_of(&not_sent).await, "released");
    shop.restart_gateway();
    assert!(!shop.order(&not_sent, &body).await.replayed);

    // A frozen 500: the money was taken, and the gateway will say 500 for ever. Only looking it up can tell.
    shop.fault("http_500_after", 1, 0).await;
    let frozen = fresh_key();
    shop.order(&frozen, &body).await.expect(504, "outcome_unknown");
    assert_eq!(shop.state_of(&frozen).await, "unknown");
    shop.order(&frozen, &body).await.expect_order();

    // Once something may have been sent, a gateway that cannot be reached proves nothing any more.
    shop.fault("http_500_after", 1, 0).await;
    let sticky = fresh_key();
    shop.order(&sticky, &body).await.expect(504, "outcome_unknown");
    shop.gateway.kill();
    shop.order(&sticky, &body).await.expect(504, "outcome_unknown");
    shop.restart_gateway();
    shop.order(&sticky, &body).await.expect_order();

    assert_eq!((shop.captures().await, shop.count("orders").await), (3, 3));
    shop.close().await;
}

#[tokio::test]
async fn a_key_tells_how_it_stands() {
    let shop = Shop::open().await;
    let key = fresh_key();
    let path = format!("/v1/idempotency-keys/orders.create/{key}");
    shop.get(&path).await.expect(404, "not_found");
    let order = shop.order(&key, &grinder(VISA)).await;
    let shown = shop.get(&path).await;
    assert_eq!(shown.status, 200);
    let shown = shown.json();
    assert_eq!(
        (&shown["state"], &shown["key"], &shown["operation"]),
        (&json!("completed"), &json!(key), &json!("orders.create"))
    );
    assert_eq!(shown["response"]["status"], 201);
    assert_eq!(shown["response"]["body"], order.json());
    assert_eq!(shown["response"]["location"].as_str(), order.location.as_deref());
    shop.get(&format!("/v1/idempotency-keys/orders.delete/{key}")).await.expect(404, "not_found");
    shop.close().await;
}

#[tokio::test]
async fn an_expired_key_that_bought_is_gone_and_one_that_was_declined_is_free() {
    let shop = Shop::open().await;
    let (bought, declined) = (fresh_key(), fresh_key());
    let order = shop.order(&bought, &grinder(VISA)).await;
    shop.order(&declined, &grinder(INSUFFICIENT_FUNDS)).await.expect(402, "card_declined");

    // The worker is not there, so the days ahead are made by a second api.
    shop.set_clock("71 hours 59 minutes").await;
    maintain(&shop).await;
    assert!(shop.order(&bought, &grinder(VISA)).await.replayed);
    shop.set_clock("72 hours 1 second").await;
    shop.advance_gateway_clock(72 * 3600).await;
    maintain(&shop).await;
    for body in [grinder(VISA), grinder(INSUFFICIENT_FUNDS)] {
        let gone = shop.order(&bought, &body).await;
        gone.expect(410, "idempotency_key_expired");
        assert_eq!(gone.location, order.location);
    }
    let shown = shop.get(&format!("/v1/idempotency-keys/orders.create/{bought}")).await.json();
    assert_eq!((shown["state"].as_str(), shown["location"].as_str()), (Some("expired"), order.location.as_deref()));
    shop.order(&declined, &grinder(VISA)).await.expect_order();

    // After the partition is dropped, the order itself still remembers.
    shop.set_clock("120 hours").await;
    assert_eq!(maintain(&shop).await, 2, "the day of the purchase, and the empty one after it");
    shop.order(&bought, &grinder(VISA)).await.expect(410, "idempotency_key_expired");
    assert_eq!(shop.captures().await, 2);
    shop.close().await;
}

/// Runs the upkeep as the worker would, and says how many days it dropped.
async fn maintain(shop: &Shop) -> usize {
    let expiry = std::time::Duration::from_secs(72 * 3600);
    checkout::idempotency::partitions::maintain(&shop.pool, expiry).await.expect("upkeep").dropped.len()
}

#[tokio::test]
async fn a_changed_price_refuses_a_new_order_and_not_the_retry_of_an_old_one() {
    let shop = Shop::open().await;
    let key = fresh_key();
    let wrong =
        json!({"items": [{"sku": "grinder", "quantity": 1}], "total": 4300, "currency": "eur", "payment_method": VISA});
    let refused = shop.order(&key, &wrong).await;
    refused.expect(422, "validation_failed");
    assert_eq!(refused.json()["errors"][0]["pointer"], "/total");
    assert_eq!(shop.count("idempotency_records").await, 0, "the key is not burned");
    shop.order(&key, &grinder(VISA)).await.expect_order();
    // As if the grinder had cost 4300 when it was bought: under its own fingerprint the old total still gets its answer.
    shop.order(&key, &wrong).await.expect(422, "idempotency_key_reused");
    shop.close().await;
}

#[tokio::test]
async fn a_replay_is_answered_also_when_no_new_order_would_be_taken() {
    let flags = vec!["--running-max", "1"];
    let shop = Shop::open_with(Opening { gateway_in_memory: true, flags, ..Opening::default() }).await;
    let (bought, refused) = (fresh_key(), fresh_key());
    shop.order(&bought, &grinder(VISA)).await.expect_order();
    shop.fault("latency_after", 1, 2_000).await;
    let slow = shop.order_in_background(&fresh_key());
    wait_for("the slow one is under way", async || shop.captures().await == 2).await;
    assert!(shop.order(&bought, &grinder(VISA)).await.replayed);
    let overloaded = shop.order(&refused, &grinder(VISA)).await;
    overloaded.expect(503, "overloaded");
    assert!(overloaded.retry_after_s.is_some_and(|wait| (1..=3).contains(&wait)), "{overloaded:?}");
    assert_eq!(overloaded.json()["retry"], "same_key");
    assert_eq!(slow.await.unwrap().unwrap().status(), 201);
    shop.order(&refused, &grinder(VISA)).await.expect_order();
    shop.close().await;
}

#[tokio::test]
async fn bad_input_has_one_clear_answer_and_leaves_nothing_behind() {
    let shop = Shop::open().await;
    let url = format!("{}/v1/orders", shop.api_url);
    let body = grinder(VISA).to_string();
    let big = format!("{{\"x\":\"{}\"}}", "a".repeat(64 * 1024));
    let deep = "[".repeat(200) + &"]".repeat(200);
    let long_key = "k".repeat(256);
    let field = |name: &str, value: serde_json::Value| {
        let mut body = grinder(VISA);
        body[name] = value;
        body.to_string()
    };
    let json = "application/json";
    let table: Vec<(Option<&str>, &str, String, u16, &str)> = vec![
        (None, json, body.clone(), 400, "idempotency_key_missing"),
        (Some(""), json, body.clone(), 400, "idempotency_key_invalid"),
        (Some("two words"), json, body.clone(), 400, "idempotency_key_invalid"),
        (Some("\"open"), json, body.clone(), 400, "idempotency_key_invalid"),
        (Some(&long_key), json, body.clone(), 400, "idempotency_key_invalid"),
        (Some("k"), "text/plain", body.clone(), 415, "unsupported_media_type"),
        (Some("k"), "", body.clone(), 415, "unsupported_media_type"),
        (Some("k"), "application/json; charset=utf-8", "{".into(), 400, "malformed_json"),
        (Some("k"), "application/json; charset=latin1", body.clone(), 415, "unsupported_media_type"),
        (Some("k"), "application/jsonp", body.clone(), 415, "unsupported_media_type"),
        (Some("k"), json, String::new(), 400, "malformed_json"),
        (Some("k"), json, "{\"total\":1,\"total\":2}".into(), 400, "malformed_json"),
        (Some("k"), json, "{\"a\":\"\\u0000\"}".into(), 400, "malformed_json"),
        (Some("k"), json, deep, 400, "malformed_json"),
        (Some("k"), json, big, 413, "payload_too_large"),
        (Some("k"), json, "[]".into(), 422, "validation_failed"),
        (Some("k"), json, "{}".into(), 422, "validation_failed"),
        (Some("k"), json, field("total", json!(42.99)), 422, "validation_failed"),
        (Some("k"), json, field("total", json!(4299.0)), 422, "validation_failed"),
        (Some("k"), json, field("total", json!(-4299)), 422, "validation_failed"),
        (Some("k"), json, field("total", json!(1)), 422, "validation_failed"),
        (Some("k"), json, field("currency", json!("usd")), 422, "validation_failed"),
        (Some("k"), json, field("items", json!([])), 422, "validation_failed"),
        (Some("k"), json, field("items", json!([{"sku": "yacht", "quantity": 1}])), 422, "validation_failed"),
        (Some("k"), json, field("customer_id", json!(7)), 422, "validation_failed"),
    ];
    for (key, media_type, body, status, code) in table {
        let mut request = shop.http.post(&url).bearer_auth(shop.token(CUSTOMER)).body(body.clone());
        request = if media_type.is_empty() { request } else { request.header("Content-Type", media_type) };
        request = key.into_iter().fold(request, |request, key| request.header("Idempotency-Key", key));
        let answer = answer(request).await;
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{key:?} {media_type} {body:.80}");
        assert_eq!(answer.content_type.as_deref(), Some("application/problem+json"));
        assert!(answer.json()["retry"].is_string() && answer.json()["request_id"].is_string());
    }
    let two_keys = shop.http.post(&url).bearer_auth(shop.token(CUSTOMER)).header("Content-Type", json);
    let two_keys = two_keys.header("Idempotency-Key", "a").header("Idempotency-Key", "b").body(body.clone());
    answer(two_keys).await.expect(400, "idempotency_key_invalid");
    for (name, value) in [("Content-Encoding", "gzip"), ("Content-Type", "application/json")] {
        let request = shop.http.post(&url).bearer_auth(shop.token(CUSTOMER)).header("Idempotency-Key", "k");
        let request = request.header("Content-Type", json).header(name, value).body(body.clone());
        answer(request).await.expect(415, "unsupported_media_type");
    }
    for authorization in ["", "Bearer nonsense", "Basic a2V5Og=="] {
        let request = shop.http.post(&url).header("Authorization", authorization).header("Idempotency-Key", "k");
        // A body that nobody wants is read all the same, or the refusal would be lost in a reset connection.
        let padded = format!("{body}{}", " ".repeat(60_000));
        answer(request.header("Content-Type", json).body(padded)).await.expect(401, "unauthenticated");
    }
    for path in ["/v1/nothing", "/v1/orders/%FF", "/v1/orders/%2e%2e", "/v1/idempotency-keys/orders.create/%FF%00"] {
        shop.get(path).await.expect(404, "not_found");
    }
    let problem = shop.get("/v1/nothing").await.json()["type"].as_str().unwrap().to_owned();
    let (page, anchor) = problem.split_once('#').unwrap();
    let page = shop.get(page).await;
    assert_eq!(page.status, 200, "the type of a problem leads somewhere");
    assert!(page.text().contains(&format!("id=\"{anchor}\"")));
    shop.get("/v1/idempotency-keys/orders.create/two%20words").await.expect(400, "idempotency_key_invalid");
    answer(shop.http.delete(&url)).await.expect(405, "method_not_allowed");
    let allowed = shop.http.delete(&url).send().await.unwrap();
    assert_eq!(allowed.headers()["allow"], "GET,HEAD,POST");

    for table in ["idempotency_records", "orders", "charges", "outbox"] {
        assert_eq!(shop.count(table).await, 0, "{table}");
    }
    assert_eq!(shop.captures().await, 0);
    shop.order("k", &grinder(VISA)).await.expect_order();
    shop.close().await;
}
