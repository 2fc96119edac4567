//! Several at once: requests, processes, webhooks, recovery, and clients that hang up. Cases 2, 3, 4 and 10.

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::support::{Answer, CUSTOMER, Opening, Shop, answer, fresh_key, grinder, wait_for};

const VISA: &str = "pm_card_visa";

async fn order_at(shop: &Shop, url: &str, key: &str) -> Answer {
    let request = shop.http.post(format!("{url}/v1/orders")).bearer_auth(shop.token(CUSTOMER));
    answer(request.header("Idempotency-Key", key).json(&grinder(VISA))).await
}

/// What the gateway was sent and did: executions, replays and conflicts.
async fn hits(shop: &Shop) -> [u64; 3] {
    let stats = shop.stats().await;
    ["executions", "replays", "conflicts"].map(|name| stats[name].as_u64().expect("a count"))
}

#[track_caller]
fn one_is_fresh_and_the_others_wait_or_repeat_it(answers: &[Answer]) {
    let fresh: Vec<_> = answers.iter().filter(|answer| answer.status == 201 && !answer.replayed).collect();
    assert_eq!(fresh.len(), 1, "{answers:?}");
    for answer in answers.iter().filter(|answer| *answer != fresh[0]) {
        match answer.status {
            201 => assert_eq!(answer.body, fresh[0].body),
            _ => _ = answer.expect(409, "request_in_progress"),
        }
    }
}

/// The gateway's word, our own answer, and recovery that has taken the key over: all three finish one order at one moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_request_webhooks_and_recovery_finish_one_order_together() {
    let mut shop = Shop::open_with(Opening { gateway_in_memory: true, ..Opening::default() }).await;
    let key = fresh_key();
    shop.fault("latency_after", 1, 1_500).await;
    let asked = shop.order_in_background(&key);
    wait_for("the gateway has charged", async || shop.captures().await == 1).await;
    let capture = shop.ledger().await["captures"][0].clone();
    let news = |id: usize, kind: &str| {
        let metadata = json!({"checkout_key": capture["idempotency_key"]});
        let intent = json!({"object": "payment_intent", "id": capture["payment_intent"], "metadata": metadata});
        json!({"id": format!("evt_{id}"), "object": "event", "type": kind, "data": {"object": intent}})
    };
    shop.set_clock("16 seconds").await;
    shop.start_worker();
    let events: Vec<Value> = (0..12).map(|id| news(id % 8, "payment_intent.succeeded")).collect();
    let told = join_all(events.iter().map(|event| shop.deliver(event))).await;
    assert!(told.iter().all(|answer| answer.status == 200), "{told:?}");

    assert_eq!(asked.await.unwrap().unwrap().status(), 201);
    wait_for("all news are applied", async || shop.count("gateway_events WHERE outcome IS NOT NULL").await == 8).await;
    assert!(shop.order(&key, &grinder(VISA)).await.replayed);
    let written = [shop.count("orders").await, shop.count("charges").await, shop.count("outbox").await];
    assert_eq!((written, shop.captures().await), ([1, 1, 1], 1));
    shop.close().await;
}

/// Fifty first requests at two processes, each in a transaction of its own: nobody's loss is an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b03_losing_the_first_insert_race() {
    let flags = vec!["--batch-limit", "1", "--batch-lanes", "3"];
    let mut shop = Shop::open_with(Opening { gateway_in_memory: true, flags, ..Opening::default() }).await;
    let first_url = shop.api_url.clone();
    let _first = shop.replace_api();
    for round in 1..=3 {
        let key = fresh_key();
        let url = |n: usize| if n.is_multiple_of(2) { &first_url } else { &shop.api_url };
        let answers = join_all((0..50).map(|n| order_at(&shop, url(n), &key))).await;
        one_is_fresh_and_the_others_wait_or_repeat_it(&answers);
        assert_eq!((shop.captures().await, shop.count("orders").await), (round, round as i64));
    }
    shop.close().await;
}

/// The gateway ignores keys: nothing but the claim keeps a second process from charging.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b04_one_purchase_is_one_call_of_a_gateway_that_knows_no_keys() {
    let mut shop = Shop::open().await;
    let first_url = shop.api_url.clone();
    let _first = shop.replace_api();
    shop.set_gateway(&json!({"ignore_idempotency_keys": true})).await;
    shop.fault("latency_after", 1, 1_500).await;
    let key = fresh_key();
    let url = |n: usize| if n.is_multiple_of(2) { &first_url } else { &shop.api_url };
    let answers = join_all((0..20).map(|n| order_at(&shop, url(n), &key))).await;
    one_is_fresh_and_the_others_wait_or_repeat_it(&answers);
    assert_eq!(answers.iter().filter(|answer| answer.status == 409).count(), 19, "the gateway was still at it");
    for url in [&first_url, &shop.api_url] {
        assert!(order_at(&shop, url, &key).await.replayed);
    }
    assert_eq!((hits(&shop).await, shop.captures().await), ([1, 0, 0], 1));
    shop.close().await;
}

/// Clients hang up all along the way of their request, at an api with a single connection to its database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b10_a_pool_of_one_survives_clients_that_hang_up() {
    let flags = vec!["--connections", "1"];
    let shop = Shop::open_with(Opening { gateway_in_memory: true, flags, ..Opening::default() }).await;
    let (host, token) = (shop.api_url.trim_start_matches("http://"), shop.token(CUSTOMER));
    let keys: Vec<String> = (0..60).map(|_| fresh_key()).collect();
    for (place, key) in keys.iter().enumerate() {
        let body = grinder(VISA).to_string();
        let request = format!(
            "POST /v1/orders HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nIdempotency-Key: {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut phone = TcpStream::connect(host).await.unwrap();
        phone.write_all(request.as_bytes()).await.unwrap();
        for _ in 0..place * 20 {
            tokio::task::yield_now().await;
        }
        phone.set_zero_linger().unwrap();
    }
    for key in &keys {
        shop.order_until_placed(key).await;
    }
    // Seen over another connection: it is committed, not only said.
    assert_eq!((shop.count("orders").await, shop.captures().await), (60, 60));
    shop.close().await;
}
