//! What customers tell of themselves: set as often as one likes, with no key and no record, and heard by their receipts.

use std::collections::BTreeMap;

use checkout::{
    ids::{EventId, OrderId},
    receipts::store::{self, Addressed},
    wire::event::Event,
};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::support::{Answer, CUSTOMER, Opening, Shop, TestDatabase, answer, fresh_key, grinder, wait_for};

const PATH: &str = "/v1/customers/me/email";

async fn set(shop: &Shop, customer: i64, body: &Value) -> Answer {
    answer(shop.http.put(format!("{}{PATH}", shop.api_url)).bearer_auth(shop.token(customer)).json(body)).await
}

#[tokio::test]
async fn setting_an_address_again_changes_nothing_and_leaves_no_record() {
    let shop = Shop::open().await;
    shop.get(PATH).await.expect(404, "not_found");
    let first = set(&shop, CUSTOMER, &json!({"email": "ada@example.com"})).await;
    assert_eq!((first.status, &first.json()["email"]), (200, &json!("ada@example.com")));
    let again = set(&shop, CUSTOMER, &json!({"email": "ada@example.com"})).await;
    assert_eq!((again.status, again.replayed, &again.body), (200, false, &first.body), "not even its time moves");
    let other = set(&shop, CUSTOMER, &json!({"email": "ada@example.org"})).await;
    assert_ne!(other.json()["updated_at"], first.json()["updated_at"]);
    assert_eq!(shop.get(PATH).await.body, other.body);
    shop.get_as(7, PATH).await.expect(404, "not_found");
    for wrong in [json!({}), json!({"email": "ada"}), json!({"email": "a@b.de", "customer_id": 7}), json!([])] {
        set(&shop, CUSTOMER, &wrong).await.expect(422, "validation_failed");
    }
    assert_eq!((shop.count("customers").await, shop.count("idempotency_records").await), (1, 0));
    shop.close().await;
}

async fn set_to(shop: &Shop, customer: i64, email: &str) {
    assert_eq!(set(shop, customer, &json!({ "email": email })).await.status, 200);
}

async fn sold_to(shop: &Shop, customer: i64) -> String {
    shop.order_as(customer, &fresh_key(), &grinder("pm_card_visa")).await.expect_order()
}

/// Where each order's mails went, sorted.
async fn recipients_of(shop: &Shop, order: &str) -> Vec<String> {
    let mails = shop.mails().await;
    let about = mails.iter().filter(|mail| mail["tags"]["order_id"] == order);
    let mut recipients: Vec<String> = about.map(|mail| mail["to"].as_str().expect("a recipient").to_owned()).collect();
    recipients.sort();
    recipients
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receipt_goes_to_the_address_that_is_set_when_it_is_made_out() {
    let shop = Shop::open_with(Opening { gateway_in_memory: true, worker: true, ..Opening::default() }).await;
    let charge = json!({"amount": 500, "currency": "eur", "payment_method": "pm_card_visa"});
    let before = sold_to(&shop, CUSTOMER).await;
    shop.wait_until_quiet().await;
    set_to(&shop, CUSTOMER, "ada@example.org").await;
    let first = sold_to(&shop, CUSTOMER).await;
    let strangers = sold_to(&shop, 7).await;
    shop.wait_until_quiet().await;
    set_to(&shop, CUSTOMER, "grace@example.net").await;
    let second = sold_to(&shop, CUSTOMER).await;
    assert_eq!(shop.refund(&first, &fresh_key(), Some(1000)).await.status, 201);
    let charged = shop.post("/v1/charges", &fresh_key(), &charge).await.json();
    shop.wait_until_quiet().await;

    assert_eq!(recipients_of(&shop, &before).await, ["customer-42@example.com"]);
    assert_eq!(recipients_of(&shop, &first).await, ["ada@example.org", "grace@example.net"], "the receipt, the refund");
    assert_eq!(recipients_of(&shop, &strangers).await, ["customer-7@example.com"]);
    assert_eq!(recipients_of(&shop, &second).await, ["grace@example.net"]);
    let mails = shop.mails().await;
    let mail = mails.iter().find(|mail| mail["tags"]["charge_id"] == charged["id"]).expect("a mail");
    assert_eq!(mail["to"], "grace@example.net");
    assert_eq!((shop.count("receipts").await, shop.count("receipt_recipients").await), (6, 0));
    shop.close().await;
}

/// Whether the failed send delivered the mail or not: the one that comes again is the same, byte for byte, and there is one. The
/// mail service would refuse another one under its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_changes_between_a_failed_delivery_and_its_retry_changes_no_mail() {
    for (fault, delivered_meanwhile) in [("unavailable_before", 0), ("http_500_after", 3)] {
        let mut shop = Shop::open_with(Opening { gateway_in_memory: true, ..Opening::default() }).await;
        set_to(&shop, 1, "one@example.org").await;
        set_to(&shop, 2, "two@example.org").await;
        let orders = [sold_to(&shop, 1).await, sold_to(&shop, 2).await, sold_to(&shop, 3).await];
        shop.mail_fault(&json!({"name": fault, "probability": 1.0})).await;
        shop.start_worker();
        wait_for("each mail was made out", async || shop.count("receipt_recipients").await == 3).await;
        wait_for("each was sent", async || shop.mail_stats().await["faults"][fault].as_u64() >= Some(3)).await;
        wait_for("as many are delivered", async || shop.mails().await.len() == delivered_meanwhile).await;

        set_to(&shop, 1, "changed@example.org").await;
        set_to(&shop, 3, "new@example.org").await;
        let cleared = shop.http.delete(format!("{}/_mock/faults", shop.mail_url)).send().await.expect("sent");
        assert!(cleared.status().is_success());
        shop.wait_until_quiet().await;

        for (order, recipient) in orders.iter().zip(["one@example.org", "two@example.org", "customer-3@example.com"]) {
            assert_eq!(recipients_of(&shop, order).await, [recipient], "{fault}");
        }
        assert_eq!(shop.mail_stats().await["mismatches"], 0, "{fault}: the same mail came again");
        assert_eq!((shop.count("receipts").await, shop.count("receipt_recipients").await), (3, 0), "{fault}");
        shop.close().await;
    }
}

/// Two consumers may have one event, when one was late for its lease: the first address counts for both, and is not kept once
/// the mail is booked, whoever comes afterwards.
#[tokio::test]
async fn a_mail_is_addressed_once_whoever_comes_when() {
    let pool = TestDatabase::create().await.pool().await;
    let (order, event) = (OrderId::mint(), EventId::mint());
    let addressed = async |recipient: &str| {
        let mut tx = pool.begin().await.expect("a transaction");
        let recipients = BTreeMap::from([(event, recipient.to_owned())]);
        let mut addressed = store::address(&mut tx, &recipients).await.expect("addressed");
        tx.commit().await.expect("committed");
        addressed.remove(&event).expect("an address")
    };
    let kept = async || {
        let count: i64 =
            sqlx::query_scalar("SELECT count(*) FROM receipt_recipients").fetch_one(&pool).await.expect("a count");
        count
    };
    assert_eq!(addressed("ada@example.org").await, Addressed::To("ada@example.org".to_owned()));
    assert_eq!(addressed("grace@example.net").await, Addressed::To("ada@example.org".to_owned()));
    assert_eq!(kept().await, 1);

    let now = OffsetDateTime::UNIX_EPOCH;
    let event_sent = Event {
        id: event,
        day: now.date(),
        aggregate: order.into(),
        sequence: 1,
        kind: "order.created".to_owned(),
        payload: String::new(),
        occurred_at: now,
    };
    let mut tx = pool.begin().await.expect("a transaction");
    store::record(&mut tx, &[(&event_sent, "mail_1")]).await.expect("recorded");
    tx.commit().await.expect("committed");
    assert_eq!(kept().await, 0);
    assert_eq!(addressed("grace@example.net").await, Addressed::Sent { mail_id: "mail_1".to_owned() });
    assert_eq!(kept().await, 0, "nothing is under way");
}
