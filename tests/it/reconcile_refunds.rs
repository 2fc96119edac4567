//! The gateway's refunds against ours: what went back and is in no book of ours is found, and named for a person. Nobody can undo
//! it, so nothing else is done, but where its key is open, or its refund has ended otherwise.

use checkout::audit::Kind;

use crate::support::{Opening, Shop, fresh_key, grinder, wait_for};

const VISA: &str = "pm_card_visa";
const REFUND: &str = "orders.refund";
const NOW: [&str; 3] = ["--now", "--reconcile-grace-ms", "1"];

fn is(kind: &str, state: &str) -> Option<(String, String)> {
    Some((kind.to_owned(), state.to_owned()))
}

fn key_of_nobody() -> String {
    format!("chk_{}", hex::encode(rand::random::<[u8; 32]>()))
}

/// The list begins before the second that runs now.
async fn a_second_later() {
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
}

async fn in_memory() -> Shop {
    Shop::open_with(Opening { gateway_in_memory: true, ..Opening::default() }).await
}

/// An order, and the payment intent behind it.
async fn placed(shop: &Shop) -> (String, String) {
    let order = shop.order(&fresh_key(), &grinder(VISA)).await;
    (order.expect_order(), order.json()["charge"]["gateway_id"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn each_kind_of_refund_that_no_row_explains_is_named_once_and_none_is_touched() {
    let mut shop = in_memory().await;
    let (order, intent) = placed(&shop).await;
    let (given, refused) = (fresh_key(), fresh_key());
    let booked = shop.refund(&order, &given, Some(100)).await.json()["gateway_id"].as_str().unwrap().to_owned();
    // The gateway refuses: by its books more has gone back than by ours.
    let foreign = shop.refund_under(&intent, None, 4000).await;
    shop.refund(&order, &refused, Some(1000)).await.expect(422, "refund_refused");
    let orphan_refused = shop.refund_under(&intent, Some(&shop.gateway_key_of(&refused).await), 7).await;
    let surplus = shop.refund_under(&intent, Some(&shop.gateway_key_of(&given).await), 8).await;
    let nobody = shop.refund_under(&intent, Some(&key_of_nobody()), 9).await;
    let failed = shop.refund_under(&intent, Some(&key_of_nobody()), 10).await;
    shop.end_refund(&failed, "failed").await;
    a_second_later().await;

    let said = shop.reconcile(&NOW);
    assert!(said.contains("looked at 6 refunds: 4 new findings, 0 explained"), "{said}");
    for (id, kind) in
        [(&foreign, "foreign"), (&orphan_refused, "orphan_refused"), (&surplus, "surplus"), (&nobody, "orphan_unknown")]
    {
        assert_eq!(shop.refund_finding(id).await, is(kind, "open"));
        assert!(said.contains(&**id), "{said}");
    }
    for id in [&booked, &failed] {
        assert_eq!(shop.refund_finding(id).await, None);
    }
    let again = shop.reconcile(&NOW);
    assert!(again.contains(": 0 new findings, 0 explained"), "{again}");
    assert_eq!((shop.captures().await, shop.refunded().await[&intent]), (1, 100 + 4000 + 7 + 8 + 9));
    assert_eq!(shop.audit().await.kinds(), [Kind::RefundMismatch], "the audit names the sum of it");
}

/// As after a restore: the refund is there, and its client comes back when the gateway has forgotten the key, too.
#[tokio::test]
async fn a_client_that_returns_is_answered_by_the_refund_and_explains_it() {
    let shop = in_memory().await;
    let (order, _) = placed(&shop).await;
    let key = fresh_key();
    let first = shop.refund(&order, &key, Some(1000)).await;
    let id = first.json()["gateway_id"].as_str().unwrap().to_owned();
    let forgotten = "DELETE FROM refunds; DELETE FROM idempotency_records WHERE operation = 'orders.refund';
         DELETE FROM outbox WHERE type = 'order.refunded';
         UPDATE orders SET refunded_minor = 0, refund_reserved_minor = 0, status = 'paid', events = 1";
    sqlx::raw_sql(forgotten).execute(&shop.pool).await.unwrap();
    a_second_later().await;
    shop.reconcile(&NOW);
    assert_eq!(shop.refund_finding(&id).await, is("orphan_unknown", "open"));
    let again = shop.refund(&order, &key, Some(1000)).await;
    assert_eq!((again.status, again.json()["gateway_id"].as_str()), (201, Some(&*id)), "{}", again.text());
    let said = shop.reconcile(&NOW);
    assert!(said.contains("refunds: 0 new findings, 1 explained"), "{said}");
    assert_eq!(shop.refund_finding(&id).await, is("orphan_unknown", "explained"));
    shop.close().await;
}

/// Its answer was lost and its key waits: recovery is woken, and finishes it with this refund.
#[tokio::test]
async fn a_refund_whose_key_is_open_for_long_is_finished_and_then_explained() {
    let mut shop = in_memory().await;
    let (order, intent) = placed(&shop).await;
    let key = fresh_key();
    shop.fault("drop_after", 2, 0).await;
    shop.refund(&order, &key, Some(1000)).await.expect(504, "outcome_unknown");
    let id = shop.refunds_of(&intent).await[0].0.clone();
    let asleep =
        "UPDATE idempotency_records SET next_attempt_at = db_clock() + interval '9 days' WHERE state = 'unknown'";
    sqlx::raw_sql(asleep).execute(&shop.pool).await.unwrap();
    a_second_later().await;
    shop.reconcile(&NOW);
    assert_eq!(shop.refund_finding(&id).await, None, "it is young: whoever is at it finds it");
    shop.set_clock("90 s").await;
    sqlx::raw_sql("UPDATE reconciliation_progress SET reached_s = 0").execute(&shop.pool).await.unwrap();
    shop.reconcile(&NOW);
    assert_eq!(shop.refund_finding(&id).await, is("pending", "open"));
    shop.start_worker();
    wait_for("it is finished", async || shop.state_of_operation(REFUND, &key).await == "completed").await;
    shop.reconcile(&NOW);
    assert_eq!(shop.refund_finding(&id).await, is("pending", "explained"));
    shop.close().await;
}

/// No news came: the list shows that they are no longer what we believe.
#[tokio::test]
async fn refunds_that_ended_otherwise_are_brought_to_the_truth_by_the_list() {
    let mut shop = in_memory().await;
    shop.set_gateway(&serde_json::json!({"refund_ends_ms": 3_600_000})).await;
    let order = shop.order(&fresh_key(), &grinder("pm_card_pendingRefund")).await.expect_order();
    let (fails, succeeds) =
        (shop.refund(&order, &fresh_key(), Some(1000)).await, shop.refund(&order, &fresh_key(), Some(500)).await);
    for (refund, ends) in [(&fails, "failed"), (&succeeds, "succeeded")] {
        assert_eq!(refund.json()["status"], "pending");
        shop.end_refund(refund.json()["gateway_id"].as_str().unwrap(), ends).await;
    }
    a_second_later().await;
    let said = shop.reconcile(&NOW);
    assert!(said.contains("looked at 2 refunds: 0 new findings"), "{said}");
    shop.start_worker();
    for (refund, ends) in [(&fails, "failed"), (&succeeds, "succeeded")] {
        let location = refund.location.clone().unwrap();
        wait_for(ends, async || shop.get(&location).await.json()["status"] == ends).await;
    }
    shop.close().await;
}

/// What reconciliation itself gave back is in its own book.
#[tokio::test]
async fn the_reconcilers_own_refunds_are_no_findings() {
    let shop = in_memory().await;
    let orphan = shop.capture_under(Some(&key_of_nobody()), 890, "a").await;
    a_second_later().await;
    shop.reconcile(&NOW);
    shop.set_clock("26 hours").await;
    let said = shop.reconcile(&NOW);
    assert_eq!(shop.finding(&orphan).await, is("orphan_unknown", "refunded"));
    assert!(said.contains("looked at 1 refunds: 0 new findings"), "{said}");
    shop.close().await;
}
