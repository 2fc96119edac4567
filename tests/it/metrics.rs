//! The worker's health, as Prometheus reads it: what waits, who works, what was done.

use crate::support::{Opening, Shop, fresh_key, grinder, wait_for};

#[tokio::test]
async fn the_workers_metrics_tell_what_waits_who_works_and_what_was_done() {
    let mut shop = Shop::open_with(Opening { gateway_in_memory: true, ..Opening::default() }).await;
    for _ in 0..3 {
        shop.order(&fresh_key(), &grinder("pm_card_visa")).await.expect_order();
    }
    shop.start_worker();
    shop.wait_until_quiet().await;
    // The counter is counted after the commit, and a look is good for a second.
    wait_for("the metrics say so too", async || {
        let seen = shop.metrics().await;
        seen["checkout_events_applied_total{consumer=\"receipts\"}"] == 3.0
            && seen["checkout_consumer_lag{consumer=\"receipts\"}"] == 0.0
    })
    .await;
    let seen = shop.metrics().await;
    for (name, value) in [
        ("checkout_up", 1.0),
        ("checkout_outbox_unsent", 0.0),
        ("checkout_outbox_oldest_unsent_age_seconds", 0.0),
        ("checkout_consumer_lag{consumer=\"ledger\"}", 0.0),
        ("checkout_consumer_oldest_unread_age_seconds{consumer=\"ledger\"}", 0.0),
        ("checkout_events_held{stage=\"receipts\"}", 0.0),
        ("checkout_events_parked{stage=\"relay\"}", 0.0),
        ("checkout_keys{state=\"unknown\"}", 0.0),
        ("checkout_keys{state=\"needs_review\"}", 0.0),
        ("checkout_keys{state=\"in_flight_expired\"}", 0.0),
        ("checkout_partitions_days_ahead", 4.0),
        ("checkout_leases_held{duty=\"relay\"}", 64.0),
        ("checkout_leases_held{duty=\"ledger\"}", 8.0),
        ("checkout_leases_held{duty=\"receipts\"}", 8.0),
        ("checkout_events_published_total", 3.0),
        ("checkout_events_applied_total{consumer=\"ledger\"}", 3.0),
        ("checkout_events_repeated_total{consumer=\"ledger\"}", 0.0),
        ("checkout_keys_recovered_total", 0.0),
    ] {
        assert_eq!(seen.get(name), Some(&value), "{name} in {seen:#?}");
    }
    shop.close().await;
}

#[tokio::test]
async fn an_event_that_comes_again_and_a_key_that_recovery_ends_are_counted() {
    let mut shop = Shop::open_with(Opening { gateway_in_memory: true, worker: true, ..Opening::default() }).await;
    shop.fault("drop_after", 2, 0).await;
    shop.order(&fresh_key(), &grinder("pm_card_visa")).await.expect(504, "outcome_unknown");
    wait_for("recovery has placed the order", async || shop.metrics().await["checkout_keys_recovered_total"] == 1.0)
        .await;
    shop.wait_until_quiet().await;
    // As if the relay had died before it marked.
    sqlx::raw_sql("UPDATE outbox SET sent_at = NULL").execute(&shop.pool).await.unwrap();
    wait_for("both consumers met it again", async || {
        let seen = shop.metrics().await;
        ["ledger", "receipts"]
            .iter()
            .all(|consumer| seen[&format!("checkout_events_repeated_total{{consumer=\"{consumer}\"}}")] >= 1.0)
    })
    .await;
    assert_eq!(shop.mails().await.len(), 1);
    assert!(shop.worker.as_mut().expect("a worker").is_alive());
    shop.close().await;
}
