//! The backup drill: our database is set back to an hour ago, the gateway's is not. Another company keeps its own books, and it
//! knows of orders that we have acknowledged and forgotten. Nobody is charged twice, every orphan is named, and whoever never
//! comes back has the money back.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::support::{Opening, Shop, fresh_key, grinder, wait_for};

const VISA: &str = "pm_card_visa";
const NOW: [&str; 3] = ["--now", "--reconcile-grace-ms", "1"];

/// Capture by payment intent: its idempotency key and what went back of it.
async fn captures(shop: &Shop) -> BTreeMap<String, (String, i64)> {
    let ledger = shop.ledger().await;
    let text = |capture: &Value, name: &str| capture[name].as_str().unwrap_or_default().to_owned();
    let of = |capture: &Value| {
        let refunded = capture["amount_refunded"].as_i64().unwrap();
        (text(capture, "payment_intent"), (text(capture, "idempotency_key"), refunded))
    };
    ledger["captures"].as_array().unwrap().iter().map(of).collect()
}

async fn place(shop: &Shop, count: usize) -> Vec<(String, String)> {
    let mut placed = Vec::new();
    for _ in 0..count {
        let key = fresh_key();
        let order = shop.order(&key, &grinder(VISA)).await;
        order.expect_order();
        placed.push((key, order.json()["charge"]["gateway_id"].as_str().unwrap().to_owned()));
    }
    placed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restore_nobody_is_charged_twice_and_who_never_returns_is_paid_back() {
    let flags = vec!["--recovery-pause-ms", "50", "--reconcile-pause-ms", "600000"];
    let mut shop = Shop::open_with(Opening { gateway_in_memory: true, ..Opening::default() }).await;
    let kept = place(&shop, 5).await;
    shop.api.kill();
    let backup = shop.back_up().await;
    shop.restart_api();
    shop.start_worker_with(&flags);

    // What the backup does not know: acknowledged orders, and two whose answers were lost on the way.
    let lost = place(&shop, 8).await;
    let mut unknown = Vec::new();
    for _ in 0..2 {
        let known: BTreeSet<String> = captures(&shop).await.into_keys().collect();
        shop.worker.as_mut().unwrap().kill();
        shop.fault("drop_after", 2, 0).await;
        let key = fresh_key();
        shop.order(&key, &grinder(VISA)).await.expect(504, "outcome_unknown");
        let now = captures(&shop).await.into_keys().collect::<BTreeSet<_>>();
        let new: Vec<_> = now.difference(&known).cloned().collect();
        assert_eq!(new.len(), 1);
        unknown.push((key, new[0].clone()));
    }
    let before = captures(&shop).await;
    assert_eq!(before.len(), 15);

    // The disaster, and the older backup in its place.
    shop.api.kill();
    shop.worker = None;
    shop.restore(backup).await;
    shop.restart_api();
    shop.start_worker_with(&flags);
    assert_eq!(shop.count("orders").await, 5);
    for (key, _) in &kept {
        assert!(shop.order(key, &grinder(VISA)).await.replayed);
    }

    // Half of them retry, as phones do; one of the rest with another body.
    let (returned, silent) = lost.split_at(4);
    for (key, intent) in returned.iter().chain(&unknown[..1]) {
        let rebuilt = shop.order_until_placed(key).await;
        assert_eq!(
            rebuilt.json()["charge"]["gateway_id"].as_str(),
            Some(&**intent),
            "the charge of then, not a new one"
        );
    }
    let (changed, silent) = silent.split_first().unwrap();
    let other =
        json!({"items": [{"sku": "kettle", "quantity": 1}], "total": 2950, "currency": "eur", "payment_method": VISA});
    shop.order(&changed.0, &other).await.expect(504, "outcome_unknown");
    assert_eq!(captures(&shop).await, before, "no retry has captured anything");

    // Who is not back by now is named: exactly those, and not the one whose key is open again.
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    let mut missing: Vec<&(String, String)> = silent.iter().chain(&unknown[1..]).collect();
    missing.sort_by_key(|(_, intent)| intent.clone());
    tokio::task::block_in_place(|| shop.reconcile(&NOW));
    let found: BTreeSet<(String, String, String)> = shop.findings().await.into_iter().collect();
    let expected = |state: &str| -> BTreeSet<(String, String, String)> {
        missing.iter().map(|(_, intent)| (intent.clone(), "orphan_unknown".to_owned(), state.to_owned())).collect()
    };
    assert_eq!(found, expected("open"));
    assert_eq!(captures(&shop).await, before, "nothing is given back while its client may still return");

    // 26 hours later nobody can be waiting for these any more.
    shop.set_clock("26 hours").await;
    shop.advance_gateway_clock(26 * 3600).await;
    for _ in 0..2 {
        tokio::task::block_in_place(|| shop.reconcile(&NOW));
    }
    let refunded: BTreeSet<_> = shop.findings().await.into_iter().filter(|(_, _, state)| state == "refunded").collect();
    assert_eq!(refunded, expected("refunded"));
    let after = captures(&shop).await;
    for (intent, (_, back)) in &after {
        let is_missing = missing.iter().any(|(_, missing)| missing == intent);
        assert_eq!(*back, if is_missing { 4299 } else { 0 }, "{intent}");
    }
    assert_eq!(after.len(), 15);

    // One of them returns all the same: a new charge, once, and the old one stays paid back.
    let (key, old) = missing[0];
    let placed = shop.order_until_placed(key).await;
    assert_ne!(placed.json()["charge"]["gateway_id"].as_str(), Some(&**old));
    assert!(shop.order(key, &grinder(VISA)).await.replayed);
    let end = captures(&shop).await;
    assert_eq!((end.len(), end[old].1), (16, 4299));
    // And the one with another body: its key took the money of then, for another order, so a person has to look. For this order
    // nothing was charged; what was taken for the other one goes back.
    wait_for("the changed one needs review", async || shop.state_of(&changed.0).await == "needs_review").await;
    let gateway_key = shop.gateway_key_of(&changed.0).await;
    let wrong = shop.review(&[&gateway_key, "--charged", &changed.1, "--by", "Ada"]).expect_err("refused");
    assert!(wrong.contains("did not take"), "{wrong}");
    let said = shop.review(&[&gateway_key, "--not-charged", "--by", "Ada"]).expect("ended");
    assert!(said.contains(&format!("{} took another amount", changed.1)), "{said}");
    let told = shop.order(&changed.0, &other).await;
    told.expect(402, "card_declined");
    assert_eq!((told.json()["decline_code"].as_str(), told.replayed), (Some("not_charged"), true));
    for _ in 0..2 {
        tokio::task::block_in_place(|| shop.reconcile(&NOW));
    }
    assert_eq!(shop.finding(&changed.1).await, Some(("orphan_refused".to_owned(), "refunded".to_owned())));
    assert_eq!(shop.refunds_of(&changed.1).await.iter().map(|(_, amount)| *amount).collect::<Vec<_>>(), [4299]);
    let end = captures(&shop).await;
    assert_eq!((end.len(), end[&changed.1].1), (16, 4299));
    assert_eq!(shop.count("orders").await, 5 + 5 + 1);
    shop.close().await;
}
