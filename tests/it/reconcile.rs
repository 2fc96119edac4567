//! Two companies' books: what the gateway holds and ours do not explain is found, named once, and given back where that is
//! certain to be right. Where money goes back the gateway's own ledger is asked, capture by capture.

use checkout::audit::Kind;
use serde_json::{Value, json};

use crate::support::{Shop, fresh_key, grinder, wait_for};

const VISA: &str = "pm_card_visa";
const NOW: [&str; 3] = ["--now", "--reconcile-grace-ms", "1"];

fn key_of_nobody() -> String {
    format!("chk_{}", hex::encode(rand::random::<[u8; 32]>()))
}

fn is(kind: &str, state: &str) -> Option<(String, String)> {
    Some((kind.to_owned(), state.to_owned()))
}

/// The list begins before the second that runs now.
async fn a_second_later() {
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
}

#[tokio::test]
async fn each_kind_of_difference_is_named_and_gets_what_it_deserves() {
    let mut shop = Shop::open().await;
    let (bought, declined, unknown) = (fresh_key(), fresh_key(), fresh_key());
    shop.order(&bought, &grinder(VISA)).await.expect_order();
    shop.order(&declined, &grinder("pm_card_chargeDeclined")).await.expect(402, "card_declined");
    shop.fault("drop_before", 2, 0).await;
    shop.order(&unknown, &grinder(VISA)).await.expect(504, "outcome_unknown");
    let matched = shop.ledger().await["captures"][0]["payment_intent"].as_str().unwrap().to_owned();
    let surplus = shop.capture_under(Some(&shop.gateway_key_of(&bought).await), 4299, "a").await;
    let refused = shop.capture_under(Some(&shop.gateway_key_of(&declined).await), 4299, "b").await;
    let pending = shop.capture_under(Some(&shop.gateway_key_of(&unknown).await), 4299, "c").await;
    let nobody = shop.capture_under(Some(&key_of_nobody()), 890, "d").await;
    let foreign = shop.capture_under(None, 100, "e").await;
    let foreign_key = shop.capture_under(Some("order-17"), 100, "f").await;
    a_second_later().await;

    let said = shop.reconcile(&NOW);
    assert!(said.starts_with("looked at 8 payments: 5 new findings, 2 refunded, 0 explained"), "{said}");
    assert_eq!(shop.finding(&matched).await, None);
    assert_eq!(shop.finding(&pending).await, None);
    assert_eq!(shop.finding(&surplus).await, is("surplus", "refunded"));
    assert_eq!(shop.finding(&refused).await, is("orphan_refused", "refunded"));
    assert_eq!(shop.finding(&nobody).await, is("orphan_unknown", "open"));
    assert_eq!(shop.finding(&foreign).await, is("foreign", "open"));
    assert_eq!(shop.finding(&foreign_key).await, is("foreign", "open"));
    let back = shop.refunded().await;
    assert_eq!(back.values().sum::<i64>(), 2 * 4299, "{back:?}");
    assert_eq!((back[&surplus], back[&refused]), (4299, 4299));
    // The listing names them; another round finds nothing new and gives nothing back twice.
    for intent in [&surplus, &refused, &nobody, &foreign] {
        assert!(said.contains(intent), "{said}");
    }
    let again = shop.reconcile(&NOW);
    assert!(again.contains(": 0 new findings, 0 refunded, 0 explained"), "{again}");
    assert_eq!(shop.refunded().await, back);

    // 25 hours later the gateway has forgotten the key of the one that nobody knows.
    shop.set_clock("24 hours 59 minutes").await;
    shop.reconcile(&NOW);
    assert_eq!(shop.finding(&nobody).await, is("orphan_unknown", "open"));
    shop.set_clock("25 hours 1 minute").await;
    shop.reconcile(&NOW);
    assert_eq!(shop.finding(&nobody).await, is("orphan_unknown", "refunded"));
    let back = shop.refunded().await;
    assert_eq!((back[&nobody], back[&matched], back[&pending], back[&foreign], back[&foreign_key]), (890, 0, 0, 0, 0));
    // What was pending for so long is written down, without an alarm, and is explained once its key is settled.
    assert_eq!(shop.finding(&pending).await, is("pending", "open"));
    shop.order(&unknown, &grinder(VISA)).await.expect_order();
    shop.reconcile(&NOW);
    assert_eq!(shop.finding(&pending).await, is("pending", "explained"));

    // What nobody gives back stays what it is: the audit names both that carry no key of ours, and nothing else.
    let report = shop.audit().await;
    assert_eq!((report.kinds(), report.found(Kind::OrphanCharge)), (vec![Kind::OrphanCharge], 2), "{report}");
    assert_eq!(report.counted.refunded, 3, "{report}");
}

#[tokio::test]
async fn a_retry_that_rebuilds_its_order_explains_the_finding() {
    let shop = Shop::open().await;
    let key = fresh_key();
    shop.order(&key, &grinder(VISA)).await.expect_order();
    let intent = shop.ledger().await["captures"][0]["payment_intent"].as_str().unwrap().to_owned();
    // As after a restore: nothing of it is left.
    for table in ["orders", "charges", "idempotency_records", "outbox"] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("DELETE FROM {table}"))).execute(&shop.pool).await.unwrap();
    }
    a_second_later().await;
    shop.reconcile(&NOW);
    assert_eq!(shop.finding(&intent).await, is("orphan_unknown", "open"));
    shop.order(&key, &grinder(VISA)).await.expect_order();
    let said = shop.reconcile(&NOW);
    assert!(said.contains("0 new findings, 0 refunded, 1 explained"), "{said}");
    assert_eq!(shop.finding(&intent).await, is("orphan_unknown", "explained"));
    assert_eq!(shop.captures().await, 1);
    shop.close().await;
}

/// Found, not yet given back, and the gateway has forgotten the key: the finding itself keeps the retry from a second charge.
#[tokio::test]
async fn a_retry_after_the_gateway_forgot_its_key_is_settled_by_the_finding() {
    let shop = Shop::open().await;
    let key = fresh_key();
    shop.order(&key, &grinder(VISA)).await.expect_order();
    for table in ["orders", "charges", "idempotency_records", "outbox"] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("DELETE FROM {table}"))).execute(&shop.pool).await.unwrap();
    }
    a_second_later().await;
    shop.reconcile(&NOW);
    shop.set_gateway(&json!({"search_lag_ms": 1_000_000_000_u64})).await;
    shop.advance_gateway_clock(24 * 3600 + 60).await;
    shop.order(&key, &grinder(VISA)).await.expect_order();
    assert_eq!(shop.captures().await, 1);
    shop.close().await;
}

/// No search shows it and no event came, but the list does: the key is settled by it, and no person is asked any more.
#[tokio::test]
async fn a_charge_that_only_the_list_shows_ends_a_review() {
    let mut shop = Shop::open().await;
    shop.set_gateway(&json!({"search_lag_ms": 1_000_000_000_u64})).await;
    shop.fault("http_500_after", 1, 0).await;
    let key = fresh_key();
    shop.order(&key, &grinder(VISA)).await.expect(504, "outcome_unknown");
    let intent = shop.ledger().await["captures"][0]["payment_intent"].as_str().unwrap().to_owned();
    shop.set_clock("25 hours").await;
    shop.order(&key, &grinder(VISA)).await.expect(504, "outcome_unknown");
    assert_eq!(shop.state_of(&key).await, "needs_review");
    shop.start_worker();
    wait_for("it is settled", async || shop.state_of(&key).await == "completed").await;
    shop.reconcile(&NOW);
    assert_eq!(shop.finding(&intent).await, is("pending", "explained"));
    assert_eq!((shop.captures().await, shop.count("orders").await, shop.count("reviews").await), (1, 1, 0));
    shop.close().await;
}

/// Decided and not done, or done and not written down: the same refund under the same key, once. Meanwhile nobody may settle
/// by a charge that goes back.
#[tokio::test]
async fn a_death_between_decision_and_refund_is_followed_by_the_same_refund_once() {
    let shop = Shop::open().await;
    let intents = [
        shop.capture_under(Some(&key_of_nobody()), 890, "a").await,
        shop.capture_under(Some(&key_of_nobody()), 890, "b").await,
    ];
    a_second_later().await;
    shop.reconcile(&NOW);
    // Both died after the decision, one of them after the gateway had executed it.
    let died = "UPDATE reconciliation_findings SET state = 'refunding'";
    assert_eq!(sqlx::raw_sql(died).execute(&shop.pool).await.unwrap().rows_affected(), 2);
    let sent = [
        ("payment_intent", intents[0].clone()),
        ("amount", "890".to_owned()),
        ("metadata[checkout_key]", format!("chr_{}", intents[0])),
    ];
    let request = shop.http.post(format!("{}/v1/refunds", shop.gateway_url)).bearer_auth("sk_test_checkout");
    let made = request.header("Idempotency-Key", format!("chr_{}", intents[0])).form(&sent).send().await.unwrap();
    assert!(made.status().is_success());
    let made: Value = made.json().await.unwrap();

    let said = shop.reconcile(&NOW);
    assert!(said.contains("2 refunded"), "{said}");
    let refund_id: Option<String> =
        sqlx::query_scalar("SELECT refund_id FROM reconciliation_findings WHERE payment_intent = $1")
            .bind(&intents[0])
            .fetch_one(&shop.pool)
            .await
            .unwrap();
    assert_eq!(refund_id.as_deref(), made["id"].as_str(), "the refund that was made before, recognised by its key");
    assert_eq!(shop.refunded().await.into_values().collect::<Vec<_>>(), [890, 890]);
    shop.close().await;
}

/// A charge that somebody at the gateway gave back already, and one whose refund is lost on the way.
#[tokio::test]
async fn a_refund_of_unknown_outcome_is_sent_again_until_it_is_known() {
    let shop = Shop::open().await;
    let lost = shop.capture_under(Some(&key_of_nobody()), 890, "a").await;
    let given_back = shop.capture_under(Some(&key_of_nobody()), 390, "b").await;
    a_second_later().await;
    shop.reconcile(&NOW);
    let request = shop.http.post(format!("{}/v1/refunds", shop.gateway_url)).bearer_auth("sk_test_checkout");
    assert!(request.form(&[("payment_intent", &*given_back)]).send().await.unwrap().status().is_success());
    shop.set_clock("26 hours").await;
    shop.fault("drop_after", 1, 0).await;
    shop.reconcile(&NOW);
    let mut states = [shop.finding(&lost).await.unwrap().1, shop.finding(&given_back).await.unwrap().1];
    states.sort();
    assert_ne!(states, ["refunded", "refunded"], "one answer was lost");
    shop.reconcile(&NOW);
    for intent in [&lost, &given_back] {
        assert_eq!(shop.finding(intent).await, is("orphan_unknown", "refunded"));
    }
    let back = shop.refunded().await;
    assert_eq!((back[&lost], back[&given_back]), (890, 390));
    shop.close().await;
}

/// More than a page, and two at it at once: each is found once, and each goes back once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_reconcilers_at_once_page_through_everything_and_refund_once() {
    let mut shop = Shop::open().await;
    let mut intents = Vec::new();
    for serial in 0..230 {
        let key = key_of_nobody();
        let gateway_key = (serial % 2 == 0).then_some(key.as_str());
        intents.push(shop.capture_under(gateway_key, 390, &format!("k{serial}")).await);
    }
    a_second_later().await;
    tokio::task::block_in_place(|| shop.reconcile(&NOW));
    let mut found: Vec<String> = shop.findings().await.into_iter().map(|(intent, ..)| intent).collect();
    found.sort();
    intents.sort();
    assert_eq!(found, intents);
    shop.set_clock("26 hours").await;
    let both = [(); 2].map(|()| shop.reconcile_command(&NOW).spawn().unwrap());
    for mut round in both {
        assert!(tokio::task::block_in_place(|| round.wait().unwrap()).success());
    }
    // A refund that met the other one's at the gateway is known a round later.
    tokio::task::block_in_place(|| shop.reconcile(&NOW));
    let back = shop.refunded().await;
    assert_eq!((back.len(), back.values().sum::<i64>()), (230, 115 * 390));
    let findings = shop.findings().await;
    assert_eq!(findings.iter().filter(|(.., state)| state == "refunded").count(), 115);
    // The other half carries no key of ours: nobody gives that back, and the audit names it.
    let report = shop.audit().await;
    assert_eq!((report.kinds(), report.found(Kind::OrphanCharge)), (vec![Kind::OrphanCharge], 115), "{report}");
    assert_eq!(report.counted.refunded, 115, "{report}");
}

/// In the worker: under its lease, by itself, and with a word to whoever is on duty.
#[tokio::test]
async fn the_worker_reconciles_by_itself_and_raises_an_alarm_once() {
    let flags = vec!["--reconcile-pause-ms", "50", "--reconcile-grace-ms", "1"];
    let mut shop = Shop::open().await;
    let key = fresh_key();
    shop.order(&key, &grinder(VISA)).await.expect_order();
    let surplus = shop.capture_under(Some(&shop.gateway_key_of(&key).await), 4299, "a").await;
    shop.start_worker_with(&flags);
    wait_for("it is given back", async || shop.finding(&surplus).await == is("surplus", "refunded")).await;
    assert_eq!(shop.refunded().await[&surplus], 4299);
    let worker = shop.worker.as_mut().unwrap();
    assert!(worker.stop().success());
    let said = worker.stderr();
    assert_eq!(said.matches("ALARM").count(), 1, "{said}");
    shop.close().await;
}
