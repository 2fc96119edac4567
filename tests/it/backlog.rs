//! What happens after the order may stand still while orders are taken. Then it is visible how much waits, and when the other
//! side is back everything drains: one posting and one mail per order.

use std::collections::HashMap;

use checkout::delivery::health::Health;
use futures_util::{StreamExt, stream};

use crate::support::{Opening, Shop, fresh_key, wait_for};

const ORDERS: usize = 300;
/// Phones at once.
const PHONES: usize = 16;

/// The other companies keep their books through a kill.
fn durable() -> Opening {
    Opening { worker: true, ..Opening::default() }
}

async fn place(shop: &Shop, orders: usize) {
    let taps = stream::iter(0..orders).map(|_| async {
        shop.order_until_placed(&fresh_key()).await;
    });
    taps.buffer_unordered(PHONES).collect::<Vec<_>>().await;
}

async fn assert_once_each(shop: &Shop) {
    let orders: i64 = i64::try_from(ORDERS).unwrap();
    assert_eq!(shop.count("orders").await, orders);
    assert_eq!(shop.count("ledger_entries").await, 2 * orders);
    assert_eq!(shop.count("receipts").await, orders);
    assert_eq!(shop.count("parked_events").await, 0, "an outage is nobody's fault");
    let mut heard: HashMap<String, usize> = HashMap::new();
    for mail in shop.mails().await {
        *heard.entry(mail["subject"].to_string()).or_default() += 1;
    }
    assert_eq!(heard.len(), ORDERS);
    assert!(heard.values().all(|times| *times == 1), "somebody heard twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_killed_under_load_leaves_a_backlog_that_is_seen_and_drains_once() {
    let mut shop = Shop::open_with(durable()).await;
    place(&shop, ORDERS / 3).await;
    shop.worker.as_mut().expect("a worker").kill();
    place(&shop, ORDERS - ORDERS / 3).await;

    let health = Health::read(&shop.pool).await.unwrap();
    assert!(health.outbox.unsent >= 200, "{health:?}");
    assert!(health.outbox.oldest_unsent_age_s.is_some_and(|age| age > 0.0), "{health:?}");

    shop.start_worker();
    wait_for("every order is confirmed", async || shop.count("receipts").await == 300).await;
    shop.wait_until_quiet().await;
    assert_once_each(&shop).await;
    let health = Health::read(&shop.pool).await.unwrap();
    assert_eq!((health.outbox.unsent, health.outbox.oldest_unsent_age_s), (0, None));
    assert!(health.consumers.iter().all(|of| of.lag == 0 && of.oldest_unread_age_s.is_none()), "{health:?}");
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mail_service_that_is_down_holds_up_receipts_alone_and_each_goes_out_once_afterwards() {
    let mut shop = Shop::open_with(durable()).await;
    place(&shop, ORDERS / 3).await;
    shop.mail.kill();
    place(&shop, ORDERS - ORDERS / 3).await;

    wait_for("the ledger is up to date", async || shop.count("ledger_entries").await == 600).await;
    wait_for("the metrics say who waits", async || {
        let seen = shop.metrics().await;
        seen["checkout_outbox_unsent"] == 0.0
            && seen["checkout_consumer_lag{consumer=\"ledger\"}"] == 0.0
            && seen["checkout_consumer_lag{consumer=\"receipts\"}"] >= 200.0
            && seen["checkout_consumer_oldest_unread_age_seconds{consumer=\"receipts\"}"] > 0.0
            && seen["checkout_events_parked{stage=\"receipts\"}"] == 0.0
    })
    .await;

    shop.restart_mail();
    wait_for("every order is confirmed", async || shop.count("receipts").await == 300).await;
    shop.wait_until_quiet().await;
    assert_once_each(&shop).await;
    shop.close().await;
}
