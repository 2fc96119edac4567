//! What happens after the answer: events, effects and retention. Cases 15, 16 and 17.

use serde_json::json;

use crate::support::{CUSTOMER, Opening, Shop, fresh_key, grinder, wait_for};

const VISA: &str = "pm_card_visa";
const UNLUCKY: i64 = 7;

fn in_memory() -> Opening {
    Opening { gateway_in_memory: true, ..Opening::default() }
}

async fn mails_to(shop: &Shop, customer: i64) -> usize {
    let to = json!(format!("customer-{customer}@example.com"));
    shop.mails().await.iter().filter(|mail| mail["to"] == to).count()
}

/// The effect fails three times, and while it fails nothing says that it was done.
#[tokio::test]
async fn b15_an_event_whose_effect_failed_is_not_taken_for_a_duplicate() {
    let mut shop = Shop::open_with(in_memory()).await;
    shop.mail_fault(&json!({"name": "reject", "to": format!("customer-{CUSTOMER}@example.com")})).await;
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                      $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = 'check_violation', CONSTRAINT = 'not_now'; END $$;
                  CREATE TRIGGER refuse BEFORE INSERT ON ledger_entries FOR EACH ROW EXECUTE FUNCTION refuse()";
    sqlx::raw_sql(refuse).execute(&shop.pool).await.unwrap();
    shop.order(&fresh_key(), &grinder(VISA)).await.expect_order();
    shop.start_worker();
    for failures in 1..=3 {
        wait_for("both effects have failed once more", async || {
            shop.count(&format!("parked_events WHERE attempts >= {failures}")).await == 2
        })
        .await;
        let done = [shop.count("processed").await, shop.count("ledger_entries").await, shop.count("receipts").await];
        assert_eq!((done, shop.mails().await.len()), ([0, 0, 0], 0), "after {failures}");
        if failures < 3 {
            shop.set_clock(&format!("{failures} minutes")).await;
        }
    }
    sqlx::raw_sql("DROP TRIGGER refuse ON ledger_entries").execute(&shop.pool).await.unwrap();
    shop.http.delete(format!("{}/_mock/faults", shop.mail_url)).send().await.expect("sent");
    shop.set_clock("10 minutes").await;
    wait_for("both effects are there", async || shop.count("processed").await == 2).await;
    shop.wait_until_quiet().await;
    assert_eq!((shop.count("ledger_entries").await, shop.count("receipts").await, shop.mails().await.len()), (2, 1, 1));
    shop.close().await;
}

/// The oldest events all fail, there are two workers, and everybody else's events go past them, once.
#[tokio::test]
async fn b16_the_oldest_that_fail_starve_nobody_and_two_workers_repeat_nothing() {
    let mut shop = Shop::open_with(in_memory()).await;
    shop.mail_fault(&json!({"name": "reject", "to": format!("customer-{UNLUCKY}@example.com")})).await;
    let place = async |customer: i64, count: usize| {
        for _ in 0..count {
            shop.order_as(customer, &fresh_key(), &grinder(VISA)).await.expect_order();
        }
    };
    place(UNLUCKY, 40).await;
    place(CUSTOMER, 20).await;
    shop.start_worker();
    let first = shop.worker.take();
    shop.start_worker();
    wait_for("everybody else has a receipt", async || mails_to(&shop, CUSTOMER).await == 20).await;
    wait_for("all that fail were tried", async || shop.count("parked_events WHERE attempts >= 1").await == 40).await;
    assert_eq!((shop.count("receipts").await, mails_to(&shop, UNLUCKY).await), (20, 0));

    shop.http.delete(format!("{}/_mock/faults", shop.mail_url)).send().await.expect("sent");
    shop.set_clock("5 minutes").await;
    wait_for("everybody has a receipt", async || shop.count("receipts").await == 60).await;
    shop.wait_until_quiet().await;
    assert_eq!((mails_to(&shop, UNLUCKY).await, mails_to(&shop, CUSTOMER).await), (40, 20));
    assert_eq!((shop.count("ledger_entries").await, shop.count("outbox WHERE sent_at IS NULL").await), (120, 0));
    assert_eq!(shop.count("parked_events").await, 0);
    drop(first);
    shop.close().await;
}

/// Nobody worked for four days: an event is unsent, one key in flight, one outcome unknown. Upkeep comes first, and drops none.
#[tokio::test]
async fn b17_retention_leaves_what_is_unfinished() {
    let api_crash = "order.claimed:kill:3".to_owned();
    let mut shop = Shop::open_with(Opening { api_crash, ..in_memory() }).await;
    let (sent, unknown, in_flight) = (fresh_key(), fresh_key(), fresh_key());
    shop.order(&sent, &grinder(VISA)).await.expect_order();
    shop.set_gateway(&json!({"search_lag_ms": 3_600_000})).await;
    shop.fault("http_500_after", 1, 0).await;
    shop.order(&unknown, &grinder(VISA)).await.expect(504, "outcome_unknown");
    assert!(shop.order_in_background(&in_flight).await.unwrap().is_err(), "an answer of a dead api");
    assert_eq!(shop.count("outbox WHERE sent_at IS NULL").await, 1);

    shop.set_clock("4 days").await;
    shop.advance_gateway_clock(4 * 86_400).await;
    shop.reconcile_nothing().await;
    shop.start_worker();
    shop.restart_api();
    wait_for("the old outcome is found", async || shop.state_of(&unknown).await == "completed").await;
    wait_for("the key nobody sent is for a person", async || shop.state_of(&in_flight).await == "needs_review").await;
    wait_for("both receipts are out", async || shop.mails().await.len() == 2).await;
    assert_eq!((shop.captures().await, shop.count("orders").await), (2, 2));
    shop.order(&in_flight, &grinder(VISA)).await.expect(504, "outcome_unknown");
    shop.order(&sent, &grinder(VISA)).await.expect(410, "idempotency_key_expired");
    shop.close().await;
}
