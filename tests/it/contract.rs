//! The contract and the program are the same: the routes, the methods, and the shapes of real answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use checkout::http::{
    contract::{ROUTES, Route},
    openapi,
};
use serde_json::{Value, json};

use crate::support::{CUSTOMER, Shop, answer, fresh_key, grinder};

/// Documented, and not served yet. Empty in the end.
const COMING: &[&str] = &[];

/// `GET /livez` and so on, as the router's own page says it.
fn routed() -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/mod.rs");
    let page = fs::read_to_string(page).expect("the page with all routes");
    let mut routed = BTreeSet::new();
    for route in page.split(".route(").skip(1) {
        let (path, handlers) = route.trim_start().trim_start_matches('"').split_once('"').expect("a path");
        let handlers = handlers.split(".route(").next().unwrap_or_default();
        let handlers = handlers.split("\n        .").next().unwrap_or_default();
        for method in ["get", "post", "put", "patch", "delete"] {
            if handlers.contains(&format!("{method}(")) {
                routed.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    assert!(routed.len() > 5, "{routed:?}");
    routed
}

fn documented() -> BTreeMap<String, &'static Route> {
    ROUTES.iter().map(|route| (format!("{} {}", route.method.name(), route.path), route)).collect()
}

#[test]
fn whatever_is_routed_is_documented_and_the_other_way_round() {
    let (routed, documented) = (routed(), documented());
    let undocumented: Vec<_> = routed.iter().filter(|place| !documented.contains_key(*place)).collect();
    assert!(undocumented.is_empty(), "routed, and not documented: {undocumented:?}");
    for (place, route) in documented {
        let coming = COMING.contains(&route.id);
        assert_eq!(
            routed.contains(&place),
            !coming,
            "{place}: documented and not routed, or come and still called coming"
        );
    }
}

/// The router itself says so: every path knows exactly the methods that are documented.
#[tokio::test]
async fn every_path_knows_exactly_its_documented_methods() {
    let shop = Shop::open().await;
    let mut methods: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for route in ROUTES.iter().filter(|route| !COMING.contains(&route.id)) {
        methods.entry(route.path).or_default().insert(route.method.name());
    }
    for (path, mut documented) in methods {
        let concrete = path.replace("{id}", &fresh_key()).replace("{refund_id}", &fresh_key());
        let concrete = concrete.replace("{operation}", "orders.create").replace("{key}", "k");
        let sent = shop.http.patch(format!("{}{concrete}", shop.api_url)).send().await.expect("an answer");
        assert_eq!(sent.status().as_u16(), 405, "{path}");
        let allowed = sent.headers()["allow"].to_str().expect("text").to_owned();
        if documented.contains("GET") {
            documented.insert("HEAD");
        }
        assert_eq!(allowed.split(',').map(str::trim).collect::<BTreeSet<_>>(), documented, "{path}");
    }
    shop.close().await;
}

#[tokio::test]
async fn the_document_is_served_whole_and_says_everything_of_each_route() {
    let shop = Shop::open().await;
    let served = answer(shop.http.get(format!("{}/openapi.json", shop.api_url))).await;
    assert_eq!((served.status, served.content_type.as_deref()), (200, Some("application/json")));
    let document = served.json();
    assert_eq!(document, openapi());
    assert_eq!(document["openapi"], "3.1.0");
    for route in ROUTES {
        let operation = &document["paths"][route.path][route.method.name().to_lowercase()];
        let responses = operation["responses"].as_object().unwrap_or_else(|| panic!("no {}", route.id));
        assert!(responses.contains_key(&route.success.status.to_string()), "{}", route.id);
        for (status, response) in responses {
            assert_eq!(response["headers"]["Request-Id"]["required"], true, "{} {status}", route.id);
            assert!(response["content"].is_object(), "{} {status}", route.id);
        }
        for code in route.problems() {
            assert!(lists(&document, route, code.name(), code.status()), "{} {}", route.id, code.name());
        }
    }
    let text = document.to_string();
    for name in text.split("#/components/schemas/").skip(1).map(|rest| rest.split('"').next().unwrap_or_default()) {
        assert!(document["components"]["schemas"][name].is_object(), "no schema {name}");
    }
    shop.close().await;
}

/// Whether the document says of this route that it may answer with this problem.
pub(crate) fn lists(document: &Value, route: &Route, code: &str, status: u16) -> bool {
    let operation = &document["paths"][route.path][route.method.name().to_lowercase()];
    let refusal = &operation["responses"][status.to_string()]["content"]["application/problem+json"];
    let codes = &refusal["schema"]["allOf"][1]["properties"]["code"]["enum"];
    codes.as_array().is_some_and(|codes| codes.contains(&json!(code))) && refusal["examples"][code].is_object()
}

/// Real answers have the documented fields and no other.
#[tokio::test]
async fn real_answers_have_the_shape_that_is_documented() {
    let shop = Shop::open().await;
    let key = fresh_key();
    let mut body = grinder("pm_card_visa");
    body["client_reference"] = json!("tap-1");
    let placed = shop.order(&key, &body).await;
    let id = placed.expect_order();
    let post = async |path: &str, body: Value| {
        let request = shop.http.post(format!("{}{path}", shop.api_url)).bearer_auth(shop.token(CUSTOMER));
        answer(request.header("Idempotency-Key", fresh_key()).json(&body)).await
    };
    let refunds = format!("/v1/orders/{id}/refunds");
    let refund = post(&refunds, json!({"amount": 1000})).await;
    let refunded = refund.location.clone().expect("a place");
    let one = json!({"amount": 4299, "currency": "eur", "payment_method": "pm_card_visa", "client_reference": "tap-2"});
    let charge = post("/v1/charges", one).await;
    let charged = charge.location.clone().expect("a place");
    let email = shop.http.put(format!("{}/v1/customers/me/email", shop.api_url)).bearer_auth(shop.token(CUSTOMER));
    let email = answer(email.json(&json!({"email": "ada@example.org"}))).await;
    let operator = shop.http.get(format!("{}/operator/requests", shop.api_url)).bearer_auth(shop.operator_token());
    let answers = [
        ("createOrder", placed),
        ("showOrder", shop.get(&format!("/v1/orders/{id}")).await),
        ("listOrders", shop.get("/v1/orders").await),
        ("createRefund", refund),
        ("listRefunds", shop.get(&refunds).await),
        ("showRefund", shop.get(&refunded).await),
        ("createCharge", charge),
        ("listCharges", shop.get("/v1/charges").await),
        ("showCharge", shop.get(&charged).await),
        ("setEmail", email),
        ("showEmail", shop.get("/v1/customers/me/email").await),
        ("showIdempotencyKey", shop.get(&format!("/v1/idempotency-keys/orders.create/{key}")).await),
        ("listRequests", answer(operator).await),
        ("isReady", shop.get("/readyz").await),
    ];
    let document = openapi();
    for (id, answer) in answers {
        let route = ROUTES.iter().find(|route| route.id == id).expect("a route");
        assert_eq!(answer.status, route.success.status, "{id}: {}", answer.text());
        let operation = &document["paths"][route.path][route.method.name().to_lowercase()];
        let schema = &operation["responses"][answer.status.to_string()]["content"]["application/json"]["schema"];
        assert!(schema.is_object(), "{id}");
        assert!(fits(&document, schema, &answer.json()), "{id}: {}", answer.text());
    }
    shop.close().await;
}

/// Every field is documented, and every required one is there.
fn fits(document: &Value, schema: &Value, value: &Value) -> bool {
    if let Some(name) = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
        return fits(document, &document["components"]["schemas"][name], value);
    }
    if let Some(items) = value.as_array() {
        return items.iter().all(|item| fits(document, &schema["items"], item));
    }
    let (Some(object), Some(properties)) = (value.as_object(), schema["properties"].as_object()) else { return true };
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    required.into_iter().all(|name| object.contains_key(name))
        && object.iter().all(|(name, value)| properties.get(name).is_some_and(|schema| fits(document, schema, value)))
}
