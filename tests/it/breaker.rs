//! The circuit breaker of the gateway, from outside: it stands before what is new, never before what happened.

use crate::support::{Opening, Shop, fresh_key, grinder, wait_for};

/// Opens after two charges without an answer, for a while that no test waits for twice.
const FLAGS: [&str; 4] = ["--gateway-failures-max", "2", "--gateway-pause-ms", "2000"];

async fn shop_with(flags: &[&'static str]) -> Shop {
    Shop::open_with(Opening { flags: flags.to_vec(), ..Opening::default() }).await
}

#[tokio::test]
async fn while_the_gateway_is_away_nothing_new_is_claimed_and_what_happened_is_told() {
    let mut shop = shop_with(&FLAGS).await;
    let (bought, declined, begun, visa) = (fresh_key(), fresh_key(), fresh_key(), grinder("pm_card_visa"));
    let placed = shop.order(&bought, &visa).await;
    let refused = shop.order(&declined, &grinder("pm_card_chargeDeclined")).await;
    refused.expect(402, "card_declined");
    assert_eq!(shop.api_metrics().await["checkout_gateway_breaker"], 0.0);

    shop.gateway.kill();
    shop.order(&begun, &visa).await.expect(503, "gateway_unavailable");
    let records = shop.count("idempotency_records").await;
    assert_eq!(records, 3);
    for _ in 0..3 {
        let answer = shop.order(&fresh_key(), &visa).await;
        answer.expect(503, "gateway_unavailable");
        assert!(answer.retry_after_s.is_some_and(|wait| (1..=2).contains(&wait)), "{answer:?}");
        assert_eq!(answer.json()["retry"], "same_key");
    }
    assert_eq!(shop.count("idempotency_records").await, records, "nothing was claimed");
    let seen = shop.api_metrics().await;
    assert_eq!(
        (seen["checkout_gateway_breaker"], seen["checkout_gateway_breaker_opened_total"]),
        (2.0, 1.0),
        "{seen:#?}"
    );

    // What happened is told as ever, by the same bytes.
    let replay = shop.order(&bought, &visa).await;
    assert!(replay.replayed && replay.body == placed.body, "{replay:?}");
    let replay = shop.order(&declined, &grinder("pm_card_chargeDeclined")).await;
    assert!(replay.replayed && replay.body == refused.body, "{replay:?}");
    shop.order(&bought, &grinder("pm_card_mastercard")).await.expect(422, "idempotency_key_reused");

    // The gateway is back, and nobody waits for the breaker to notice: a key that was begun goes on, and its answer is news.
    shop.restart_gateway();
    shop.order(&begun, &visa).await.expect_order();
    assert_eq!(shop.api_metrics().await["checkout_gateway_breaker"], 0.0);
    shop.order(&fresh_key(), &visa).await.expect_order();
    shop.close().await;
}

#[tokio::test]
async fn after_the_pause_one_purchase_at_a_time_finds_out() {
    let mut shop = shop_with(&["--gateway-failures-max", "2", "--gateway-pause-ms", "300"]).await;
    let visa = grinder("pm_card_visa");
    shop.gateway.kill();
    shop.order(&fresh_key(), &visa).await.expect(503, "gateway_unavailable");
    shop.restart_gateway();
    // The probe is slow, and meanwhile the others are still refused.
    shop.fault("latency_before", 1, 3_000).await;
    let half_open = async || shop.api_metrics().await["checkout_gateway_breaker"] == 1.0;
    wait_for("the pause is over", half_open).await;
    let key = fresh_key();
    let probe = shop.order_in_background(&key);
    let probing = async || shop.count("idempotency_records").await == 2;
    wait_for("the probe has claimed", probing).await;
    let answer = shop.order(&fresh_key(), &visa).await;
    answer.expect(503, "gateway_unavailable");
    assert_eq!(answer.retry_after_s, Some(1));
    assert_eq!(probe.await.unwrap().expect("an answer").status(), 201);
    shop.order(&fresh_key(), &visa).await.expect_order();
    assert_eq!(shop.count("idempotency_records").await, 3);
    shop.close().await;
}

#[tokio::test]
async fn declines_in_any_number_do_not_open_it() {
    let shop = shop_with(&["--gateway-failures-max", "2"]).await;
    for _ in 0..6 {
        shop.order(&fresh_key(), &grinder("pm_card_chargeDeclined")).await.expect(402, "card_declined");
    }
    assert_eq!(shop.api_metrics().await["checkout_gateway_breaker"], 0.0);
    shop.order(&fresh_key(), &grinder("pm_card_visa")).await.expect_order();
    shop.close().await;
}
