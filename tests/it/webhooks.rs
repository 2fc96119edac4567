//! The gateway's news: believed only if signed, kept before they are acknowledged, and of use in whatever order they come.

use serde_json::{Value, json};

use crate::support::{Opening, Process, Shop, WEBHOOK_SECRET, answer, fresh_key, grinder, sign, wait_for};

const VISA: &str = "pm_card_visa";

fn with_webhooks() -> Opening {
    Opening { gateway_in_memory: true, webhooks: true, ..Opening::default() }
}

/// An event about a payment intent, as the gateway writes it.
fn event(id: &str, kind: &str, payment_intent: &str, gateway_key: &str) -> Value {
    let metadata = json!({ "checkout_key": gateway_key });
    let object = if kind.starts_with("charge.") {
        json!({"object": "charge", "id": "ch_x", "payment_intent": payment_intent, "metadata": metadata})
    } else {
        json!({"object": "payment_intent", "id": payment_intent, "metadata": metadata})
    };
    json!({"id": id, "object": "event", "type": kind, "data": {"object": object}})
}

/// The first capture's payment intent and key.
async fn captured(shop: &Shop) -> (String, String) {
    let capture = shop.ledger().await["captures"][0].clone();
    let text = |name: &str| capture[name].as_str().expect("a text").to_owned();
    (text("payment_intent"), text("idempotency_key"))
}

async fn outcome_of(shop: &Shop, event_id: &str) -> Option<String> {
    sqlx::query_scalar("SELECT outcome FROM gateway_events WHERE event_id = $1")
        .bind(event_id)
        .fetch_optional(&shop.pool)
        .await
        .unwrap()
        .flatten()
}

async fn becomes(shop: &Shop, event_id: &str, outcome: &str) {
    wait_for(&format!("{event_id} is {outcome}"), async || {
        outcome_of(shop, event_id).await.inspect(|is| assert_eq!(is, outcome)).is_some()
    })
    .await;
}

/// An order whose charge took the money and whose answer was lost, at a gateway whose search stays behind for ever.
async fn charged_and_lost(shop: &Shop) -> (String, String, String) {
    shop.set_gateway(&json!({"search_lag_ms": 1_000_000_000_u64})).await;
    shop.fault("http_500_after", 1, 0).await;
    let key = fresh_key();
    shop.order(&key, &grinder(VISA)).await.expect(504, "outcome_unknown");
    let (intent, gateway_key) = captured(shop).await;
    (key, intent, gateway_key)
}

#[tokio::test]
async fn only_what_the_gateway_signed_a_moment_ago_is_believed() {
    let shop = Shop::open().await;
    let body = event("evt_1", "payment_intent.succeeded", "pi_1", "somebody else's").to_string();
    let now_s = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
    let good = sign(WEBHOOK_SECRET, now_s, &body);
    let changed = body.replace("evt_1", "evt_2");
    for (body, signature) in [
        (&body, sign("whsec_another", now_s, &body)),
        (&changed, good.clone()),
        (&body, sign(WEBHOOK_SECRET, now_s - 400, &body)),
        (&body, sign(WEBHOOK_SECRET, now_s + 400, &body)),
        (&body, "nonsense".to_owned()),
        // A signature over something that is no event does not help before it is checked, and is checked before it is read.
        (&"{".to_owned(), good.clone()),
    ] {
        let refused = shop.deliver_signed(body, &signature).await;
        refused.expect(400, "webhook_signature_invalid");
        assert_eq!(refused.json()["retry"], "never");
    }
    let unsigned = answer(shop.http.post(format!("{}/v1/webhooks/gateway", shop.api_url)).body(body.clone())).await;
    unsigned.expect(400, "webhook_signature_invalid");
    assert_eq!(shop.count("gateway_events").await, 0, "what is not believed is not kept");

    let no_event = "[1]";
    shop.deliver_signed(no_event, &sign(WEBHOOK_SECRET, now_s, no_event)).await.expect(400, "malformed_json");
    let long = format!("{{\"id\":\"{}\"}}", "x".repeat(300_000));
    shop.deliver_signed(&long, &sign(WEBHOOK_SECRET, now_s, &long)).await.expect(413, "payload_too_large");

    // While the secret changes there are two signatures; the second time it is the same event.
    let old = sign("whsec_old", now_s, &body);
    let both = format!("{old},v1={}", good.split_once("v1=").unwrap().1);
    for _ in 0..2 {
        let received = shop.deliver_signed(&body, &both).await;
        assert_eq!((received.status, received.json()), (200, json!({"received": true})));
    }
    assert_eq!(shop.count("gateway_events").await, 1);
    let kept: String = sqlx::query_scalar("SELECT payload FROM gateway_events").fetch_one(&shop.pool).await.unwrap();
    assert_eq!(kept, body, "byte for byte");
    shop.close().await;
}

#[tokio::test]
async fn without_a_secret_nobody_is_told_anything() {
    let shop = Shop::open().await;
    let environment = [
        ("DATABASE_URL", shop.database.url.as_str()),
        ("CHECKOUT_GATEWAY_URL", shop.gateway_url.as_str()),
        ("CHECKOUT_SECRET", "a-secret-of-the-tests-0123456789abcdef"),
    ];
    let (_api, url) = Process::role("api", &[], &environment);
    let body = event("evt_1", "payment_intent.succeeded", "pi_1", "k").to_string();
    let request = shop.http.post(format!("{url}/v1/webhooks/gateway")).header("Stripe-Signature", sign("", 0, &body));
    answer(request.body(body)).await.expect(404, "not_found");
    shop.close().await;
}

/// The usual case: the gateway tells what we know, before or after its own answer.
#[tokio::test]
async fn news_of_what_is_known_change_nothing_also_when_they_overtake_the_answer() {
    let mut shop = Shop::open_with(Opening { worker: true, ..with_webhooks() }).await;
    shop.order(&fresh_key(), &grinder(VISA)).await.expect_order();
    shop.order(&fresh_key(), &grinder("pm_card_chargeDeclined")).await.expect(402, "card_declined");
    // Charged, told by webhook, and answered two seconds later.
    shop.fault("latency_after", 1, 2_000).await;
    let slow = shop.order_in_background(&fresh_key());
    wait_for("three events are kept", async || shop.count("gateway_events").await == 3).await;
    assert_eq!((shop.count("orders").await, shop.captures().await), (1, 2), "the answer is still under way");
    let placed = slow.await.unwrap().unwrap();
    assert_eq!((placed.status(), placed.headers().get("idempotent-replayed")), (201.try_into().unwrap(), None));
    wait_for("all are applied", async || shop.count("gateway_events WHERE outcome = 'already_known'").await == 3).await;
    assert_eq!((shop.count("orders").await, shop.captures().await, shop.count("charges").await), (2, 2, 3));
    assert!(shop.worker.as_mut().unwrap().stop().success());
    shop.close().await;
}

/// What a search that lags can never show, the event leads to: with the worker, and for the client that asks itself.
#[tokio::test]
async fn an_event_settles_what_the_search_does_not_show() {
    let mut shop = Shop::open_with(Opening { gateway_in_memory: true, ..Opening::default() }).await;
    let (key, intent, gateway_key) = charged_and_lost(&shop).await;
    // The gateway has recorded its failure, and its search shows nothing: no way but the event.
    shop.order(&key, &grinder(VISA)).await.expect(504, "outcome_unknown");
    shop.deliver(&event("evt_1", "payment_intent.succeeded", &intent, &gateway_key)).await;
    let placed = shop.order(&key, &grinder(VISA)).await;
    placed.expect_order();
    assert_eq!((placed.json()["charge"]["gateway_id"].as_str(), placed.replayed), (Some(&*intent), false));

    // And without the client, out of a pause of hours.
    let other = fresh_key();
    shop.fault("http_500_after", 1, 0).await;
    shop.order(&other, &grinder(VISA)).await.expect(504, "outcome_unknown");
    let late =
        "UPDATE idempotency_records SET next_attempt_at = db_clock() + interval '1 hour' WHERE state = 'unknown'";
    assert_eq!(sqlx::raw_sql(late).execute(&shop.pool).await.unwrap().rows_affected(), 1);
    let capture = shop.ledger().await["captures"][1].clone();
    shop.start_worker();
    // Twice, and the refund of something else before it: the order does not matter.
    for id in ["evt_2", "evt_2", "evt_3"] {
        let named = capture["payment_intent"].as_str().unwrap();
        let kind = if id == "evt_2" { "charge.updated" } else { "payment_intent.succeeded" };
        let told = event(id, kind, named, capture["idempotency_key"].as_str().unwrap());
        assert_eq!(shop.deliver(&told).await.status, 200);
    }
    wait_for("the worker has finished it", async || shop.state_of(&other).await == "completed").await;
    becomes(&shop, "evt_1", "already_known").await;
    assert_eq!((shop.captures().await, shop.count("orders").await), (2, 2));
    shop.close().await;
}

/// Nobody could find out, a person was to: the late event spares the person.
#[tokio::test]
async fn a_late_event_ends_a_review_and_one_that_leads_nowhere_does_not() {
    let mut shop = Shop::open_with(Opening { gateway_in_memory: true, ..Opening::default() }).await;
    let (key, intent, gateway_key) = charged_and_lost(&shop).await;
    shop.reconcile_nothing().await;
    shop.set_clock("25 hours").await;
    shop.start_worker();
    wait_for("the key needs review", async || shop.state_of(&key).await == "needs_review").await;

    // The search stays behind, the named intent does not exist: it is looked at once, and is under review again.
    shop.deliver(&event("evt_lost", "payment_intent.succeeded", "pi_nowhere", &gateway_key)).await;
    becomes(&shop, "evt_lost", "woke_recovery").await;
    wait_for("the key needs review again", async || shop.state_of(&key).await == "needs_review").await;
    shop.deliver(&event("evt_1", "payment_intent.succeeded", &intent, &gateway_key)).await;
    wait_for("the event has settled it", async || shop.state_of(&key).await == "completed").await;
    becomes(&shop, "evt_1", "woke_recovery").await;
    assert_eq!((shop.captures().await, shop.count("orders").await, shop.count("reviews").await), (1, 1, 0));
    assert!(shop.order(&key, &grinder(VISA)).await.replayed);
    shop.close().await;
}

/// The refund is heard of before the payment, and before our own answer: nobody gets an order for money that went back.
#[tokio::test]
async fn a_refund_that_is_heard_of_first_is_not_settled_as_a_payment() {
    let mut shop = Shop::open_with(Opening { gateway_in_memory: true, ..Opening::default() }).await;
    shop.fault("drop_after", 2, 0).await;
    shop.set_gateway(&json!({"search_lag_ms": 1_000_000_000_u64})).await;
    let key = fresh_key();
    shop.order(&key, &grinder(VISA)).await.expect(504, "outcome_unknown");
    let (intent, gateway_key) = captured(&shop).await;
    let refund = shop.http.post(format!("{}/v1/refunds", shop.gateway_url)).bearer_auth("sk_test_checkout");
    let refunded = refund.form(&[("payment_intent", &*intent)]).send().await.unwrap();
    assert!(refunded.status().is_success());
    shop.deliver(&event("evt_refunded", "charge.refunded", &intent, &gateway_key)).await;
    shop.deliver(&event("evt_succeeded", "payment_intent.succeeded", &intent, &gateway_key)).await;
    shop.start_worker();
    // The same send again brings the recorded success; the payment itself says that the money is back.
    wait_for("it is settled", async || shop.state_of(&key).await == "failed").await;
    let told = shop.order(&key, &grinder(VISA)).await;
    told.expect(402, "card_declined");
    assert_eq!(told.json()["decline_code"], "refunded");
    for id in ["evt_refunded", "evt_succeeded"] {
        wait_for("it is applied", async || outcome_of(&shop, id).await.is_some()).await;
    }
    assert_eq!((shop.count("orders").await, shop.captures().await), (0, 1));
    shop.close().await;
}

/// It is for nobody here, or for nobody yet.
#[tokio::test]
async fn events_without_a_record_stay_evidence_for_a_claim_that_comes_later() {
    let shop = Shop::open_with(Opening { worker: true, gateway_in_memory: true, ..Opening::default() }).await;
    let (key, intent, gateway_key) = charged_and_lost(&shop).await;
    // As after a restore: the gateway knows the charge, and nobody here knows the key.
    for table in ["idempotency_records", "gateway_events"] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("DELETE FROM {table}"))).execute(&shop.pool).await.unwrap();
    }
    shop.deliver(&event("evt_foreign", "payment_intent.succeeded", &intent, "order-17")).await;
    shop.deliver(&json!({"id": "evt_other", "type": "customer.created", "data": {"object": {"object": "customer"}}}))
        .await;
    shop.deliver(&event("evt_nobody", "payment_intent.succeeded", &intent, &gateway_key)).await;
    for (id, outcome) in [("evt_foreign", "not_ours"), ("evt_other", "not_ours"), ("evt_nobody", "unmatched")] {
        becomes(&shop, id, outcome).await;
    }
    assert_eq!(shop.count("orders").await, 0, "nothing is made of an event alone");
    // A day later the gateway has forgotten the key: what is sent now would be charged anew.
    shop.advance_gateway_clock(26 * 3600).await;
    shop.order(&key, &grinder(VISA)).await.expect_order();
    assert_eq!((shop.captures().await, shop.count("orders").await), (1, 1));
    shop.close().await;
}

/// Evidence is kept for a month after something was made of it, and as long as it takes before.
#[tokio::test]
async fn old_events_are_forgotten_unless_they_still_wait() {
    let shop = Shop::open().await;
    for serial in 0..4 {
        shop.deliver(&event(&format!("evt_{serial}"), "payment_intent.succeeded", "pi_1", "somebody else's")).await;
    }
    let ages = "UPDATE gateway_events SET outcome = 'not_ours', applied_at = db_clock() - interval '29 days' WHERE event_id <> 'evt_0';
                UPDATE gateway_events SET applied_at = db_clock() - interval '31 days' WHERE event_id = 'evt_1';
                UPDATE gateway_events SET received_at = db_clock() - interval '31 days'";
    sqlx::raw_sql(ages).execute(&shop.pool).await.unwrap();
    assert_eq!(checkout::checkout::evidence::forget_old(&shop.pool).await.unwrap(), 1);
    assert_eq!((outcome_of(&shop, "evt_1").await, shop.count("gateway_events").await), (None, 3));
    shop.close().await;
}

/// Under fire: every delivery faulty in some way, half of the answers lost, and each purchase once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_come_twice_late_wrong_and_never_beside_lost_answers_double_nothing() {
    let shop = Shop::open_with(Opening { worker: true, ..with_webhooks() }).await;
    shop.set_gateway(&json!({"search_lag_ms": 1_000_000_000_u64})).await;
    for (name, probability, latency_ms) in [
        ("webhook_duplicate", 0.3, None),
        ("webhook_bad_signature", 0.2, None),
        ("webhook_delay", 0.2, Some(700)),
        ("webhook_drop", 0.1, None),
        ("drop_after", 0.4, None),
    ] {
        let mut body = json!({"name": name, "probability": probability});
        if let Some(latency_ms) = latency_ms {
            body["latency_ms"] = json!(latency_ms);
        }
        let set = shop.http.post(format!("{}/_mock/faults", shop.gateway_url)).json(&body).send().await.unwrap();
        assert!(set.status().is_success(), "{}", set.text().await.unwrap());
    }
    let keys: Vec<String> = (0..60).map(|_| fresh_key()).collect();
    futures_util::future::join_all(keys.iter().map(|key| shop.order_until_placed(key))).await;
    assert_eq!((shop.captures().await, shop.count("orders").await), (60, 60));
    assert!(shop.count("gateway_events").await > 0);
    shop.close().await;
}
