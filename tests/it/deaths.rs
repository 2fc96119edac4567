//! A refund and a charge that stands alone die where an order can die: at every point of the story, once, by SIGKILL. Their
//! client comes back with its key, or does not; either way it happened once.

use std::{fmt::Write as _, time::Duration};

use serde_json::{Value, json};

use crate::support::{Answer, CUSTOMER, Opening, Shop, fresh_key, grinder, wait_for};

const POINTS: [&str; 8] = [
    "order.before_claim",
    "claim.before_commit",
    "order.claimed",
    "charge.before_send",
    "charge.answered",
    "settle.before_commit",
    "settle.committed",
    "order.before_reply",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Refund,
    Charge,
}

impl What {
    fn operation(self) -> &'static str {
        match self {
            Self::Refund => "orders.refund",
            Self::Charge => "charges.create",
        }
    }

    fn body(self) -> Value {
        match self {
            Self::Refund => json!({"amount": 1000}),
            Self::Charge => json!({"amount": 1000, "currency": "eur", "payment_method": "pm_card_visa"}),
        }
    }
}

/// One death: the api is killed at the point in mid request. `comes_back`: its client asks again, at another api.
async fn trial(what: What, point: &str, comes_back: bool) -> String {
    // The order that is refunded passes the point first.
    let nth = if what == What::Refund { 2 } else { 1 };
    let api_crash = format!("{point}:kill:{nth}");
    let opening = Opening { gateway_in_memory: true, worker: true, api_crash, ..Opening::default() };
    let mut shop = Shop::open_with(Opening { flags: vec!["--lease-ms", "15000"], ..opening }).await;
    let (key, mut path) = (fresh_key(), "/v1/charges".to_owned());
    if what == What::Refund {
        let order = shop.order(&fresh_key(), &grinder("pm_card_visa")).await.expect_order();
        path = format!("/v1/orders/{order}/refunds");
    }
    let request = shop.http.post(format!("{}{path}", shop.api_url)).bearer_auth(shop.token(CUSTOMER));
    let unanswered = request.header("Idempotency-Key", &key).json(&what.body()).send().await;
    assert!(unanswered.is_err(), "{point}: the api was to die and answered");
    assert!(!shop.api.ended().success(), "{point}: the api was to be killed");
    shop.restart_api();
    // The lease of a dead owner is waited for by the clock of this database alone.
    shop.set_clock("20 seconds").await;

    let done = if comes_back {
        until_final(&shop, &path, &key, what).await
    } else {
        let state = async || shop.state_of_operation(what.operation(), &key).await;
        // Before the claim is committed nobody knows of it, and nobody finishes it.
        if ["order.before_claim", "claim.before_commit"].contains(&point) {
            assert_eq!(state().await, "", "{point}");
            return closed(shop, what, 0).await;
        }
        wait_for("recovery is done", async || state().await == "completed").await;
        shop.post(&path, &key, &what.body()).await
    };
    assert_eq!(done.status, 201, "{point}: {}", done.text());
    closed(shop, what, 1).await
}

async fn until_final(shop: &Shop, path: &str, key: &str, what: What) -> Answer {
    for _ in 0..200 {
        let answer = shop.post(path, key, &what.body()).await;
        if answer.status == 201 {
            return answer;
        }
        assert_eq!(answer.json()["retry"], "same_key", "{}", answer.text());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no final answer");
}

/// It happened so often at the gateway, and our books agree.
async fn closed(shop: Shop, what: What, times: i64) -> String {
    let ledger = shop.ledger().await;
    match what {
        What::Refund => {
            assert_eq!(ledger["captures"][0]["amount_refunded"], 1000 * times, "{ledger}");
            assert_eq!(shop.count("refunds WHERE status = 'succeeded'").await, times);
            assert_eq!(shop.count("refunds WHERE status IN ('reserved', 'released')").await, 0);
        }
        What::Charge => {
            assert_eq!(ledger["count"], times, "{ledger}");
            assert_eq!(shop.count("charges").await, times);
        }
    }
    shop.close().await;
    format!("{times} time(s)")
}

#[tokio::test]
async fn a_refund_and_a_charge_survive_a_death_at_every_point() {
    let mut table = String::new();
    for what in [What::Refund, What::Charge] {
        for point in POINTS {
            for comes_back in [true, false] {
                let outcome = trial(what, point, comes_back).await;
                writeln!(table, "{what:?} killed at {point}, client comes back {comes_back}: {outcome}").unwrap();
            }
        }
    }
    println!("{table}");
}
