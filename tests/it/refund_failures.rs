//! Refunds that are not over when they are answered: a bank takes its time, and turns some down long after they had succeeded.
//! Whatever tells of it, how often and in which order, it is taken out of the books once; and the stored answer stays what it was.

use checkout::{
    audit::Kind,
    checkout::{Checkout, follow::follow_once},
    config::{DatabaseArgs, GatewayClientArgs},
};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{Answer, Opening, Shop, fresh_key, grinder, usual_timing, wait_for};

const VISA: &str = "pm_card_visa";
const REFUND: &str = "orders.refund";
const TOTAL: i64 = 4299;

async fn in_memory() -> Shop {
    Shop::open_with(Opening { gateway_in_memory: true, ..Opening::default() }).await
}

async fn with_news_and_worker() -> Shop {
    Shop::open_with(Opening { gateway_in_memory: true, webhooks: true, worker: true, ..Opening::default() }).await
}

async fn placed(shop: &Shop, card: &str) -> String {
    shop.order(&fresh_key(), &grinder(card)).await.expect_order()
}

fn gateway_id(answer: &Answer) -> String {
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["gateway_id"].as_str().expect("a name at the gateway").to_owned()
}

async fn status_at(shop: &Shop, location: &str) -> String {
    shop.get(location).await.json()["status"].as_str().expect("a status").to_owned()
}

async fn becomes(shop: &Shop, answer: &Answer, status: &str) {
    let location = answer.location.as_deref().expect("a location");
    wait_for(&format!("the refund is {status}"), async || status_at(shop, location).await == status).await;
}

/// What the order says: its state, and what went back.
async fn order_of(shop: &Shop, order: &str) -> (String, i64) {
    let order = shop.get(&format!("/v1/orders/{order}")).await.json();
    (order["status"].as_str().unwrap().to_owned(), order["refunded"].as_i64().unwrap())
}

/// The news of a refund, as the gateway writes it.
fn news(id: &str, kind: &str, refund: &str, gateway_key: &str) -> Value {
    let object =
        json!({"object": "refund", "id": refund, "metadata": {"checkout_key": gateway_key}, "status": "succeeded"});
    json!({"id": id, "object": "event", "type": kind, "data": {"object": object}})
}

async fn failures(shop: &Shop) -> i64 {
    shop.count("outbox WHERE type = 'refund.failed'").await
}

#[tokio::test]
async fn a_refund_that_fails_later_is_taken_out_of_the_books_once_and_can_be_made_anew() {
    let shop = with_news_and_worker().await;
    let order = placed(&shop, VISA).await;
    let (part, rest) = (fresh_key(), fresh_key());
    let failing = shop.refund(&order, &part, Some(1000)).await;
    let kept = shop.refund(&order, &rest, None).await;
    assert_eq!(order_of(&shop, &order).await, ("refunded".to_owned(), TOTAL));
    shop.refund(&order, &fresh_key(), None).await.expect(422, "refund_exceeds_balance");

    shop.end_refund(&gateway_id(&failing), "failed").await;
    becomes(&shop, &failing, "failed").await;
    assert_eq!(order_of(&shop, &order).await, ("partially_refunded".to_owned(), TOTAL - 1000));
    assert_eq!(status_at(&shop, kept.location.as_deref().unwrap()).await, "succeeded");
    let again = shop.refund(&order, &part, Some(1000)).await;
    assert_eq!((again.status, again.replayed, &again.body), (201, true, &failing.body), "byte for byte");

    // What it gave back is left again, for a key of its own.
    let anew = shop.refund(&order, &fresh_key(), None).await;
    assert_eq!((anew.status, anew.json()["amount"].as_i64()), (201, Some(1000)), "{}", anew.text());
    shop.wait_until_quiet().await;
    let entries: Vec<i64> = sqlx::query_scalar(
        "SELECT l.amount_minor FROM ledger_entries AS l JOIN outbox AS e ON e.event_id = l.event_id WHERE account = 'gateway' ORDER BY e.sequence",
    )
    .fetch_all(&shop.pool)
    .await
    .unwrap();
    assert_eq!(entries, [TOTAL, -1000, 1000 - TOTAL, 1000, -1000]);
    let mails = shop.mails().await;
    let told = mails.iter().filter(|mail| mail.to_string().contains("did not arrive")).count();
    assert_eq!((mails.len(), told), (5, 1), "{mails:?}");
    shop.close().await;
}

#[tokio::test]
async fn a_pending_refund_is_shown_as_that_until_the_gateway_says_how_it_ended() {
    for (ends, order_then) in [("succeeded", ("partially_refunded", 1000)), ("failed", ("paid", 0))] {
        let shop = with_news_and_worker().await;
        shop.set_gateway(&json!({"refund_ends_ms": 3_600_000})).await;
        let order = placed(&shop, "pm_card_pendingRefund").await;
        let key = fresh_key();
        let pending = shop.refund(&order, &key, Some(1000)).await;
        let id = gateway_id(&pending);
        assert_eq!(pending.json()["status"], "pending");
        assert_eq!(status_at(&shop, pending.location.as_deref().unwrap()).await, "pending");
        // The gateway counts it as given back, and so do we.
        assert_eq!(order_of(&shop, &order).await, ("partially_refunded".to_owned(), 1000));
        shop.end_refund(&id, ends).await;
        becomes(&shop, &pending, ends).await;
        assert_eq!(order_of(&shop, &order).await, (order_then.0.to_owned(), order_then.1));
        assert_eq!(shop.refund(&order, &key, Some(1000)).await.body, pending.body, "the answer of then");
        shop.close().await;
    }
}

/// The cards of the test mode, with nobody's help.
#[tokio::test]
async fn the_test_cards_play_both_stories_by_themselves() {
    let shop = with_news_and_worker().await;
    shop.set_gateway(&json!({"refund_ends_ms": 50})).await;
    for (card, ends) in [("pm_card_pendingRefund", "succeeded"), ("pm_card_refundFail", "failed")] {
        let order = placed(&shop, card).await;
        becomes(&shop, &shop.refund(&order, &fresh_key(), None).await, ends).await;
    }
    shop.close().await;
}

#[tokio::test]
async fn without_any_news_the_days_tell_when_to_ask() {
    let mut shop = in_memory().await;
    let order = placed(&shop, VISA).await;
    let refund = shop.refund(&order, &fresh_key(), Some(1000)).await;
    shop.end_refund(&gateway_id(&refund), "failed").await;
    assert_eq!(shop.audit().await.kinds(), [Kind::RefundMismatch], "the audit has heard before we have");
    shop.start_worker();
    shop.wait_until_quiet().await;
    assert_eq!(status_at(&shop, refund.location.as_deref().unwrap()).await, "succeeded", "nobody has asked yet");
    shop.set_clock("25 hours").await;
    becomes(&shop, &refund, "failed").await;
    assert_eq!(order_of(&shop, &order).await, ("paid".to_owned(), 0));
    shop.close().await;
}

/// The same news again and again, older news after it, and many who look at once.
#[tokio::test]
async fn however_often_and_by_whomever_it_is_told_a_refund_fails_once() {
    let mut shop = in_memory().await;
    let order = placed(&shop, VISA).await;
    let key = fresh_key();
    let refund = shop.refund(&order, &key, Some(1000)).await;
    let (id, gateway_key) = (gateway_id(&refund), shop.gateway_key_of(&key).await);
    shop.end_refund(&id, "failed").await;
    let database =
        DatabaseArgs { database_url: shop.database.url.clone(), connections: 2, batch_limit: 1, batch_lanes: 1 };
    let gateway =
        GatewayClientArgs { gateway_url: shop.gateway_url.clone(), gateway_key: "sk_test_checkout".to_owned() };
    let checkout = Checkout::new(shop.pool.clone(), &database, &gateway, usual_timing()).unwrap();
    let mut failed = 0;
    for round in 0..3 {
        // Whoever had it before has lost it: all of them look.
        for _ in 0..4 {
            sqlx::query("UPDATE refunds SET look_at = db_clock() WHERE status = 'succeeded'")
                .execute(&shop.pool)
                .await
                .unwrap();
            let followed = join_all((0..4).map(|_| follow_once(&checkout))).await;
            failed += followed.into_iter().map(|followed| followed.unwrap().failed).sum::<usize>();
        }
        for kind in ["refund.failed", "refund.updated", "charge.refund.updated"] {
            let told = shop.deliver(&news(&format!("evt_{kind}_{round}"), kind, &id, &gateway_key)).await;
            assert_eq!(told.status, 200, "{}", told.text());
            let told = shop.deliver(&news(&format!("evt_{kind}_0"), kind, &id, &gateway_key)).await;
            assert_eq!(told.status, 200, "{}", told.text());
        }
    }
    assert_eq!(failed, 1);
    shop.start_worker();
    wait_for("all of it was looked at", async || shop.count("gateway_events WHERE applied_at IS NULL").await == 0)
        .await;
    becomes(&shop, &refund, "failed").await;
    assert_eq!((failures(&shop).await, order_of(&shop, &order).await), (1, ("paid".to_owned(), 0)));
    shop.close().await;
}

/// Its failure is known before our own answer is: then it was never given back, and its client hears that.
#[tokio::test]
async fn a_refund_that_failed_before_we_knew_of_it_is_refused() {
    let mut shop = in_memory().await;
    let order = placed(&shop, VISA).await;
    let key = fresh_key();
    shop.fault("drop_after", 2, 0).await;
    shop.refund(&order, &key, Some(1000)).await.expect(504, "outcome_unknown");
    let intent = shop.ledger().await["captures"][0]["payment_intent"].as_str().unwrap().to_owned();
    let id = shop.refunds_of(&intent).await[0].0.clone();
    shop.end_refund(&id, "failed").await;
    let gateway_key = shop.gateway_key_of(&key).await;
    assert_eq!(shop.deliver(&news("evt_1", "refund.failed", &id, &gateway_key)).await.status, 200);
    shop.start_worker();
    wait_for("it is refused", async || shop.state_of_operation(REFUND, &key).await == "failed").await;
    shop.refund(&order, &key, Some(1000)).await.expect(422, "refund_refused");
    assert_eq!((failures(&shop).await, order_of(&shop, &order).await), (0, ("paid".to_owned(), 0)));
    shop.close().await;
}

/// Somebody may have paid its customer in another way by then.
#[tokio::test]
async fn a_key_whose_refund_failed_gives_nothing_back_anew_even_past_its_expiry() {
    let shop = with_news_and_worker().await;
    let order = placed(&shop, VISA).await;
    let key = fresh_key();
    let refund = shop.refund(&order, &key, Some(1000)).await;
    shop.end_refund(&gateway_id(&refund), "failed").await;
    becomes(&shop, &refund, "failed").await;
    shop.wait_until_quiet().await;
    shop.set_clock("73 hours").await;
    let late = shop.refund(&order, &key, Some(1000)).await;
    late.expect(410, "idempotency_key_expired");
    assert_eq!((&late.location, shop.refunded().await.into_values().sum::<i64>()), (&refund.location, 0));
    shop.close().await;
}
