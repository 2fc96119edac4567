//! Charges that stand alone: the protocol of an order without one.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{Answer, Opening, Shop, fresh_key, grinder, wait_for};

const PATH: &str = "/v1/charges";
const CHARGE: &str = "charges.create";

async fn with_worker() -> Shop {
    Shop::open_with(Opening { gateway_in_memory: true, worker: true, ..Opening::default() }).await
}

fn of(amount: i64) -> Value {
    json!({"amount": amount, "currency": "eur", "payment_method": "pm_card_visa"})
}

fn created(answer: &Answer) -> Value {
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn a_charge_is_taken_once_shown_where_it_says_booked_and_told() {
    let shop = with_worker().await;
    let key = fresh_key();
    let mut body = of(1250);
    body["client_reference"] = json!("invoice 7");
    let answers = join_all((0..16).map(|_| shop.post(PATH, &key, &body))).await;
    let fresh: Vec<_> = answers.iter().filter(|answer| answer.status == 201 && !answer.replayed).collect();
    assert_eq!(fresh.len(), 1, "{answers:?}");
    let charge = created(fresh[0]);
    let replay = shop.post(PATH, &key, &body).await;
    assert_eq!((replay.replayed, &replay.body), (true, &fresh[0].body));
    let mut found = shop.get(fresh[0].location.as_deref().unwrap()).await.json();
    found["request_id"] = charge["request_id"].clone();
    assert_eq!(found, charge);
    assert_eq!(shop.state_of_operation(CHARGE, &key).await, "completed");

    let capture = shop.ledger().await["captures"][0].clone();
    assert_eq!(
        (shop.captures().await, &capture["amount"], &capture["reference"]),
        (1, &json!(1250), &json!("invoice 7"))
    );
    shop.wait_until_quiet().await;
    assert_eq!(shop.count("ledger_entries WHERE account = 'gateway' AND amount_minor = 1250").await, 1);
    let mails = shop.mails().await;
    assert_eq!((mails.len(), shop.count("orders").await), (1, 0));
    shop.close().await;
}

#[tokio::test]
async fn a_decline_is_final_an_unknown_outcome_is_not_and_a_reused_key_is_neither() {
    let mut shop = Shop::open().await;
    let (declined, unknown) = (fresh_key(), fresh_key());
    let mut refused = of(100);
    refused["payment_method"] = json!("pm_card_visa_chargeDeclinedInsufficientFunds");
    let first = shop.post(PATH, &declined, &refused).await;
    assert_eq!(first.expect(402, "card_declined").json()["decline_code"], "insufficient_funds");
    let again = shop.post(PATH, &declined, &refused).await;
    assert_eq!((again.replayed, again.body), (true, first.body));
    shop.post(PATH, &declined, &of(100)).await.expect(422, "idempotency_key_reused");

    shop.fault("drop_after", 2, 0).await;
    shop.post(PATH, &unknown, &of(200)).await.expect(504, "outcome_unknown");
    shop.start_worker();
    wait_for("the charge is finished", async || shop.state_of_operation(CHARGE, &unknown).await == "completed").await;
    assert_eq!(created(&shop.post(PATH, &unknown, &of(200)).await)["amount"], 200);
    assert_eq!(shop.captures().await, 1);
    shop.close().await;
}

#[tokio::test]
async fn lists_are_ones_own_newest_first_and_page_through_everything_once() {
    let shop = with_worker().await;
    let mut orders = Vec::new();
    for amount in 1..=5 {
        created(&shop.post(PATH, &fresh_key(), &of(amount)).await);
        orders.push(shop.order(&fresh_key(), &grinder("pm_card_visa")).await.expect_order());
    }
    shop.order_as(7, &fresh_key(), &grinder("pm_card_visa")).await.expect_order();

    let mut paged = Vec::new();
    let mut path = "/v1/orders?limit=2".to_owned();
    loop {
        let page = shop.get(&path).await.json();
        paged.extend(page["data"].as_array().unwrap().iter().map(|order| order["id"].as_str().unwrap().to_owned()));
        if page["has_more"] == false {
            break;
        }
        assert_eq!(page["next"], json!(paged.last()));
        path = format!("/v1/orders?limit=2&starting_after={}", page["next"].as_str().unwrap());
    }
    orders.reverse();
    assert_eq!(paged, orders);

    let charges = shop.get(PATH).await.json();
    let amounts: Vec<_> = charges["data"].as_array().unwrap().iter().map(|charge| charge["amount"].as_i64()).collect();
    assert_eq!(amounts, [5, 4, 3, 2, 1].map(Some), "an order's charges are not in this list");
    let of_order = shop.get(&format!("/v1/orders/{}", orders[0])).await.json()["charge"]["id"].clone();
    let found = shop.get(&format!("{PATH}/{}", of_order.as_str().unwrap())).await;
    assert_eq!((found.status, &found.json()["amount"]), (200, &json!(4299)));
    for path in ["/v1/orders?limit=0", "/v1/orders?starting_after=x", "/v1/charges?page=2"] {
        shop.get(path).await.expect(422, "validation_failed");
    }
    assert_eq!(shop.get_as(8, PATH).await.json(), json!({"data": [], "has_more": false}));
    shop.close().await;
}
