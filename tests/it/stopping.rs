//! Asked to stop while somebody else hangs: what was begun is ended, what was not is left to the next one, and nothing is lost.

use std::time::Duration;

use checkout::{
    config::DatabaseArgs,
    database,
    delivery::{Next, relay::Relay},
    stop::{Signal, send},
};
use futures_util::future::join_all;
use serde_json::json;

use crate::support::{Opening, Shop, fresh_key, grinder, wait_for};

/// More than three times as many mails as are under way at once.
const ORDERS: usize = 200;
/// As many mails are under way at once.
const UNDER_WAY: u64 = 64;

/// Every event is in the log before there is a worker, whose first round then has all of them in hand.
async fn publish_everything(shop: &Shop) {
    let url = shop.database.url.clone();
    let args = DatabaseArgs { database_url: url, connections: 2, batch_limit: 1, batch_lanes: 1 };
    let pool = database::connect(&args, "test").await.expect("a pool");
    let mut relay = Relay::new(pool, Duration::from_secs(60));
    wait_for("everything is published", async || {
        relay.round().await.expect("a round") == Next::Rest && shop.count("outbox WHERE sent_at IS NULL").await == 0
    })
    .await;
    relay.stop().await.expect("its leases released");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_asked_to_stop_begins_no_mail_at_a_service_that_hangs() {
    let mut shop = Shop::open_with(Opening {
        gateway_in_memory: true,
        environment: vec![("CHECKOUT_MAIL_TIMEOUT_MS", "4000")],
        ..Opening::default()
    })
    .await;
    let keys: Vec<String> = (0..ORDERS).map(|_| fresh_key()).collect();
    join_all(keys.iter().map(|key| shop.order_until_placed(key))).await;
    publish_everything(&shop).await;

    shop.mail_fault(&json!({"name": "hang_after", "count": 2 * ORDERS})).await;
    shop.start_worker();
    let hung = async |shop: &Shop| shop.mail_stats().await["faults"]["hang_after"].as_u64().unwrap_or_default();
    wait_for("the service hangs", async || hung(&shop).await >= UNDER_WAY).await;
    let worker = shop.worker.as_mut().expect("a worker");
    let status = tokio::task::block_in_place(|| worker.stop());
    assert!(status.success(), "{status}: {}", worker.stderr());
    let begun = hung(&shop).await;
    assert!(begun < ORDERS as u64, "every mail was begun, {begun} of them, before it stopped");
    assert_eq!((shop.count("receipts").await, shop.count("parked_events").await), (0, 0));

    // Nobody has lost his turn: those that were delivered unheard of are recognised, the others are sent.
    let sent = shop.http.delete(format!("{}/_mock/faults", shop.mail_url)).send().await.expect("sent");
    assert!(sent.status().is_success());
    shop.start_worker();
    wait_for("every receipt is there", async || shop.count("receipts").await == ORDERS as i64).await;
    assert_eq!(shop.mails().await.len(), ORDERS);
    shop.close().await;
}

/// So many charges too many that the refunds, one after the other at a gateway that hangs, take longer than anybody waits.
const SURPLUS: u32 = 15;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_asked_to_stop_begins_no_refund_at_a_gateway_that_hangs() {
    let flags = vec!["--reconcile-pause-ms", "50", "--reconcile-grace-ms", "1"];
    let mut shop = Shop::open().await;
    let key = fresh_key();
    shop.order(&key, &grinder("pm_card_visa")).await.expect_order();
    let gateway_key = shop.gateway_key_of(&key).await;
    let mut surplus = Vec::new();
    for serial in 0..SURPLUS {
        surplus.push(shop.capture_under(Some(&gateway_key), 4299, &format!("surplus {serial}")).await);
    }
    shop.fault("hang_after", SURPLUS, 0).await;
    shop.start_worker_with(&flags);
    let hung = async |shop: &Shop| shop.stats().await["faults"]["hang_after"].as_u64().unwrap_or_default();
    wait_for("the gateway hangs", async || hung(&shop).await > 0).await;
    let worker = shop.worker.as_mut().expect("a worker");
    let status = tokio::task::block_in_place(|| worker.stop());
    assert!(status.success(), "{status}: {}", worker.stderr());
    let begun = hung(&shop).await;
    assert!(begun < u64::from(SURPLUS), "every refund was begun before it stopped");

    let sent = shop.http.delete(format!("{}/_mock/faults", shop.gateway_url)).send().await.expect("sent");
    assert!(sent.status().is_success());
    shop.start_worker_with(&flags);
    for intent in &surplus {
        let done = Some(("surplus".to_owned(), "refunded".to_owned()));
        wait_for("it is given back", async || shop.finding(intent).await == done).await;
        assert_eq!(shop.refunds_of(intent).await.len(), 1);
    }
    assert_eq!(shop.refunded().await.values().filter(|back| **back == 0).count(), 1, "what was bought is kept");
    shop.close().await;
}

/// A load balancer is told first, and nobody it still sends meanwhile is turned away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_that_is_asked_to_stop_says_so_before_it_stops_and_finishes_what_it_took() {
    let flags = vec!["--drain-delay-ms", "2000"];
    let mut shop = Shop::open_with(Opening { gateway_in_memory: true, flags, ..Opening::default() }).await;
    let readyz = async |shop: &Shop| {
        shop.http.get(format!("{}/readyz", shop.api_url)).send().await.map(|ready| ready.status().as_u16())
    };
    assert_eq!(readyz(&shop).await.unwrap(), 200);
    shop.fault("latency_after", 1, 3_500).await;
    let slow = shop.order_in_background(&fresh_key());
    wait_for("the gateway has charged", async || shop.captures().await == 1).await;

    assert!(send(shop.api.pid(), Signal::Terminate));
    wait_for("it says so", async || readyz(&shop).await.is_ok_and(|status| status == 503)).await;
    let livez = shop.http.get(format!("{}/livez", shop.api_url)).send().await.expect("it is still alive");
    assert_eq!(livez.status(), 200);
    shop.order(&fresh_key(), &grinder("pm_card_visa")).await.expect_order();

    wait_for("nobody is let in any more", async || readyz(&shop).await.is_err_and(|error| error.is_connect())).await;
    assert!(shop.api.is_alive(), "somebody waits for an answer");
    assert_eq!(slow.await.unwrap().expect("an answer").status(), 201);
    let status = tokio::task::block_in_place(|| shop.api.ended());
    assert!(status.success(), "{status}: {}", shop.api.stderr());
    assert!(shop.api.stderr().contains("everything that was claimed is finished"), "{}", shop.api.stderr());
    shop.restart_api();
    shop.close().await;
}

/// Whoever signals twice does not want to wait; what was claimed is finished by whoever is asked next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_an_api_at_once_and_loses_nothing() {
    for (first, second, code) in
        [(Signal::Terminate, Signal::Terminate, 143), (Signal::Terminate, Signal::Interrupt, 130)]
    {
        let flags = vec!["--lease-ms", "4000", "--answer-ms", "2000", "--gateway-budget-ms", "1900"];
        let mut shop = Shop::open_with(Opening { gateway_in_memory: true, flags, ..Opening::default() }).await;
        let key = fresh_key();
        // The answer never comes, so that a graceful end would take as long as the budget.
        shop.fault("hang_after", 2, 0).await;
        let unheard = shop.order_in_background(&key);
        wait_for("the gateway has charged", async || shop.captures().await == 1).await;
        assert!(send(shop.api.pid(), first));
        wait_for("nobody is let in any more", async || shop.http.get(&shop.api_url).send().await.is_err()).await;
        assert!(send(shop.api.pid(), second));
        let status = tokio::task::block_in_place(|| shop.api.ended());
        assert_eq!(status.code(), Some(code), "{}", shop.api.stderr());
        unheard.await.unwrap().expect_err("it ended without an answer");

        shop.restart_api();
        shop.order_until_placed(&key).await;
        assert_eq!(shop.captures().await, 1);
        shop.close().await;
    }
}
