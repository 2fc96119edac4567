//! Faults that strike the news and not the payment: each fires, is counted, and looks from outside as it does in the wild.

use checkout::mock_gateway::{Books, Endpoint, Settings};
use serde_json::{Value, json};

use crate::{
    gateway_receiver::{Delivery, Receiver, SECRET, listen, status},
    gateway_world::{GRINDER, World, grinder},
    support::wait_for,
};

/// A world whose endpoint heard the news of three payments, the first of which met a fault.
async fn three_payments_with(fault: Value) -> (World, Receiver) {
    let (world, receiver) = (World::in_memory().await, Receiver::start().await);
    listen(&world, &receiver).await;
    let set = world.control("faults", fault).await;
    assert_eq!(set.status, 200, "{}", set.text);
    // One after the other, so that what is out of order is so because of the fault.
    world.pay("k1", GRINDER).await;
    wait_for("the event met its fate", async || {
        world.get("/_mock/faults").await.json["webhooks"]["queue"] == json!([])
    })
    .await;
    for key in ["k2", "k3"] {
        world.pay(key, GRINDER).await;
        wait_for("it arrived", async || receiver.keys().iter().any(|heard| heard == key)).await;
    }
    wait_for("all is delivered", async || status(&world).await["pending"] == 0).await;
    (world, receiver)
}

async fn fired(world: &World, name: &str) -> Value {
    world.stats().await["faults"][name].clone()
}

#[tokio::test]
async fn a_dropped_event_stays_lost() {
    let (world, receiver) = three_payments_with(json!({ "name": "webhook_drop" })).await;
    assert_eq!(receiver.keys(), ["k2", "k3"]);
    assert_eq!((fired(&world, "webhook_drop").await, world.captures().await), (json!(1), 3));
    // Lost on its way, not in the books.
    assert_eq!(world.get("/v1/events").await.json["data"].as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn a_duplicated_event_comes_twice() {
    let (world, receiver) = three_payments_with(json!({ "name": "webhook_duplicate" })).await;
    let mut keys = receiver.keys();
    keys.sort();
    assert_eq!(keys, ["k1", "k1", "k2", "k3"]);
    assert_eq!(fired(&world, "webhook_duplicate").await, 1);
}

#[tokio::test]
async fn a_delayed_event_comes_late() {
    let fault = json!({ "name": "webhook_delay", "latency_ms": 3000 });
    let (world, receiver) = three_payments_with(fault).await;
    assert_eq!(receiver.keys(), ["k2", "k3", "k1"]);
    assert_eq!(fired(&world, "webhook_delay").await, 1);
}

#[tokio::test]
async fn a_held_event_is_overtaken_by_the_next() {
    let (world, receiver) = three_payments_with(json!({ "name": "webhook_reorder" })).await;
    let keys = receiver.keys();
    assert_eq!((keys.len(), &*keys[0]), (3, "k2"), "{keys:?}");
    assert_eq!(fired(&world, "webhook_reorder").await, 1);
}

#[tokio::test]
async fn a_wrong_signature_comes_once_and_then_a_good_one() {
    let (world, receiver) = three_payments_with(json!({ "name": "webhook_bad_signature" })).await;
    let first: Vec<_> = receiver.deliveries().into_iter().filter(|delivery| delivery.key() == "k1").collect();
    assert_eq!(first.iter().map(Delivery::is_signed).collect::<Vec<_>>(), [false, true]);
    assert!(receiver.deliveries().iter().all(|delivery| delivery.key() == "k1" || delivery.is_signed()));
    assert_eq!(fired(&world, "webhook_bad_signature").await, 1);
}

#[tokio::test]
async fn webhook_faults_come_by_chance_too_and_requests_draw_their_own() {
    let receiver = Receiver::start().await;
    let settings = Settings {
        faults: vec!["webhook_drop:0.5".into(), "http_503_before:0.5".into()],
        webhook: Some(Endpoint::new(&receiver.url, SECRET).expect("an endpoint")),
        ..Settings::default()
    };
    let world = World::new(Books::in_memory(), settings).await;
    for serial in 0..40 {
        let key = format!("k{serial}");
        wait_for("it is taken", async || world.pay(&key, GRINDER).await.status == 200).await;
    }
    wait_for("all met their fate", async || status(&world).await["pending"] == 0).await;
    let dropped = fired(&world, "webhook_drop").await.as_u64().expect("a count");
    assert!((8..=32).contains(&dropped), "{dropped}");
    assert_eq!(receiver.deliveries().len() as u64 + dropped, 40);
    let asked = world.pay("asked", &grinder(&[("metadata[mock_fault]", "webhook_drop")])).await;
    assert_eq!(asked.status, 400, "no request meets a fault of events");
}
