//! Refunds that only a person can end: after a restore the gateway has given back another amount under a key than our record
//! asks for. What went back cannot be undone, so our books follow the gateway, and say so to everybody.

use serde_json::json;

use crate::support::{Answer, Opening, Shop, fresh_key, grinder};

const VISA: &str = "pm_card_visa";
const REFUND: &str = "orders.refund";
const TOTAL: i64 = 4299;

async fn in_memory() -> Shop {
    Shop::open_with(Opening { gateway_in_memory: true, ..Opening::default() }).await
}

/// An order, a life of it that is lost, and the restored shop in which nobody remembers that life.
async fn after_another_life(lost: impl AsyncFnOnce(&Shop, &str)) -> (Shop, String) {
    let mut shop = in_memory().await;
    let order = shop.order(&fresh_key(), &grinder(VISA)).await.expect_order();
    shop.api.kill();
    let backup = shop.back_up().await;
    shop.restart_api();
    lost(&shop, &order).await;
    shop.api.kill();
    shop.restore(backup).await;
    shop.restart_api();
    (shop, order)
}

/// Nothing is sent any more, and nothing can be found out: the key is before a person.
async fn a_day_later(shop: &Shop, order: &str, keys: &[(&str, Option<i64>)]) {
    shop.set_clock("26 hours").await;
    shop.advance_gateway_clock(26 * 3600).await;
    for (key, amount) in keys {
        shop.refund(order, key, *amount).await.expect(504, "outcome_unknown");
        assert_eq!(shop.state_of_operation(REFUND, key).await, "needs_review");
    }
}

async fn books(shop: &Shop) -> (i64, i64, String) {
    sqlx::query_as("SELECT refunded_minor, refund_reserved_minor, status FROM orders")
        .fetch_one(&shop.pool)
        .await
        .unwrap()
}

/// The gateway's name for the refund of an amount.
async fn refund_of(shop: &Shop, amount: i64) -> String {
    let ledger = shop.ledger().await;
    let intent = ledger["captures"][0]["payment_intent"].as_str().unwrap().to_owned();
    let made = shop.refunds_of(&intent).await;
    made.into_iter().find(|(_, gave)| *gave == amount).expect("a refund of this amount").0
}

async fn assert_ended_with(shop: &Shop, replayed: &Answer, gateway_id: &str, amount: i64) {
    assert_eq!((replayed.status, replayed.replayed), (201, true), "{}", replayed.text());
    let body = replayed.json();
    assert_eq!((body["amount"].as_i64(), body["status"].as_str()), (Some(amount), Some("succeeded")));
    assert_eq!(body["gateway_id"].as_str(), Some(gateway_id));
    let shown = shop.get(replayed.location.as_deref().unwrap()).await.json();
    assert_eq!((&shown["amount"], &shown["gateway_id"]), (&body["amount"], &body["gateway_id"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refund_of_another_amount_than_then_can_be_ended_by_a_person() {
    let (part, rest) = (fresh_key(), fresh_key());
    let (mut shop, order) = after_another_life(async |shop, order| {
        assert_eq!(shop.refund(order, &part, Some(1000)).await.status, 201);
        assert_eq!(shop.refund(order, &rest, None).await.json()["amount"], TOTAL - 1000);
    })
    .await;
    // Now the other one is first, and all that is left is all.
    shop.refund(&order, &rest, None).await.expect(504, "outcome_unknown");
    assert_eq!(books(&shop).await, (0, TOTAL, "paid".to_owned()));
    a_day_later(&shop, &order, &[(&rest, None)]).await;

    let key = shop.gateway_key_of(&rest).await;
    let (given, another) = (refund_of(&shop, TOTAL - 1000).await, refund_of(&shop, 1000).await);
    let denied = shop.review(&[&key, "--not-charged", "--by", "Ada"]).expect_err("refused");
    assert!(denied.contains(&format!("decide with --charged {given}")), "{denied}");
    for (wrong, why) in [(&another, "made for this key"), (&"re_0".to_owned(), "made for this key"), (&order, "re_…")]
    {
        let refused = shop.review(&[&key, "--charged", wrong, "--by", "Ada"]).expect_err("refused");
        assert!(refused.contains(why), "{refused}");
    }
    assert_eq!(shop.state_of_operation(REFUND, &rest).await, "needs_review");

    shop.review(&[&key, "--charged", &given, "--by", "Ada"]).expect("ended");
    assert_ended_with(&shop, &shop.refund(&order, &rest, None).await, &given, TOTAL - 1000).await;
    // What was held back beyond it is free again, for the one whose client comes back now.
    assert_eq!(books(&shop).await, (TOTAL - 1000, TOTAL - 1000, "partially_refunded".to_owned()));
    let found = shop.refund(&order, &part, Some(1000)).await;
    assert_eq!((found.status, found.json()["gateway_id"].as_str()), (201, Some(&*another)), "{}", found.text());
    assert_eq!(books(&shop).await, (TOTAL, TOTAL, "refunded".to_owned()));
    let decided: (String, String) =
        sqlx::query_as("SELECT gateway_id, decided_by FROM reviews").fetch_one(&shop.pool).await.unwrap();
    assert_eq!(decided, (given, "Ada".to_owned()));
    shop.start_worker();
    shop.wait_until_quiet().await;
    let booked = format!("ledger_entries WHERE account = 'gateway' AND amount_minor = {}", 1000 - TOTAL);
    assert_eq!((shop.count(&booked).await, shop.mails().await.len()), (1, 3));
    shop.close().await;
}

/// The same key, and by a mistake of the client another amount in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refund_with_an_amount_of_its_own_is_ended_by_what_the_gateway_gave() {
    for (then, now) in [(1000, 2000), (2000, 1000)] {
        let key = fresh_key();
        let (mut shop, order) = after_another_life(async |shop, order| {
            assert_eq!(shop.refund(order, &key, Some(then)).await.status, 201);
        })
        .await;
        shop.refund(&order, &key, Some(now)).await.expect(504, "outcome_unknown");
        a_day_later(&shop, &order, &[(&key, Some(now))]).await;
        let given = refund_of(&shop, then).await;
        shop.review(&[&shop.gateway_key_of(&key).await, "--charged", &given, "--by", "Ada"]).expect("ended");
        assert_ended_with(&shop, &shop.refund(&order, &key, Some(now)).await, &given, then).await;
        assert_eq!(books(&shop).await, (then, then, "partially_refunded".to_owned()));
        shop.start_worker();
        shop.close().await;
    }
}

/// More went back than is held for it, and the rest is held by another refund: that one has to be ended first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_is_left_is_refused_with_the_way_out_and_accepted_once_it_is_left() {
    let (all, other) = (fresh_key(), fresh_key());
    let (mut shop, order) = after_another_life(async |shop, order| {
        assert_eq!(shop.refund(order, &all, None).await.json()["amount"], TOTAL);
    })
    .await;
    shop.fault("drop_before", 2, 0).await;
    shop.refund(&order, &other, Some(1000)).await.expect(504, "outcome_unknown");
    shop.refund(&order, &all, None).await.expect(504, "outcome_unknown");
    a_day_later(&shop, &order, &[(&other, Some(1000)), (&all, None)]).await;

    let given = refund_of(&shop, TOTAL).await;
    let (all_key, other_key) = (shop.gateway_key_of(&all).await, shop.gateway_key_of(&other).await);
    let refused = shop.review(&[&all_key, "--charged", &given, "--by", "Ada"]).expect_err("refused");
    assert!(refused.contains("only 0 more") && refused.contains("end those that are open first"), "{refused}");
    assert_eq!(shop.state_of_operation(REFUND, &all).await, "needs_review", "nothing was touched");
    shop.review(&[&other_key, "--not-charged", "--by", "Ada"]).expect("nothing went back under it");
    shop.refund(&order, &other, Some(1000)).await.expect(422, "refund_refused");
    shop.review(&[&all_key, "--charged", &given, "--by", "Ada"]).expect("ended");
    assert_ended_with(&shop, &shop.refund(&order, &all, None).await, &given, TOTAL).await;
    assert_eq!(books(&shop).await, (TOTAL, TOTAL, "refunded".to_owned()));
    shop.start_worker();
    shop.close().await;
}

/// The gateway has forgotten the key, and shows what it once did under it: sending would only give more back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_amount_that_went_back_under_the_key_is_never_added_to() {
    let key = fresh_key();
    let (shop, order) = after_another_life(async |shop, order| {
        assert_eq!(shop.refund(order, &key, Some(1000)).await.status, 201);
    })
    .await;
    shop.advance_gateway_clock(26 * 3600).await;
    for _ in 0..2 {
        shop.refund(&order, &key, Some(2000)).await.expect(504, "outcome_unknown");
    }
    assert_eq!(shop.ledger().await["captures"][0]["amount_refunded"], json!(1000));
    shop.close().await;
}
