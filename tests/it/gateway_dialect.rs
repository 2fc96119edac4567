//! The mock gateway's dialect and its keys, as a client meets them.
//!
//! It answers: would a client of the real thing be at home here?

use checkout::mock_gateway::{Books, Settings};
use serde_json::json;

use crate::{
    gateway_world::{GRINDER, World, grinder, read, stories},
    support::wait_for,
};

stories![
    a_payment_succeeds_and_can_be_looked_up_in_every_way,
    the_same_key_replays_the_same_bytes,
    a_key_means_what_was_sent_not_how_it_was_written,
    a_key_refuses_other_parameters_and_other_endpoints,
    a_decline_is_recorded_and_replayed,
    every_test_card_says_what_its_name_says,
    a_request_that_fails_validation_does_not_burn_its_key,
    a_charge_asked_for_as_a_whole_is_shown_and_replayed_so,
    a_key_past_its_time_executes_again,
    two_steps_create_and_confirm,
    a_cancelled_intent_takes_no_money,
    search_may_lag_behind_the_books,
    the_ledger_streams_many_captures_and_finds_one_reference,
    concurrent_use_of_a_key_executes_once,
    a_reset_empties_the_books,
    two_confirmations_at_once_move_the_money_once,
];

async fn a_payment_succeeds_and_can_be_looked_up_in_every_way(world: World) {
    let paid = world.pay("k1", GRINDER).await;
    assert_eq!(paid.status, 200, "{}", paid.text);
    assert!(paid.header("request-id").is_some_and(|id| id.starts_with("req_")));
    assert_eq!(paid.header("idempotency-key"), Some("k1"));
    assert_eq!(paid.header("idempotent-replayed"), None);
    for (field, value) in [
        ("object", json!("payment_intent")),
        ("amount", json!(4299)),
        ("amount_capturable", json!(0)),
        ("amount_received", json!(4299)),
        ("capture_method", json!("automatic")),
        ("confirmation_method", json!("automatic")),
        ("currency", json!("eur")),
        ("livemode", json!(false)),
        ("metadata", json!({ "order_id": "order-1" })),
        ("payment_method", json!("pm_card_visa")),
        ("payment_method_types", json!(["card"])),
        ("last_payment_error", json!(null)),
        ("status", json!("succeeded")),
    ] {
        assert_eq!(paid.json[field], value, "{field}");
    }
    let again = world.get(&format!("/v1/payment_intents/{}", paid.id())).await;
    assert_eq!(again.text, paid.text);

    let charge_id = paid.json["latest_charge"].as_str().expect("a charge");
    let charge = world.get(&format!("/v1/charges/{charge_id}")).await;
    for (field, value) in [
        ("object", json!("charge")),
        ("amount", json!(4299)),
        ("amount_captured", json!(4299)),
        ("amount_refunded", json!(0)),
        ("captured", json!(true)),
        ("disputed", json!(false)),
        ("failure_code", json!(null)),
        ("paid", json!(true)),
        ("payment_intent", json!(paid.id())),
        ("refunded", json!(false)),
        ("status", json!("succeeded")),
    ] {
        assert_eq!(charge.json[field], value, "{field}");
    }
    assert!(charge.json["billing_details"].is_object());
    let charges = world.get(&format!("/v1/charges?payment_intent={}", paid.id())).await;
    assert_eq!(charges.json["data"], json!([charge.json]));

    let found = world.get("/v1/payment_intents/search?query=metadata%5B%27order_id%27%5D%3A%27order-1%27").await;
    assert_eq!(found.json["object"], "search_result");
    assert_eq!(found.json["data"], json!([paid.json]));
    assert_eq!(found.json["next_page"], json!(null));
    let listed = world.get("/v1/payment_intents?limit=3").await;
    assert_eq!(
        listed.json,
        json!({
            "object": "list", "data": [paid.json], "has_more": false, "url": "/v1/payment_intents"
        })
    );
    let missing = world.get("/v1/payment_intents/pi_nobody").await;
    assert_eq!((missing.status, missing.error("code")), (404, Some("resource_missing")));
    let missing = world.get("/v1/charges/ch_00000000000000000000000000000000").await;
    assert_eq!((missing.status, missing.error("code")), (404, Some("resource_missing")));
}

async fn the_same_key_replays_the_same_bytes(world: World) {
    let first = world.pay("k1", GRINDER).await;
    let second = world.pay("k1", GRINDER).await;
    assert_eq!((second.status, &second.text), (200, &first.text));
    assert_eq!(second.header("idempotent-replayed"), Some("true"));
    assert_eq!(second.header("original-request"), first.header("request-id"));
    assert_ne!(second.header("request-id"), first.header("request-id"));
    let ledger = world.ledger().await;
    let captures = &ledger["captures"];
    assert_eq!((&ledger["count"], &ledger["amount"]), (&json!(1), &json!(4299)));
    assert_eq!(captures[0]["payment_intent"], first.json["id"]);
    assert_eq!(captures[0]["idempotency_key"], "k1");
    assert_eq!(captures[0]["reference"], "order-1");
    assert_eq!((&captures[0]["executions"], &captures[0]["replays"]), (&json!(1), &json!(1)));
    assert_eq!(captures[0]["created"], first.json["created"]);
    let stats = world.stats().await;
    assert_eq!((&stats["executions"], &stats["replays"]), (&json!(1), &json!(1)));
}

async fn a_key_means_what_was_sent_not_how_it_was_written(world: World) {
    let bodies = [
        "amount=100&currency=eur&payment_method=pm_card_visa&confirm=true&metadata[note]=two+cups%20%C3%A9",
        "metadata%5Bnote%5D=two%20cups+%c3%a9&confirm=true&payment_method=pm_card_visa&currency=eur&amount=100",
    ];
    let mut answers = Vec::new();
    for body in bodies {
        let request = world.client.post(world.url("/v1/payment_intents")).basic_auth("sk_test_1", Some(""));
        let request = request.header("Content-Type", "application/x-www-form-urlencoded");
        let request = request.header("Idempotency-Key", "k").header("Stripe-Version", "2026-10-28.endive");
        answers.push(read(request.body(body).send().await.expect("an answer")).await.expect("a whole answer"));
    }
    assert_eq!(answers[0].status, 200, "{}", answers[0].text);
    assert_eq!(answers[0].json["metadata"]["note"], "two cups é");
    assert_eq!(answers[0].header("stripe-version"), Some("2026-10-28.endive"));
    assert_eq!(answers[1].text, answers[0].text);
    assert_eq!(answers[1].header("idempotent-replayed"), Some("true"));
}

async fn a_key_refuses_other_parameters_and_other_endpoints(world: World) {
    let paid = world.pay("k1", GRINDER).await;
    let other = world.pay("k1", &grinder(&[("amount", "1")])).await;
    assert_eq!((other.status, other.error("type"), other.error("code")), (400, Some("idempotency_error"), None));
    assert!(other.error("message").is_some_and(|message| message.contains("same parameters")));
    let confirm = format!("/v1/payment_intents/{}/confirm", paid.id());
    let elsewhere = world.post(&confirm, Some("k1"), &[]).await;
    assert_eq!((elsewhere.status, elsewhere.error("type")), (400, Some("idempotency_error")));
    assert!(elsewhere.error("message").is_some_and(|message| message.contains("same endpoint")));
    assert_eq!(world.captures().await, 1);
    assert_eq!(world.stats().await["mismatches"], 2);
}

async fn a_decline_is_recorded_and_replayed(world: World) {
    let form = grinder(&[("payment_method", "pm_card_visa_chargeDeclinedInsufficientFunds")]);
    let first = world.pay("k1", &form).await;
    assert_eq!((first.status, first.error("type")), (402, Some("card_error")));
    assert_eq!((first.error("code"), first.error("decline_code")), (Some("card_declined"), Some("insufficient_funds")));
    let intent = &first.json["error"]["payment_intent"];
    assert_eq!(intent["status"], "requires_payment_method");
    assert_eq!(intent["amount_received"], 0);
    assert_eq!(intent["last_payment_error"]["decline_code"], "insufficient_funds");
    let second = world.pay("k1", &form).await;
    assert_eq!((second.status, &second.text), (402, &first.text));
    assert_eq!(second.header("idempotent-replayed"), Some("true"));
    let id = intent["id"].as_str().expect("an id");
    let charges = world.get(&format!("/v1/charges?payment_intent={id}")).await;
    assert_eq!(charges.json["data"].as_array().map(Vec::len), Some(1), "a replay makes no charge");
    assert_eq!(charges.json["data"][0]["status"], "failed");
    assert_eq!(charges.json["data"][0]["failure_code"], "card_declined");
    assert_eq!(world.captures().await, 0);
}

async fn every_test_card_says_what_its_name_says(world: World) {
    let declines = [
        ("pm_card_chargeDeclined", "card_declined", "generic_decline"),
        ("pm_card_visa_chargeDeclined", "card_declined", "generic_decline"),
        ("pm_card_visa_chargeDeclinedLostCard", "card_declined", "lost_card"),
        ("pm_card_visa_chargeDeclinedStolenCard", "card_declined", "stolen_card"),
        ("pm_card_chargeDeclinedExpiredCard", "expired_card", "expired_card"),
        ("pm_card_chargeDeclinedIncorrectCvc", "incorrect_cvc", "incorrect_cvc"),
        ("pm_card_chargeDeclinedProcessingError", "processing_error", "processing_error"),
    ];
    for (card, code, decline_code) in declines {
        let answer = world.pay(card, &grinder(&[("payment_method", card)])).await;
        let said = (answer.status, answer.error("code"), answer.error("decline_code"));
        assert_eq!(said, (402, Some(code), Some(decline_code)), "{card}");
    }
    let challenged = world.pay("c", &grinder(&[("payment_method", "pm_card_authenticationRequired")])).await;
    assert_eq!((challenged.status, &challenged.json["status"]), (200, &json!("requires_action")));
    assert!(challenged.json["next_action"].is_object());
    let unknown = world.pay("u", &grinder(&[("payment_method", "pm_card_unheardOf")])).await;
    let said = (unknown.status, unknown.error("code"), unknown.error("param"));
    assert_eq!(said, (400, Some("resource_missing"), Some("payment_method")));
    assert_eq!(world.captures().await, 0);
    assert_eq!(world.pay("m", &grinder(&[("payment_method", "pm_card_mastercard")])).await.status, 200);
    assert_eq!(world.captures().await, 1);
}

async fn a_request_that_fails_validation_does_not_burn_its_key(world: World) {
    let wrong = [
        (grinder(&[("amount", "0")]), "parameter_invalid_integer", "amount"),
        (grinder(&[("amount", "12.5")]), "parameter_invalid_integer", "amount"),
        (grinder(&[("amount", "100000000")]), "amount_too_large", "amount"),
        (grinder(&[("currency", "euro")]), "parameter_invalid", "currency"),
        (grinder(&[("colour", "red")]), "parameter_unknown", "colour"),
        (grinder(&[("confirm", "yes")]), "parameter_invalid", "confirm"),
        (grinder(&[("capture_method", "manual")]), "parameter_invalid", "capture_method"),
        (grinder(&[("expand[0]", "customer")]), "parameter_invalid", "expand"),
        (GRINDER[1..].to_vec(), "parameter_missing", "amount"),
    ];
    for (form, code, param) in wrong {
        let answer = world.pay("k1", &form).await;
        let said = (answer.status, answer.error("type"), answer.error("code"), answer.error("param"));
        assert_eq!(said, (400, Some("invalid_request_error"), Some(code), Some(param)));
    }
    let accepted = grinder(&[
        ("automatic_payment_methods[enabled]", "true"),
        ("capture_method", "automatic"),
        ("confirmation_method", "automatic"),
        ("payment_method_types[0]", "card"),
        ("receipt_email", "a@example.org"),
        ("statement_descriptor_suffix", "GRIND"),
        ("description", "one grinder"),
    ]);
    let paid = world.pay("k1", &accepted).await;
    assert_eq!((paid.status, &paid.json["description"]), (200, &json!("one grinder")), "{}", paid.text);
    let long = world.pay(&"k".repeat(256), GRINDER).await;
    assert_eq!((long.status, long.error("type")), (400, Some("invalid_request_error")));
    assert_eq!(world.pay(&"k".repeat(255), GRINDER).await.status, 200);
}

async fn a_charge_asked_for_as_a_whole_is_shown_and_replayed_so(world: World) {
    let whole = grinder(&[("expand[0]", "latest_charge")]);
    let paid = world.pay("k1", &whole).await;
    let charge = &paid.json["latest_charge"];
    assert_eq!((&charge["object"], &charge["amount_captured"]), (&json!("charge"), &json!(4299)), "{}", paid.text);
    // What is replayed is what was answered, whatever became of the charge.
    let charge_id = charge["id"].as_str().expect("an id");
    assert_eq!(world.post("/v1/refunds", Some("r"), &[("charge", charge_id)]).await.status, 200);
    assert_eq!(world.pay("k1", &whole).await.text, paid.text);
    let bare = world.pay("k1", GRINDER).await;
    assert_eq!((bare.status, bare.error("type")), (400, Some("idempotency_error")), "it is another request");

    let declined = grinder(&[("payment_method", "pm_card_chargeDeclined")]);
    let declined = world.pay("k2", &declined).await.json["error"]["payment_intent"]["id"].clone();
    let cancel = format!("/v1/payment_intents/{}/cancel", declined.as_str().expect("an id"));
    let cancelled = world.post(&cancel, Some("k3"), &[("expand[]", "latest_charge")]).await;
    assert_eq!(cancelled.json["latest_charge"]["status"], "failed", "of an earlier request: {}", cancelled.text);
}

async fn a_key_past_its_time_executes_again(world: World) {
    let first = world.pay("k1", GRINDER).await;
    world.control("clock", json!({ "advance_s": 24 * 3600 - 60 })).await;
    assert_eq!(world.pay("k1", GRINDER).await.id(), first.id());
    world.control("clock", json!({ "advance_s": 61 })).await;
    let again = world.pay("k1", GRINDER).await;
    assert_ne!(again.id(), first.id());
    assert_eq!(again.header("idempotent-replayed"), None);
    let ledger = world.ledger().await;
    assert_eq!(ledger["count"], 2);
    for capture in ledger["captures"].as_array().expect("captures") {
        assert_eq!((&capture["executions"], &capture["replays"]), (&json!(2), &json!(1)));
    }
    world.control("settings", json!({ "key_ttl_s": 3 })).await;
    world.control("clock", json!({ "advance_s": 4 })).await;
    assert_ne!(world.pay("k1", GRINDER).await.id(), again.id());
}

async fn two_steps_create_and_confirm(world: World) {
    let bare = world.pay("k1", &[("amount", "890"), ("currency", "eur")]).await;
    assert_eq!(bare.json["status"], "requires_payment_method");
    let confirm = format!("/v1/payment_intents/{}/confirm", bare.id());
    let nothing = world.post(&confirm, Some("k2"), &[]).await;
    assert_eq!((nothing.status, nothing.error("code")), (400, Some("payment_intent_unexpected_state")));
    let declined = world.post(&confirm, Some("k3"), &[("payment_method", "pm_card_chargeDeclined")]).await;
    assert_eq!(declined.status, 402);
    let paid = world.post(&confirm, Some("k4"), &[("payment_method", "pm_card_visa")]).await;
    assert_eq!((paid.status, &paid.json["status"]), (200, &json!("succeeded")), "{}", paid.text);
    let replayed = world.post(&confirm, Some("k4"), &[("payment_method", "pm_card_visa")]).await;
    assert_eq!(replayed.text, paid.text);
    let twice = world.post(&confirm, Some("k5"), &[("payment_method", "pm_card_visa")]).await;
    assert_eq!((twice.status, twice.error("code")), (400, Some("payment_intent_unexpected_state")));
    let charges = world.get(&format!("/v1/charges?payment_intent={}", paid.id())).await;
    assert_eq!(charges.json["data"][0]["id"], paid.json["latest_charge"]);
    assert_eq!(charges.json["data"].as_array().map(Vec::len), Some(2));
    assert_eq!(world.ledger().await["captures"][0]["idempotency_key"], "k4");

    let ready = world.pay("k6", &[("amount", "890"), ("currency", "EUR"), ("payment_method", "pm_card_visa")]).await;
    assert_eq!((&ready.json["status"], &ready.json["currency"]), (&json!("requires_confirmation"), &json!("eur")));
    let paid = world.post(&format!("/v1/payment_intents/{}/confirm", ready.id()), None, &[]).await;
    assert_eq!(paid.json["status"], "succeeded");
    assert_eq!(world.ledger().await["captures"][1]["idempotency_key"], json!(null));
}

async fn a_cancelled_intent_takes_no_money(world: World) {
    let ready = world.pay("k1", &[("amount", "890"), ("currency", "eur"), ("payment_method", "pm_card_visa")]).await;
    let path = format!("/v1/payment_intents/{}", ready.id());
    let cancelled = world.post(&format!("{path}/cancel"), Some("k2"), &[]).await;
    assert_eq!((cancelled.status, &cancelled.json["status"]), (200, &json!("canceled")), "{}", cancelled.text);
    assert!(cancelled.json["canceled_at"].is_i64());
    let confirmed = world.post(&format!("{path}/confirm"), Some("k3"), &[]).await;
    assert_eq!((confirmed.status, confirmed.error("code")), (400, Some("payment_intent_unexpected_state")));
    assert_eq!(world.captures().await, 0);
    // The record of the first answer does not change with the intent.
    let first = world.pay("k1", &[("amount", "890"), ("currency", "eur"), ("payment_method", "pm_card_visa")]).await;
    assert_eq!(first.text, ready.text);
}

async fn search_may_lag_behind_the_books(world: World) {
    world.control("settings", json!({ "search_lag_ms": 60_000 })).await;
    let paid = world.pay("k1", GRINDER).await;
    let search = "/v1/payment_intents/search?query=metadata['order_id']:'order-1'";
    assert_eq!(world.get(search).await.json["data"], json!([]));
    assert_eq!(world.get("/v1/payment_intents").await.json["data"][0]["id"], paid.json["id"]);
    world.control("clock", json!({ "advance_s": 61 })).await;
    assert_eq!(world.get(search).await.json["data"][0]["id"], paid.json["id"]);
    let wrong = world.get("/v1/payment_intents/search?query=amount>5").await;
    assert_eq!((wrong.status, wrong.error("param")), (400, Some("query")));
}

async fn the_ledger_streams_many_captures_and_finds_one_reference(world: World) {
    for serial in 0..25 {
        let reference = format!("order-{}", serial % 5);
        let form = grinder(&[("metadata[order_id]", "x"), ("metadata[reference]", &reference)]);
        world.pay(&format!("k{serial}"), &form).await;
    }
    let all = world.ledger().await;
    assert_eq!((&all["count"], &all["amount"]), (&json!(25), &json!(25 * 4299)));
    assert_eq!(all["captures"].as_array().map(Vec::len), Some(25));
    let some = world.get("/_mock/ledger?reference=order-3").await.json;
    assert_eq!((&some["count"], &some["captures"][0]["reference"]), (&json!(5), &json!("order-3")));
    assert_eq!(world.get("/_mock/ledger?reference=x").await.json["count"], 0, "a reference outranks an order id");
    let none = world.get("/_mock/ledger?reference=nobody").await;
    assert_eq!(none.json, json!({ "captures": [], "count": 0, "amount": 0 }));
}

async fn concurrent_use_of_a_key_executes_once(world: World) {
    world.control("faults", json!({ "name": "latency_before", "latency_ms": 1500 })).await;
    let (first, second) = tokio::join!(world.pay("k1", GRINDER), async {
        // The fault's counter says when the first request holds the key.
        wait_for("the first is under way", async || world.stats().await["faults"]["latency_before"] == 1).await;
        world.pay("k1", GRINDER).await
    });
    assert_eq!(first.status, 200);
    let said = (second.status, second.error("type"), second.error("code"));
    assert_eq!(said, (409, Some("invalid_request_error"), Some("idempotency_key_in_use")));
    assert_eq!(world.pay("k1", GRINDER).await.text, first.text);
    let many = (0..50).map(|_| world.pay("k2", GRINDER));
    let answers = futures_util::future::join_all(many).await;
    assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 409)));
    assert_eq!(world.captures().await, 2);
}

async fn a_reset_empties_the_books(world: World) {
    let first = world.pay("k1", GRINDER).await;
    world.fault("drop_after", 3).await;
    assert_eq!(world.control("reset", json!(null)).await.status, 200);
    assert_eq!(world.captures().await, 0);
    assert_eq!(world.get("/_mock/faults").await.json["queue"], json!([]));
    assert_eq!(world.stats().await["executions"], 0);
    assert_eq!(world.get(&format!("/v1/payment_intents/{}", first.id())).await.status, 404);
    assert_ne!(world.pay("k1", GRINDER).await.id(), first.id());
}

async fn two_confirmations_at_once_move_the_money_once(world: World) {
    let ready = world.pay("k", &[("amount", "890"), ("currency", "eur"), ("payment_method", "pm_card_visa")]).await;
    let path = format!("/v1/payment_intents/{}/confirm", ready.id());
    let keys: Vec<String> = (0..20).map(|serial| format!("c{serial}")).collect();
    let answers = futures_util::future::join_all(keys.iter().map(|key| world.post(&path, Some(key), &[]))).await;
    let paid = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!((paid, world.captures().await), (1, 1));
    for refused in answers.iter().filter(|answer| answer.status != 200) {
        match refused.status {
            400 => assert_eq!(refused.error("code"), Some("payment_intent_unexpected_state")),
            429 => {
                assert_eq!(refused.error("code"), Some("lock_timeout"));
                assert_eq!(refused.header("stripe-should-retry"), Some("true"));
            }
            other => panic!("{other}: {}", refused.text),
        }
    }
}

#[tokio::test]
async fn whatever_fails_fails_in_the_error_envelope() {
    let world = World::in_memory().await;
    let url = world.url("/v1/payment_intents");
    let client = &world.client;
    let requests = [
        (401, client.post(&url).form(GRINDER)),
        (401, client.post(&url).bearer_auth("sk_live_1").form(GRINDER)),
        (401, client.post(&url).basic_auth("sk_live_1", Some("")).form(GRINDER)),
        (403, client.get(&url).bearer_auth("sk_test_1").header("Stripe-Account", "acct_1")),
        (404, client.get(world.url("/v1/customers")).bearer_auth("sk_test_1")),
        (404, client.get(world.url("/_mock/nothing"))),
        (405, client.delete(&url).bearer_auth("sk_test_1")),
        (405, client.get(format!("{url}/pi_1/confirm")).bearer_auth("sk_test_1")),
        (405, client.put(world.url("/_mock/faults"))),
        (413, client.post(&url).bearer_auth("sk_test_1").body("x".repeat(70_000))),
        (400, client.post(&url).bearer_auth("sk_test_1").json(&json!({ "amount": 1 }))),
        (400, client.post(&url).bearer_auth("sk_test_1").body("amount=1&amount=2&currency=eur")),
        (400, client.post(world.url("/_mock/faults")).body("{")),
        (400, client.post(world.url("/_mock/faults")).json(&json!({ "name": "earthquake" }))),
        (400, client.post(world.url("/_mock/faults")).json(&json!({ "name": "drop_after", "probability": 1.5 }))),
        (400, client.post(world.url("/_mock/faults")).json(&json!({ "name": "drop_after", "count": 0 }))),
        (400, client.post(world.url("/_mock/clock")).json(&json!({ "advance_s": -5 }))),
    ];
    for (status, request) in requests {
        let answer = read(request.send().await.expect("an answer")).await.expect("a whole answer");
        assert_eq!(answer.status, status, "{}", answer.text);
        assert!(answer.error("type").is_some() && answer.error("message").is_some(), "{}", answer.text);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert!(answer.header("request-id").is_some());
    }
}

#[tokio::test]
async fn a_gateway_that_ignores_keys_charges_twice() {
    let settings = Settings { ignore_idempotency_keys: true, ..Settings::default() };
    let world = World::new(Books::in_memory(), settings).await;
    let (first, second) = (world.pay("k1", GRINDER).await, world.pay("k1", GRINDER).await);
    assert_ne!(first.id(), second.id());
    let ledger = world.ledger().await;
    assert_eq!((&ledger["count"], &ledger["captures"][0]["executions"]), (&json!(2), &json!(2)));
}
