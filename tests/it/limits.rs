//! What one customer may ask for: the limits stand before new purchases only, and before nobody else's.

use futures_util::future::join_all;

use crate::support::{CUSTOMER, Opening, Shop, fresh_key, grinder, wait_for};

const OTHER_CUSTOMER: i64 = 43;

async fn shop_with(flags: &[&'static str]) -> Shop {
    Shop::open_with(Opening { gateway_in_memory: true, flags: flags.to_vec(), ..Opening::default() }).await
}

#[tokio::test]
async fn above_the_rate_a_customers_purchases_wait_and_retries_and_other_customers_do_not() {
    let shop = shop_with(&["--customer-rate-per-s", "1", "--customer-burst", "3"]).await;
    let (keys, visa) = ([fresh_key(), fresh_key(), fresh_key()], grinder("pm_card_visa"));
    let placed = join_all(keys.iter().map(|key| shop.order(key, &visa))).await;
    placed.iter().for_each(|answer| drop(answer.expect_order()));

    let claimed = shop.count("idempotency_records").await;
    let fresh: Vec<_> = (0..40).map(|_| fresh_key()).collect();
    let flood = join_all(fresh.iter().map(|key| shop.order(key, &visa))).await;
    let refused: Vec<_> = flood.iter().filter(|answer| answer.status != 201).collect();
    // A token comes back each second, and this does not take 30.
    assert!(refused.len() >= 10, "{}", refused.len());
    for answer in &refused {
        answer.expect(429, "rate_limited");
        assert_eq!((answer.retry_after_s, answer.json()["retry"].as_str()), (Some(1), Some("same_key")));
    }
    let through = i64::try_from(flood.len() - refused.len()).unwrap();
    assert_eq!(shop.count("idempotency_records").await, claimed + through, "a refused purchase claims nothing");

    // Ten times as many replays as the limit would ever let through; none costs a token, and each is the same bytes.
    for round in 0..10 {
        for (key, answer) in keys.iter().zip(&placed) {
            let replay = shop.order(key, &visa).await;
            assert!(replay.replayed && replay.body == answer.body, "round {round}: {replay:?}");
        }
    }
    shop.order_as(OTHER_CUSTOMER, &fresh_key(), &visa).await.expect_order();
    shop.close().await;
}

#[tokio::test]
async fn replays_use_up_no_allowance() {
    // One purchase, and no second one within any time a test takes.
    let shop = shop_with(&["--customer-rate-per-s", "1", "--customer-burst", "2"]).await;
    let (key, visa) = (fresh_key(), grinder("pm_card_visa"));
    shop.order(&key, &visa).await.expect_order();
    for _ in 0..20 {
        assert!(shop.order(&key, &visa).await.replayed);
    }
    shop.order(&fresh_key(), &visa).await.expect_order();
    shop.close().await;
}

#[tokio::test]
async fn reads_have_an_allowance_of_their_own() {
    let flags = ["--customer-reads-per-s", "1", "--customer-rate-per-s", "1", "--customer-burst", "1"];
    let shop = shop_with(&flags).await;
    let order = shop.order(&fresh_key(), &grinder("pm_card_visa")).await.expect_order();
    let path = format!("/v1/orders/{order}");
    let reads = join_all((0..40).map(|_| shop.get_as(CUSTOMER, &path))).await;
    let refused = reads.iter().filter(|read| read.status != 200).collect::<Vec<_>>();
    assert!(refused.len() >= 10, "{}", refused.len());
    for read in refused {
        read.expect(429, "rate_limited");
        assert_eq!(read.retry_after_s, Some(1));
    }
    shop.get_as(OTHER_CUSTOMER, &path).await.expect(404, "not_found");
    let metrics = shop.api_metrics().await;
    assert!(metrics["checkout_problems_total{code=\"rate_limited\"}"] >= 10.0, "{metrics:#?}");
    shop.close().await;
}

#[tokio::test]
async fn with_every_place_taken_a_new_purchase_is_shed_before_its_claim_and_a_retry_is_answered() {
    let shop = shop_with(&["--running-max", "1"]).await;
    let (placed, slow, visa) = (fresh_key(), fresh_key(), grinder("pm_card_visa"));
    let order = shop.order(&placed, &visa).await;
    shop.fault("latency_after", 1, 3_000).await;
    let under_way = shop.order_in_background(&slow);
    wait_for("the only place is taken", async || shop.captures().await == 2).await;

    let shed = shop.order(&fresh_key(), &visa).await;
    shed.expect(503, "overloaded");
    assert!(shed.retry_after_s.is_some_and(|wait| (1..=3).contains(&wait)), "{shed:?}");
    let replay = shop.order(&placed, &visa).await;
    assert!(replay.replayed && replay.body == order.body, "{replay:?}");
    shop.order(&slow, &visa).await.expect(409, "request_in_progress");
    assert_eq!(shop.count("idempotency_records").await, 2, "what was shed has claimed nothing");
    assert_eq!(shop.api_metrics().await["checkout_shielded_tasks"], 1.0);
    assert_eq!(under_way.await.unwrap().expect("an answer").status(), 201);
    shop.close().await;
}

#[tokio::test]
async fn beyond_the_last_task_even_a_retry_waits_and_is_told_so() {
    let shop = shop_with(&["--running-max", "1", "--tasks-max", "1"]).await;
    let (key, visa) = (fresh_key(), grinder("pm_card_visa"));
    shop.fault("latency_after", 1, 2_000).await;
    let under_way = shop.order_in_background(&key);
    wait_for("the only task runs", async || shop.captures().await == 1).await;
    let shed = shop.order(&key, &visa).await;
    shed.expect(503, "overloaded");
    assert_eq!((shed.json()["retry"].as_str(), shed.retry_after_s.is_some()), (Some("same_key"), true));
    assert_eq!(under_way.await.unwrap().expect("an answer").status(), 201);
    assert!(shop.order(&key, &visa).await.replayed);
    shop.close().await;
}

/// The quota is of keys that live, whichever api began them; it is lifted when they are forgotten, and says when that is.
#[tokio::test]
async fn at_its_quota_of_keys_a_customer_retries_and_reads_and_others_buy() {
    let mut shop = shop_with(&["--customer-keys-max", "3"]).await;
    let (keys, visa) = ([fresh_key(), fresh_key(), fresh_key()], grinder("pm_card_visa"));
    for key in &keys {
        let answer = shop.order(key, &visa).await;
        answer.expect_order();
        assert!(shop.order(key, &visa).await.replayed);
    }
    shop.order(&fresh_key(), &visa).await.expect(429, "key_quota_exceeded");
    assert_eq!(shop.count("idempotency_records").await, 3, "a refused key is none");
    for key in &keys {
        assert!(shop.order(key, &visa).await.replayed);
    }
    shop.order_as(OTHER_CUSTOMER, &fresh_key(), &visa).await.expect_order();

    // An api that starts anew asks the database: within two exchanges it knows.
    wait_for("all are counted", async || shop.count("live_keys WHERE customer_id = 42 AND keys = 3").await == 1).await;
    shop.restart_api();
    shop.order(&fresh_key(), &visa).await.expect_order();
    let mut refused = shop.order(&fresh_key(), &visa).await;
    wait_for("the new one knows too", async || {
        refused = shop.order(&fresh_key(), &visa).await;
        refused.status == 429 && refused.retry_after_s.is_some_and(|wait| wait > 60)
    })
    .await;
    refused.expect(429, "key_quota_exceeded");
    let wait_s = refused.retry_after_s.unwrap();
    assert!((3 * 86_400..=4 * 86_400).contains(&wait_s), "{wait_s}: 72 hours from the end of today");
    assert!(shop.order(&keys[0], &visa).await.replayed);
    shop.close().await;
}
