//! Who may do what. Question: at every route, what do its owner, another customer, the operator and nobody get?
//!
//! The routes are read off the page that declares them: a new one without a row here fails, and so does a row without a route.

use std::{collections::BTreeSet, time::Duration};

use checkout::{
    credential::{Credentials, Subject},
    ids::CustomerId,
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, CUSTOMER, SECRET, Shop, answer, fresh_key, grinder};

const OTHER: i64 = 7;

/// Where all routes are declared.
const ROUTES: &str = include_str!("../../src/http/mod.rs");

/// One route, and the status for the owner, another customer, the operator and nobody. `{order}` and `{key}` are the owner's.
struct Row {
    method: &'static str,
    route: &'static str,
    /// The target, where it is not the route itself.
    target: &'static str,
    owner: u16,
    other: u16,
    operator: u16,
    nobody: u16,
}

const fn row(
    method: &'static str,
    route: &'static str,
    target: &'static str,
    [owner, other, operator, nobody]: [u16; 4],
) -> Row {
    Row { method, route, target, owner, other, operator, nobody }
}

const ORDERS: &str = "/v1/orders";
const REFUNDS: &str = "/v1/orders/{id}/refunds";
const CHARGES: &str = "/v1/charges";
const EMAIL: &str = "/v1/customers/me/email";

/// Reading comes before writing: what another customer does under the same key is theirs, and there afterwards.
const TABLE: [Row; 20] = [
    row(
        "GET",
        "/v1/idempotency-keys/{operation}/{key}",
        "/v1/idempotency-keys/orders.create/{key}",
        [200, 404, 401, 401],
    ),
    row("GET", "/v1/orders/{id}", "/v1/orders/{order}", [200, 404, 401, 401]),
    row("GET", REFUNDS, "/v1/orders/{order}/refunds", [200, 404, 401, 401]),
    row("GET", "/v1/orders/{id}/refunds/{refund_id}", "/v1/orders/{order}/refunds/{refund}", [200, 404, 401, 401]),
    row("GET", "/v1/charges/{id}", "/v1/charges/{charge}", [200, 404, 401, 401]),
    row("GET", EMAIL, EMAIL, [200, 404, 401, 401]),
    // Lists are one's own; another customer's are empty.
    row("GET", ORDERS, ORDERS, [200, 200, 401, 401]),
    row("GET", CHARGES, CHARGES, [200, 200, 401, 401]),
    // Everybody buys for himself, also under a key that somebody else uses.
    row("POST", ORDERS, ORDERS, [201, 201, 401, 401]),
    row("POST", CHARGES, CHARGES, [201, 201, 401, 401]),
    row("POST", REFUNDS, "/v1/orders/{order}/refunds", [201, 404, 401, 401]),
    row("PUT", EMAIL, EMAIL, [200, 200, 401, 401]),
    // Only the gateway's signature counts, and none of these has one.
    row("POST", "/v1/webhooks/gateway", "/v1/webhooks/gateway", [400, 400, 400, 400]),
    row("GET", "/docs", "/docs", [200, 200, 200, 200]),
    row("GET", "/docs/problems", "/docs/problems", [200, 200, 200, 200]),
    row("GET", "/openapi.json", "/openapi.json", [200, 200, 200, 200]),
    row("GET", "/metrics", "/metrics", [200, 200, 200, 200]),
    row("GET", "/operator/requests", "/operator/requests", [404, 404, 200, 401]),
    row("GET", "/livez", "/livez", [200, 200, 200, 200]),
    row("GET", "/readyz", "/readyz", [200, 200, 200, 200]),
];

/// What each operation takes.
fn body(row: &Row) -> Value {
    match row.route {
        CHARGES => json!({"amount": 4299, "currency": "eur", "payment_method": "pm_card_visa"}),
        REFUNDS => json!({"amount": 1000}),
        EMAIL => json!({"email": "ada@example.com"}),
        _ => grinder("pm_card_visa"),
    }
}

/// Method and path of every `.route(…)`.
fn declared() -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for rest in ROUTES.split(".route(").skip(1) {
        let (path, handlers) =
            rest.trim_start().strip_prefix('"').and_then(|rest| rest.split_once('"')).expect("a path");
        let mut depth = 1;
        let end = handlers.find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        let handlers = &handlers[..end.expect("its end")];
        let before = found.len();
        for method in ["get", "post", "put", "patch", "delete", "any"] {
            let named = |(at, _): (usize, &str)| !handlers[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            if handlers.match_indices(&format!("{method}(")).any(named) {
                found.insert((method.to_uppercase(), path.to_owned()));
            }
        }
        assert!(found.len() > before, "no method is read off {path}: {handlers}");
    }
    found
}

#[test]
fn every_route_has_its_row_and_every_row_its_route() {
    let rows: BTreeSet<(String, String)> =
        TABLE.iter().map(|row| (row.method.to_owned(), row.route.to_owned())).collect();
    let routes = declared();
    assert!(routes.len() >= 8, "{routes:?}");
    let (without_row, without_route) = (routes.difference(&rows), rows.difference(&routes));
    let broken: Vec<String> = without_row
        .map(|route| format!("{route:?} has no row"))
        .chain(without_route.map(|row| format!("{row:?} is no route")))
        .collect();
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
    // Another way to declare one would not be read.
    for word in [".nest(", ".merge(", ".route_service(", ".nest_service("] {
        assert!(!ROUTES.contains(word), "{word} hides routes from this table");
    }
}

#[tokio::test]
async fn at_every_route_everybody_gets_what_is_theirs() {
    let shop = Shop::open().await;
    let credentials = Credentials::new(SECRET).unwrap();
    let token = |subject| credentials.mint(subject, Duration::from_secs(600)).unwrap();
    let customer = |id| Some(token(Subject::Customer(CustomerId(id))));
    let everybody = [
        ("the owner", customer(CUSTOMER)),
        ("another customer", customer(OTHER)),
        ("the operator", Some(token(Subject::Operator))),
        ("nobody", None),
    ];
    let key = fresh_key();
    let order = shop.order(&key, &grinder("pm_card_visa")).await.expect_order();
    let id = |answer: Answer| answer.json()["id"].as_str().expect("an id").to_owned();
    let refund = id(shop.refund(&order, &key, Some(1000)).await);
    let charge = json!({"amount": 4299, "currency": "eur", "payment_method": "pm_card_visa"});
    let charge = id(shop.post(CHARGES, &key, &charge).await);
    let email = shop.http.put(format!("{}{EMAIL}", shop.api_url)).bearer_auth(shop.token(CUSTOMER));
    assert_eq!(answer(email.json(&json!({"email": "ada@example.com"}))).await.status, 200);
    let mut wrong = Vec::new();
    for row in &TABLE {
        let target = [("{order}", &order), ("{refund}", &refund), ("{charge}", &charge), ("{key}", &key)]
            .iter()
            .fold(row.target.to_owned(), |target, (name, value)| target.replace(name, value));
        for ((who, token), status) in everybody.iter().zip([row.owner, row.other, row.operator, row.nobody]) {
            let method: Method = row.method.parse().unwrap();
            let request = shop.http.request(method, format!("{}{target}", shop.api_url));
            let request = token.iter().fold(request, |request, token| request.bearer_auth(token));
            let request = request.header("Idempotency-Key", &key).json(&body(row));
            let heard = answer(request).await;
            if heard.status != status {
                wrong.push(format!("{} {target} for {who}: {} instead of {status}", row.method, heard.status));
            }
            // What is not theirs is as if it were not there, and says no word of it.
            let not_theirs =
                status >= 400 || (row.method == "GET" && *who == "another customer" && row.route.starts_with("/v1/"));
            if not_theirs && [&order, &refund, &charge].iter().any(|id| heard.text().contains(*id)) {
                wrong.push(format!("{} {target} for {who} tells of it: {}", row.method, heard.text()));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    let of = async |customer: i64| shop.count(&format!("orders WHERE customer_id = {customer}")).await;
    assert_eq!((of(CUSTOMER).await, of(OTHER).await, shop.count("orders").await), (1, 1, 2));
    shop.close().await;
}

/// A stranger's order and one that never was are the same answer, but for the id of the request.
#[tokio::test]
async fn nobody_learns_that_a_strangers_object_exists() {
    let shop = Shop::open().await;
    let key = fresh_key();
    let order = shop.order(&key, &grinder("pm_card_visa")).await.expect_order();
    for (theirs, nowhere) in [
        (format!("/v1/orders/{order}"), "/v1/orders/0190b8a0-0000-7000-8000-000000000000".to_owned()),
        (
            format!("/v1/idempotency-keys/orders.create/{key}"),
            format!("/v1/idempotency-keys/orders.create/{}", fresh_key()),
        ),
    ] {
        let told = async |target: &str| {
            let heard = shop.get_as(OTHER, target).await;
            let mut body = heard.json();
            body["request_id"].take();
            (heard.status, heard.content_type, heard.location, body)
        };
        assert_eq!(told(&theirs).await, told(&nowhere).await, "{theirs}");
    }
    shop.close().await;
}
