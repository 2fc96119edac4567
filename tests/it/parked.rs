//! A mail that its service will not take: that customer's receipt is parked, everybody else's flow, and a person sends it on.

use checkout::{audit::Kind, parking::ATTEMPTS_MAX};
use serde_json::json;

use crate::support::{CUSTOMER, Opening, Process, Shop, fresh_key, grinder, wait_for};

const UNLUCKY: i64 = 7;

/// Runs `checkout parked` and returns what it printed, or what it complained of.
fn parked(shop: &Shop, arguments: &[&str]) -> Result<String, String> {
    let mut command = Process::command(&["parked"]);
    command.args(arguments).env("DATABASE_URL", &shop.database.url);
    let output = command.output().expect("the program under test");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

async fn mails_to(shop: &Shop, customer: i64) -> usize {
    let to = json!(format!("customer-{customer}@example.com"));
    shop.mails().await.iter().filter(|mail| mail["to"] == to).count()
}

#[tokio::test]
async fn a_receipt_the_mail_service_refuses_is_parked_listed_and_sent_on_and_arrives_once() {
    let mut shop = Shop::open_with(Opening { gateway_in_memory: true, worker: true, ..Opening::default() }).await;
    assert!(parked(&shop, &[]).unwrap().contains("no event is parked"));
    shop.mail_fault(&json!({"name": "reject", "to": format!("customer-{UNLUCKY}@example.com")})).await;
    let order = shop.order_as(UNLUCKY, &fresh_key(), &grinder("pm_card_visa")).await.expect_order();
    for _ in 0..5 {
        shop.order(&fresh_key(), &grinder("pm_card_visa")).await.expect_order();
    }
    wait_for("everybody else has a receipt", async || mails_to(&shop, CUSTOMER).await == 5).await;
    // The pauses between the tries are the database's: its clock is moved past each.
    for failures in 1..=ATTEMPTS_MAX {
        wait_for("it has failed once more", async || {
            shop.count(&format!("parked_events WHERE attempts >= {failures}")).await == 1
        })
        .await;
        shop.set_clock(&format!("{failures} minutes")).await;
    }
    wait_for("it is parked", async || shop.count("parked_events WHERE next_attempt_at IS NULL").await == 1).await;
    shop.wait_until_quiet().await;
    let report = shop.audit().await;
    assert_eq!((report.kinds(), report.found(Kind::Parked)), (vec![Kind::Parked], 1), "{report}");
    let event = report.anomalies[0].ids[0].clone();
    assert_eq!(report.anomalies[0].ids[1], order);

    let listing = parked(&shop, &["--stage", "receipts"]).unwrap();
    for said in [&event, &order, "at receipts", "order.created 1", "5 failures, 0 behind it", "1 parked"] {
        assert!(listing.contains(said), "{said} is missing in:\n{listing}");
    }
    assert!(parked(&shop, &["--stage", "ledger"]).unwrap().contains("no event is parked"));
    assert!(
        parked(&shop, &["--redrive", &event, "--stage", "ledger"]).unwrap_err().contains("no such event is parked")
    );
    assert!(parked(&shop, &["--redrive", "banana"]).is_err());
    assert!(parked(&shop, &["--help"]).unwrap().contains("--redrive all --stage receipts"));
    assert_eq!(mails_to(&shop, UNLUCKY).await, 0);

    let cleared = shop.http.delete(format!("{}/_mock/faults", shop.mail_url)).send().await.expect("sent");
    assert!(cleared.status().is_success());
    assert!(parked(&shop, &["--redrive", &event]).unwrap().contains("1 sent on"));
    wait_for("the receipt has arrived", async || shop.count("receipts").await == 6).await;
    shop.wait_until_quiet().await;
    assert_eq!((mails_to(&shop, UNLUCKY).await, mails_to(&shop, CUSTOMER).await), (1, 5));
    assert!(parked(&shop, &["--redrive", "all"]).unwrap().contains("0 sent on"));
    shop.close().await;
}
