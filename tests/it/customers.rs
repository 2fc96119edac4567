//! What is naturally idempotent: no key, no record, and the same answer however often.

use serde_json::{Value, json};

use crate::support::{Answer, CUSTOMER, Shop, answer};

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
