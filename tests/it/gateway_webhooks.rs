//! The mock gateway's events and webhooks, as an endpoint meets them.
//!
//! It answers: does the news of a charge arrive when its answer did not, and can an endpoint believe it?

use checkout::mock_gateway::{Books, Settings};
use serde_json::{Value, json};

use crate::{
    gateway_receiver::{Delivery, Receiver, SECRET, delivered, listen, status},
    gateway_world::{GRINDER, World, grinder, stories},
    support::{Process, TestDatabase, wait_for},
};

stories![
    events_are_kept_with_the_change_and_name_their_cause,
    without_an_audience_nothing_is_kept,
    events_are_listed_once_page_by_page,
    a_delivery_is_signed_over_its_raw_body,
    an_endpoint_that_fails_is_told_again,
    news_arrives_although_the_answer_is_lost,
    an_event_is_given_up_after_three_days,
    an_endpoint_that_is_removed_hears_no_more,
];

async fn events_are_kept_with_the_change_and_name_their_cause(world: World) {
    let receiver = Receiver::start().await;
    listen(&world, &receiver).await;
    let paid = world.pay("k1", GRINDER).await;
    // No wait: whoever has the answer finds the event.
    let listed = world.get("/v1/events?type=payment_intent.succeeded").await.json;
    let event = &listed["data"][0];
    assert_eq!(
        (&listed["object"], &listed["has_more"], &listed["url"]),
        (&json!("list"), &json!(false), &json!("/v1/events"))
    );
    assert_eq!(event["data"]["object"], paid.json);
    assert_eq!(event["request"], json!({ "id": paid.header("request-id"), "idempotency_key": "k1" }));
    for (field, value) in
        [("object", json!("event")), ("type", json!("payment_intent.succeeded")), ("livemode", json!(false))]
    {
        assert_eq!(event[field], value, "{field}");
    }
    assert!(event["created"].as_i64().expect("a time") >= paid.json["created"].as_i64().expect("a time"));
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1));

    let declined = world.pay("k2", &grinder(&[("payment_method", "pm_card_chargeDeclined")])).await;
    let failed = world.get("/v1/events?type=payment_intent.payment_failed").await.json["data"][0].clone();
    assert_eq!(failed["data"]["object"], declined.json["error"]["payment_intent"]);
    let refunded = world.post("/v1/refunds", Some("r1"), &[("payment_intent", &paid.id())]).await;
    let gone_back = world.get("/v1/events?type=charge.refunded").await.json["data"][0].clone();
    let shown = (&gone_back["data"]["object"]["id"], &gone_back["data"]["object"]["amount_refunded"]);
    assert_eq!(shown, (&refunded.json["charge"], &json!(4299)));
    assert_eq!(gone_back["request"]["idempotency_key"], "r1");

    // Replays, refusals and what only waits are no news.
    world.pay("k1", GRINDER).await;
    world.post("/v1/refunds", Some("r2"), &[("payment_intent", &paid.id())]).await;
    world.pay("k3", &grinder(&[("confirm", "false")])).await;
    assert_eq!(world.get("/v1/events").await.json["data"].as_array().map(Vec::len), Some(3));
    delivered(&world, 3).await;
    let one = world.get(&format!("/v1/events/{}", event["id"].as_str().expect("an id"))).await.json;
    let mut as_it_was = event.clone();
    as_it_was["pending_webhooks"] = json!(0);
    assert_eq!(one, as_it_was);
    let missing = world.get("/v1/events/evt_00000000000000000000000000000000").await;
    assert_eq!((missing.status, missing.error("code")), (404, Some("resource_missing")));
}

async fn without_an_audience_nothing_is_kept(world: World) {
    world.pay("k1", GRINDER).await;
    assert_eq!(world.get("/v1/events").await.json["data"], json!([]));
    let nobody = json!({"endpoint": null, "delivered": 0, "failed_attempts": 0, "given_up": 0, "pending": 0});
    assert_eq!(status(&world).await, nobody);
    for wrong in [
        json!({"url": "ftp://localhost/", "secret": SECRET}),
        json!({"url": "nonsense", "secret": SECRET}),
        json!({"url": "http://localhost/", "secret": "whsec_"}),
        json!({"url": "http://localhost/"}),
    ] {
        assert_eq!(world.control("webhooks", wrong).await.status, 400);
    }
    assert_eq!(status(&world).await, nobody);
}

#[tokio::test]
async fn events_may_be_kept_for_readers_alone() {
    let world = World::new(Books::in_memory(), Settings { events: true, ..Settings::default() }).await;
    world.pay("k1", GRINDER).await;
    let listed = world.get("/v1/events").await.json;
    assert_eq!((listed["data"].as_array().map(Vec::len), &listed["data"][0]["pending_webhooks"]), (Some(1), &json!(0)));
    assert_eq!(status(&world).await["pending"], 0);
}

async fn events_are_listed_once_page_by_page(world: World) {
    let receiver = Receiver::start().await;
    listen(&world, &receiver).await;
    let mut keys = Vec::new();
    for serial in 0..5 {
        keys.insert(0, json!(format!("k{serial}")));
        world.pay(&format!("k{serial}"), GRINDER).await;
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = world.get(&format!("/v1/events?limit=2{after}")).await.json;
        let data = page["data"].as_array().expect("data").clone();
        seen.extend(data.iter().map(|event| event["request"]["idempotency_key"].clone()));
        if page["has_more"] == false {
            break;
        }
        after = format!("&starting_after={}", data[1]["id"].as_str().expect("an id"));
    }
    assert_eq!(seen, keys);
    world.control("clock", json!({ "advance_s": 3600 })).await;
    let now = world.get("/_mock/clock").await.json["now_s"].as_i64().expect("a time");
    world.pay("later", GRINDER).await;
    let since = world.get(&format!("/v1/events?created[gte]={}", now - 60)).await.json;
    assert_eq!(since["data"].as_array().map(Vec::len), Some(1));
    assert_eq!(since["data"][0]["request"]["idempotency_key"], "later");
    assert_eq!(world.get("/v1/events?type=customer.created").await.json["data"], json!([]));
    assert_eq!(world.get("/v1/events?kind=x").await.error("code"), Some("parameter_unknown"));
}

async fn a_delivery_is_signed_over_its_raw_body(world: World) {
    let receiver = Receiver::start().await;
    listen(&world, &receiver).await;
    // The gateway's clock does not reach into its signatures: an endpoint lives in real time.
    world.control("clock", json!({ "advance_s": 90_000 })).await;
    let paid = world.pay("k1", &grinder(&[("description", "Ünïcödé \"quoted\"")])).await;
    delivered(&world, 1).await;
    let delivery = receiver.deliveries().remove(0);
    assert!(delivery.is_signed(), "{delivery:?}");
    let now_s = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    assert!(now_s.abs_diff(delivery.signed_at_s()) < 300);
    assert_eq!(delivery.json()["data"]["object"], paid.json);
    assert_eq!(delivery.json()["pending_webhooks"], 1);
    let tampered = Delivery { body: delivery.body.iter().map(|byte| byte ^ 1).collect(), ..delivery };
    assert!(!tampered.is_signed());
}

async fn an_endpoint_that_fails_is_told_again(world: World) {
    let receiver = Receiver::start().await;
    receiver.answer(500);
    listen(&world, &receiver).await;
    let paid = world.pay("k1", GRINDER).await;
    assert_eq!(paid.status, 200);
    wait_for("it was told twice", async || receiver.deliveries().len() >= 2).await;
    let shown = status(&world).await;
    assert_eq!((&shown["delivered"], &shown["pending"]), (&json!(0), &json!(1)), "{shown}");
    receiver.answer(204);
    delivered(&world, 1).await;
    let deliveries = receiver.deliveries();
    let failed = status(&world).await["failed_attempts"].as_u64().expect("a count");
    assert_eq!(deliveries.len() as u64, failed + 1);
    assert!(deliveries.iter().all(|delivery| delivery.id() == deliveries[0].id() && delivery.is_signed()));
}

async fn news_arrives_although_the_answer_is_lost(world: World) {
    let receiver = Receiver::start().await;
    listen(&world, &receiver).await;
    world.fault("drop_after", 1).await;
    assert!(world.send("/v1/payment_intents", Some("lost"), GRINDER).await.is_err());
    delivered(&world, 1).await;
    assert_eq!(receiver.keys(), ["lost"]);
    // And before an answer that is late: the payment ends only after it was heard of.
    let late = grinder(&[("metadata[mock_fault]", "latency_after_600000")]);
    tokio::select! {
        answer = world.send("/v1/payment_intents", Some("late"), &late) => panic!("answered: {answer:?}"),
        () = delivered(&world, 2) => {}
    }
    assert_eq!(receiver.keys(), ["lost", "late"]);
}

async fn an_event_is_given_up_after_three_days(world: World) {
    let receiver = Receiver::start().await;
    receiver.answer(500);
    listen(&world, &receiver).await;
    world.pay("k1", GRINDER).await;
    wait_for("it was told", async || !receiver.deliveries().is_empty()).await;
    world.control("clock", json!({ "advance_s": 3 * 86_400 })).await;
    // Counted first, and then struck off.
    wait_for("it is given up", async || {
        let shown = status(&world).await;
        (&shown["given_up"], &shown["pending"]) == (&json!(1), &json!(0))
    })
    .await;
    assert_eq!(status(&world).await["delivered"], 0);
    receiver.answer(200);
    world.pay("k2", GRINDER).await;
    delivered(&world, 1).await;
}

async fn an_endpoint_that_is_removed_hears_no_more(world: World) {
    let receiver = Receiver::start().await;
    receiver.answer(500);
    listen(&world, &receiver).await;
    world.pay("k1", GRINDER).await;
    wait_for("it was told", async || !receiver.deliveries().is_empty()).await;
    let removed = world.client.delete(world.url("/_mock/webhooks")).send().await.expect("an answer");
    let removed: Value = removed.json().await.expect("JSON");
    assert_eq!((&removed["endpoint"], &removed["pending"]), (&json!(null), &json!(0)));
    // Another endpoint hears what happens from now on, and nothing of before.
    let other = Receiver::start().await;
    listen(&world, &other).await;
    world.pay("k2", GRINDER).await;
    delivered(&world, 1).await;
    assert_eq!(other.keys(), ["k2"]);
    assert!(!receiver.keys().contains(&"k2".to_owned()));
    // A reset forgets an endpoint that was set since the start.
    assert_eq!(world.control("reset", json!({})).await.status, 200);
    assert_eq!(status(&world).await["endpoint"], json!(null));
}

#[tokio::test]
async fn what_was_pending_is_delivered_after_a_kill() {
    let database = TestDatabase::create().await;
    let receiver = Receiver::start().await;
    receiver.answer(503);
    let environment = [
        ("DATABASE_URL", database.url.as_str()),
        ("CHECKOUT_WEBHOOK_URL", receiver.url.as_str()),
        ("CHECKOUT_WEBHOOK_SECRET", SECRET),
    ];
    let (mut gateway, url) = Process::role("gateway", &[], &environment);
    let client = crate::support::client();
    for serial in 0..5 {
        let request = client.post(format!("{url}/v1/payment_intents")).bearer_auth("sk_test_1").form(GRINDER);
        let paid = request.header("Idempotency-Key", format!("k{serial}")).send().await.expect("an answer");
        assert_eq!(paid.status(), 200);
    }
    wait_for("the endpoint was told in vain", async || !receiver.deliveries().is_empty()).await;
    gateway.kill();
    let before = receiver.deliveries().len();
    receiver.answer(200);

    let (_gateway, url) = Process::role("gateway", &[], &environment);
    wait_for("all is delivered", async || {
        let status = client.get(format!("{url}/_mock/webhooks")).send().await.expect("an answer");
        let status: Value = status.json().await.expect("JSON");
        status["delivered"] == 5 && status["pending"] == 0
    })
    .await;
    let mut keys: Vec<_> = receiver.deliveries()[before..].iter().map(Delivery::key).collect();
    keys.sort();
    assert_eq!(keys, ["k0", "k1", "k2", "k3", "k4"]);
    assert!(receiver.deliveries().iter().all(Delivery::is_signed));
}

#[test]
fn a_webhook_needs_both_halves() {
    let mut alone = Process::spawn(Process::command(&[
        "gateway",
        "--listen",
        "127.0.0.1:0",
        "--webhook-url",
        "http://localhost/hooks",
    ]));
    assert!(!alone.ended().success());
    assert!(alone.stderr().contains("--webhook-secret"), "{}", alone.stderr());
}
