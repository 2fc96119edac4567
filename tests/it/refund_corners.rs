//! The corners of a refund: a release that is written twice, a restored backup, a list that is older than its key, and what one
//! customer may cost the others.

use checkout::{
    checkout::{
        claim::{ClaimOutcome, ClaimRequest, Claims, New},
        frozen::{Frozen, FrozenRefund},
        refund::{RefundEnd, WantedRefund},
        settle::{Booked, Endings, Settled, Settlement},
    },
    database::group_commit::Batch,
    idempotency::{
        end_store::Ending,
        fingerprint::{Compared, Fingerprints},
        key::{IdempotencyKey, Operation, Scope},
        record::Claim,
    },
    ids::{AttemptId, CustomerId, OrderId, RequestId},
    money::{Currency, Money},
};
use serde_json::json;

use crate::support::{CUSTOMER, Opening, Shop, fresh_key, grinder, usual_timing, wait_for};

const VISA: &str = "pm_card_visa";
const REFUND: &str = "orders.refund";
const TOTAL: i64 = 4299;

async fn in_memory() -> Shop {
    Shop::open_with(Opening { gateway_in_memory: true, ..Opening::default() }).await
}

async fn placed(shop: &Shop) -> String {
    shop.order(&fresh_key(), &grinder(VISA)).await.expect_order()
}

async fn held_back(shop: &Shop) -> i64 {
    sqlx::query_scalar("SELECT refund_reserved_minor FROM orders").fetch_one(&shop.pool).await.unwrap()
}

/// A refund claimed as the api claims it, and nothing more.
async fn claimed(shop: &Shop, order: &str, key: &str, amount: i64) -> (Claim, FrozenRefund) {
    let scope = Scope {
        customer: CustomerId(CUSTOMER),
        operation: Operation::RefundOrder,
        key: IdempotencyKey::parse(key.as_bytes()).unwrap(),
    };
    let body = format!(r#"{{"amount":{amount}}}"#);
    let path = format!("/v1/orders/{order}/refunds");
    let compared = Compared { method: "POST", path: &path, query: "", canonical_body: body.as_bytes() };
    let order: OrderId = order.parse().unwrap();
    let payment_intent: String = sqlx::query_scalar("SELECT gateway_id FROM charges WHERE status = 'succeeded'")
        .fetch_one(&shop.pool)
        .await
        .unwrap();
    let request = ClaimRequest {
        digest: scope.digest(),
        scope,
        fingerprints: Fingerprints::of(compared),
        attempt: AttemptId::mint(),
        new: Some(New::Refund(WantedRefund {
            order,
            customer: CustomerId(CUSTOMER),
            request_id: RequestId::mint(),
            payment_intent,
            total: Money::new(TOTAL, Currency::Eur).unwrap(),
            amount_minor: Some(amount),
        })),
    };
    let claims = Claims::new(shop.pool.clone(), &usual_timing());
    let outcome = claims.run(&[request]).await.unwrap().pop().unwrap();
    let ClaimOutcome::Execute(claim) = outcome else { panic!("{outcome:?}") };
    let Frozen::Refund(frozen) = Frozen::read(claim.operation, &claim.frozen).unwrap() else { panic!("no refund") };
    (claim, frozen)
}

fn released(claim: Claim, frozen: FrozenRefund) -> Settlement {
    Settlement {
        claim,
        ending: Ending::Released,
        booked: Booked::Refund(Box::new((frozen, RefundEnd::Released))),
        review: None,
    }
}

/// `settle` runs again when its COMMIT was not acknowledged. A release leaves the record in flight under the same fence, so
/// the second run ends it a second time.
#[tokio::test]
async fn a_release_whose_commit_was_not_heard_frees_its_own_amount_and_no_other() {
    let shop = in_memory().await;
    let order = placed(&shop).await;
    // Another refund of which nobody knows whether it arrived.
    shop.fault("drop_before", 2, 0).await;
    shop.refund(&order, &fresh_key(), Some(2000)).await.expect(504, "outcome_unknown");
    let (claim, frozen) = claimed(&shop, &order, &fresh_key(), 2000).await;
    assert_eq!(held_back(&shop).await, 4000);
    let endings = Endings::new(shop.pool.clone());
    let settlement = released(claim, frozen);
    for run in 1..=2 {
        assert_eq!(endings.run(std::slice::from_ref(&settlement)).await.unwrap(), [Settled::Done]);
        assert_eq!(held_back(&shop).await, 2000, "run {run}: the other one's 2000 are still held back");
    }
    shop.close().await;
}

/// What follows: the freed amount of the other refund is given away, and then the other one can never be settled.
#[tokio::test]
async fn after_a_release_was_repeated_every_refund_still_comes_to_an_end() {
    let mut shop = in_memory().await;
    let order = placed(&shop).await;
    let unknown = fresh_key();
    shop.fault("drop_before", 2, 0).await;
    shop.refund(&order, &unknown, Some(2000)).await.expect(504, "outcome_unknown");
    let (claim, frozen) = claimed(&shop, &order, &fresh_key(), 2000).await;
    let endings = Endings::new(shop.pool.clone());
    let settlement = released(claim, frozen);
    endings.run(std::slice::from_ref(&settlement)).await.unwrap();
    endings.run(std::slice::from_ref(&settlement)).await.unwrap();
    let greedy = shop.refund(&order, &fresh_key(), None).await;
    assert_eq!(greedy.json()["amount"], TOTAL - 2000, "{}", greedy.text());
    shop.start_worker();
    wait_for("the unknown one ends", async || {
        matches!(&*shop.state_of_operation(REFUND, &unknown).await, "completed" | "failed")
    })
    .await;
    shop.close().await;
}

/// The backup drill with a refund in it: its client comes back with its key when the gateway has forgotten that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restore_a_refund_of_more_than_a_day_ago_is_not_given_back_twice() {
    let mut shop = in_memory().await;
    let order = placed(&shop).await;
    shop.api.kill();
    let backup = shop.back_up().await;
    shop.restart_api();
    shop.start_worker_with(&["--recovery-pause-ms", "50"]);
    let key = fresh_key();
    assert_eq!(shop.refund(&order, &key, Some(1000)).await.status, 201);
    shop.wait_until_quiet().await;
    shop.api.kill();
    shop.worker = None;
    shop.restore(backup).await;
    shop.restart_api();
    shop.start_worker_with(&["--recovery-pause-ms", "50"]);
    shop.set_clock("26 hours").await;
    shop.advance_gateway_clock(26 * 3600).await;
    let again = shop.refund(&order, &key, Some(1000)).await;
    let back = shop.ledger().await["captures"][0]["amount_refunded"].clone();
    assert_eq!(back, json!(1000), "one key gives back once: {}", again.text());
    shop.close().await;
}

/// A recorded 500 is replayed for a day: it says nothing of how the gateway is now.
#[tokio::test]
async fn one_customer_who_repeats_an_unknown_key_does_not_open_the_breaker_for_all() {
    let shop = Shop::open_with(Opening {
        gateway_in_memory: true,
        flags: vec!["--gateway-failures-max", "5"],
        ..Opening::default()
    })
    .await;
    let key = fresh_key();
    shop.fault("http_500_before", 1, 0).await;
    for _ in 0..8 {
        shop.order(&key, &grinder(VISA)).await.expect(504, "outcome_unknown");
    }
    let other = shop.order_as(7, &fresh_key(), &grinder(VISA)).await;
    assert_eq!(other.status, 201, "the gateway is in order: {}", other.text());
    shop.close().await;
}

/// Every other look at an order is counted; this one is a look too, as often as one likes.
#[tokio::test]
async fn guessing_orders_by_asking_for_their_refunds_is_limited_as_reading_them_is() {
    let shop = Shop::open_with(Opening {
        gateway_in_memory: true,
        flags: vec!["--customer-reads-per-s", "1", "--customer-rate-per-s", "1", "--customer-burst", "1"],
        ..Opening::default()
    })
    .await;
    let nobody = "01900000-0000-7000-8000-00000000000a";
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..200 {
        *seen.entry(shop.refund(nobody, &fresh_key(), None).await.status).or_insert(0) += 1;
    }
    assert!(seen.contains_key(&429), "{seen:?}");
    shop.close().await;
}
