//! Every problem of the catalogue is brought about for real, over HTTP, and is as it is documented. A problem that nothing
//! brings about is a promise nobody has seen kept.

use std::collections::BTreeSet;

use checkout::{
    http::{
        contract::{ANY_PATH, Presence, ROUTES, headers_of},
        openapi,
    },
    wire::problem::Code,
};
use reqwest::{
    Method, RequestBuilder,
    header::{ALLOW, CONTENT_TYPE, HeaderMap},
};
use serde_json::{Value, json};

use crate::{
    contract::lists,
    support::{CUSTOMER, Opening, Shop, fresh_key, grinder, wait_for},
};

const VISA: &str = "pm_card_visa";
/// What every HTTP answer may have without a word in the contract.
const OF_HTTP: [&str; 8] = [
    "content-type",
    "content-length",
    "date",
    "connection",
    // For a browser that happens to read it.
    "x-content-type-options",
    "referrer-policy",
    "content-security-policy",
    "cache-control",
];

/// What was brought about so far.
struct Seen {
    document: Value,
    codes: BTreeSet<&'static str>,
}

impl Seen {
    /// Sends what should be answered with this problem by this operation, or by any path, and looks at all of the answer.
    async fn sees(&mut self, code: Code, operation: &str, request: RequestBuilder) {
        let answer = request.send().await.expect("an answer");
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let body = answer.bytes().await.expect("a whole answer");
        let text = String::from_utf8_lossy(&body).into_owned();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let place = format!("{} at {operation}: {status} {text}", code.name());
        assert_eq!((status, body["code"].as_str()), (code.status(), Some(code.name())), "{place}");
        assert_eq!(headers[CONTENT_TYPE], "application/problem+json", "{place}");
        assert_eq!(body["status"], code.status(), "{place}");
        assert_eq!(body["title"], code.title(), "{place}");
        assert_eq!(body["retry"], json!(code.retry()), "{place}");
        assert_eq!(body["type"], format!("/docs/problems#{}", code.name()), "{place}");
        assert!(body["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{place}");
        assert_eq!(body["request_id"], json!(headers["request-id"].to_str().expect("text")), "{place}");
        has_the_documented_headers(code, &headers, &place);
        self.is_documented(code, operation);
        self.codes.insert(code.name());
    }

    fn is_documented(&self, code: Code, operation: &str) {
        if operation == "any path" {
            assert!(ANY_PATH.contains(&code) && self.document["components"]["responses"][code.name()].is_object());
            return;
        }
        let route = ROUTES.iter().find(|route| route.id == operation).expect("an operation");
        assert!(lists(&self.document, route, code.name(), code.status()), "{operation} does not list {}", code.name());
    }
}

fn has_the_documented_headers(code: Code, headers: &HeaderMap, place: &str) {
    let documented = headers_of(code);
    for (header, presence) in documented {
        let there = headers.contains_key(header.name().to_lowercase());
        assert!(there || *presence == Presence::Sometimes, "no {} with {place}", header.name());
    }
    for name in headers.keys().map(|name| name.as_str()).filter(|name| !OF_HTTP.contains(name)) {
        let known = documented.iter().any(|(header, _)| header.name().eq_ignore_ascii_case(name));
        assert!(known || name == "request-id", "{name} is not documented: {place}");
    }
}

/// The worked example's order under a key.
fn order(shop: &Shop, key: &str, payment_method: &str) -> RequestBuilder {
    post(shop, "/v1/orders", key, &grinder(payment_method))
}

fn post(shop: &Shop, path: &str, key: &str, body: &Value) -> RequestBuilder {
    let request = shop.http.post(format!("{}{path}", shop.api_url)).bearer_auth(shop.token(CUSTOMER));
    request.header("Idempotency-Key", key).json(body)
}

fn get(shop: &Shop, path: &str) -> RequestBuilder {
    shop.http.get(format!("{}{path}", shop.api_url)).bearer_auth(shop.token(CUSTOMER))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_problem_is_brought_about_and_is_as_documented() {
    let mut seen = Seen { document: openapi(), codes: BTreeSet::new() };
    refused_at_the_door(&mut seen).await;
    about_a_key(&mut seen).await;
    about_refunds(&mut seen).await;
    when_too_much_is_asked(&mut seen).await;
    when_a_customer_has_too_many_keys(&mut seen).await;
    when_others_are_gone(&mut seen).await;

    let all: BTreeSet<_> = Code::ALL.iter().map(|code| code.name()).collect();
    let unseen: Vec<_> = all.difference(&seen.codes).collect();
    assert!(unseen.is_empty(), "nothing brings these about: {unseen:?}");
}

async fn refused_at_the_door(seen: &mut Seen) {
    let shop = Shop::open().await;
    let url = format!("{}/v1/orders", shop.api_url);
    let raw = |body: &str| {
        let request = shop.http.post(&url).bearer_auth(shop.token(CUSTOMER)).header("Idempotency-Key", fresh_key());
        request.header(CONTENT_TYPE, "application/json").body(body.to_owned())
    };
    let keyless = shop.http.post(&url).bearer_auth(shop.token(CUSTOMER)).json(&grinder(VISA));
    seen.sees(Code::IdempotencyKeyMissing, "createOrder", keyless).await;
    seen.sees(Code::IdempotencyKeyInvalid, "createOrder", order(&shop, "two words", VISA)).await;
    // The wrong variable: its own token, as it is or as it is sent, or a secret of the gateway's.
    let token = shop.token(CUSTOMER);
    for credential in [&token, &format!("Bearer {token}"), "sk_live_51Hx", "whsec_0123"] {
        seen.sees(Code::IdempotencyKeyInvalid, "createOrder", order(&shop, credential, VISA)).await;
    }
    let shown = get(&shop, "/v1/idempotency-keys/orders.create/two%20words");
    seen.sees(Code::IdempotencyKeyInvalid, "showIdempotencyKey", shown).await;
    seen.sees(Code::MalformedJson, "createOrder", raw("{")).await;
    seen.sees(Code::PayloadTooLarge, "createOrder", raw(&" ".repeat(64 * 1024 + 1))).await;
    seen.sees(Code::ValidationFailed, "createOrder", raw("{}")).await;
    let typed = order(&shop, &fresh_key(), VISA).header("Content-Encoding", "gzip");
    seen.sees(Code::UnsupportedMediaType, "createOrder", typed).await;
    seen.sees(Code::Unauthenticated, "createOrder", shop.http.post(&url).json(&grinder(VISA))).await;
    let nobody = shop.http.get(format!("{}/operator/requests", shop.api_url));
    seen.sees(Code::Unauthenticated, "listRequests", nobody).await;
    seen.sees(Code::CardDataNotAccepted, "createOrder", order(&shop, &fresh_key(), "4242424242424242")).await;

    let never_ends = reqwest::Body::wrap_stream(futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let slow = order(&shop, &fresh_key(), VISA).body(never_ends);
    seen.sees(Code::RequestTimeout, "createOrder", slow).await;

    let unsigned = shop.http.post(format!("{}/v1/webhooks/gateway", shop.api_url)).body("{}");
    seen.sees(Code::WebhookSignatureInvalid, "receiveGatewayEvent", unsigned).await;
    seen.sees(Code::NotFound, "showOrder", get(&shop, &format!("/v1/orders/{}", fresh_key()))).await;
    seen.sees(Code::NotFound, "listRequests", get(&shop, "/operator/requests")).await;
    seen.sees(Code::NotFound, "any path", get(&shop, "/v1/nothing")).await;
    let known = shop.http.request(Method::PATCH, &url).send().await.expect("an answer").headers()[ALLOW].clone();
    assert!(known.to_str().is_ok_and(|methods| methods.contains("POST")), "{known:?}");
    seen.sees(Code::MethodNotAllowed, "any path", shop.http.request(Method::PATCH, &url)).await;
    shop.close().await;
}

async fn about_a_key(seen: &mut Seen) {
    let shop = Shop::open().await;
    let declined = order(&shop, &fresh_key(), "pm_card_visa_chargeDeclinedInsufficientFunds");
    seen.sees(Code::CardDeclined, "createOrder", declined).await;

    let bought = fresh_key();
    shop.order(&bought, &grinder(VISA)).await.expect_order();
    let other = order(&shop, &bought, "pm_card_mastercard");
    seen.sees(Code::IdempotencyKeyReused, "createOrder", other).await;

    let slow = fresh_key();
    shop.fault("latency_after", 1, 1_500).await;
    let first = shop.order_in_background(&slow);
    wait_for("the slow one is under way", async || shop.captures().await == 2).await;
    seen.sees(Code::RequestInProgress, "createOrder", order(&shop, &slow, VISA)).await;
    assert_eq!(first.await.expect("a task").expect("an answer").status(), 201);

    shop.set_gateway(&json!({"search_lag_ms": 1_000_000_000_u64})).await;
    shop.fault("http_500_after", 1, 0).await;
    let lost = fresh_key();
    seen.sees(Code::OutcomeUnknown, "createOrder", order(&shop, &lost, VISA)).await;
    shop.set_gateway(&json!({"search_lag_ms": 0})).await;
    shop.order_until_placed(&lost).await;

    shop.set_clock("73 hours").await;
    seen.sees(Code::IdempotencyKeyExpired, "createOrder", order(&shop, &bought, VISA)).await;
    shop.close().await;
}

async fn about_refunds(seen: &mut Seen) {
    let mut shop = Shop::open().await;
    let refunds = format!("/v1/orders/{}/refunds", shop.order(&fresh_key(), &grinder(VISA)).await.expect_order());
    let too_much = post(&shop, &refunds, &fresh_key(), &json!({"amount": 4300}));
    seen.sees(Code::RefundExceedsBalance, "createRefund", too_much).await;
    // A gateway that keeps no books has forgotten the charge, and cannot give back what it never took. No audit can follow.
    shop.gateway.kill();
    shop.restart_gateway();
    seen.sees(Code::RefundRefused, "createRefund", post(&shop, &refunds, &fresh_key(), &json!({"amount": 1}))).await;
}

async fn when_too_much_is_asked(seen: &mut Seen) {
    let flags = vec!["--running-max", "1"];
    let shop = Shop::open_with(Opening { gateway_in_memory: true, flags, ..Opening::default() }).await;
    shop.fault("latency_after", 1, 1_500).await;
    let slow = shop.order_in_background(&fresh_key());
    wait_for("the only place is taken", async || shop.captures().await == 1).await;
    seen.sees(Code::Overloaded, "createOrder", order(&shop, &fresh_key(), VISA)).await;
    assert_eq!(slow.await.expect("a task").expect("an answer").status(), 201);
    shop.close().await;

    let flags = vec!["--customer-rate-per-s", "1", "--customer-burst", "1"];
    let shop = Shop::open_with(Opening { gateway_in_memory: true, flags, ..Opening::default() }).await;
    shop.order(&fresh_key(), &grinder(VISA)).await.expect_order();
    seen.sees(Code::RateLimited, "createOrder", order(&shop, &fresh_key(), VISA)).await;
    shop.close().await;
}

async fn when_a_customer_has_too_many_keys(seen: &mut Seen) {
    let flags = vec!["--customer-keys-max", "1"];
    let shop = Shop::open_with(Opening { gateway_in_memory: true, flags, ..Opening::default() }).await;
    shop.order(&fresh_key(), &grinder(VISA)).await.expect_order();
    seen.sees(Code::KeyQuotaExceeded, "createOrder", order(&shop, &fresh_key(), VISA)).await;
    shop.close().await;
}

/// The last of all: nothing works afterwards.
async fn when_others_are_gone(seen: &mut Seen) {
    let mut shop = Shop::open_with(Opening { gateway_in_memory: false, ..Opening::default() }).await;
    shop.gateway.kill();
    seen.sees(Code::GatewayUnavailable, "createOrder", order(&shop, &fresh_key(), VISA)).await;
    shop.restart_gateway();

    let rename = async |from: &str, to: &str| {
        let renamed = format!("ALTER TABLE {from} RENAME TO {to}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(renamed)).execute(&shop.pool).await.expect("renamed");
    };
    rename("orders", "orders_elsewhere").await;
    seen.sees(Code::Internal, "showOrder", get(&shop, &format!("/v1/orders/{}", fresh_key()))).await;
    rename("orders_elsewhere", "orders").await;
    rename("idempotency_records", "records_elsewhere").await;
    seen.sees(Code::Unavailable, "createOrder", order(&shop, &fresh_key(), VISA)).await;
    seen.sees(Code::Unavailable, "isReady", get(&shop, "/readyz")).await;
    rename("records_elsewhere", "idempotency_records").await;
    shop.close().await;
}
