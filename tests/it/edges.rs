//! The edges of the HTTP api as a stranger meets them: what every answer carries, and what a connection may do.

use checkout::credential::{Credentials, Subject};
use reqwest::{Method, Response, header::HeaderMap};

use crate::support::{Process, SECRET, Shop, fresh_key, grinder};

async fn ask(shop: &Shop, method: Method, url: &str) -> Response {
    let origin = ("Origin", "https://elsewhere.example");
    shop.http
        .request(method, url)
        .bearer_auth(shop.token(42))
        .header(origin.0, origin.1)
        .send()
        .await
        .expect("an answer")
}

#[track_caller]
fn assert_protected(what: &str, headers: &HeaderMap, private: bool) {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    assert_eq!(text("x-content-type-options").as_deref(), Some("nosniff"), "{what}");
    assert_eq!(text("referrer-policy").as_deref(), Some("no-referrer"), "{what}");
    let policy = text("content-security-policy").unwrap_or_default();
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{what}: {policy}");
    assert!(!policy.contains("script-src"), "{what}: {policy}");
    if private {
        assert_eq!(text("cache-control").as_deref(), Some("no-store"), "{what}");
    }
    for absent in ["server", "x-powered-by", "access-control-allow-origin", "access-control-allow-credentials"] {
        assert_eq!(text(absent), None, "{what}: {absent}");
    }
}

#[tokio::test]
async fn every_answer_of_the_api_is_protected_and_lets_no_other_site_in() {
    let shop = Shop::open().await;
    let (key, url) = (fresh_key(), shop.api_url.clone());
    let operator =
        Credentials::new(SECRET).unwrap().mint(Subject::Operator, std::time::Duration::from_secs(60)).unwrap();
    for (method, path, status) in [
        ("GET", "/livez", 200),
        ("GET", "/readyz", 200),
        ("GET", "/metrics", 200),
        ("GET", "/docs/problems", 200),
        ("GET", "/nowhere", 404),
        ("GET", "/v1/nowhere", 404),
        ("DELETE", "/v1/orders", 405),
        ("OPTIONS", "/v1/orders", 405),
        ("POST", "/v1/orders", 400),
        ("GET", "/v1/orders/none", 404),
        ("GET", "/v1/idempotency-keys/orders.create/none", 404),
        ("POST", "/v1/webhooks/gateway", 400),
        ("GET", "/operator/requests", 404),
    ] {
        let answer = ask(&shop, method.parse().unwrap(), &format!("{url}{path}")).await;
        assert_eq!(answer.status(), status, "{method} {path}");
        let private = path.starts_with("/v1/") || path.starts_with("/operator/");
        assert_protected(&format!("{method} {path}"), answer.headers(), private);
    }
    let requests = shop.http.get(format!("{url}/operator/requests")).bearer_auth(operator).send().await.unwrap();
    assert_eq!(requests.status(), 200);
    assert_protected("the request log", requests.headers(), true);
    for (status, replayed) in [(201, false), (201, true)] {
        let order = shop.http.post(format!("{url}/v1/orders")).bearer_auth(shop.token(42));
        let answer = order.header("Idempotency-Key", &key).json(&grinder("pm_card_visa")).send().await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), answer.headers().contains_key("idempotent-replayed")),
            (status, replayed)
        );
        assert_protected("an order", answer.headers(), true);
    }
    shop.close().await;
}

#[tokio::test]
async fn every_answer_of_the_console_is_protected_too() {
    let shop = Shop::open().await;
    let environment = [
        ("DATABASE_URL", shop.database.url.as_str()),
        ("CHECKOUT_API_URL", shop.api_url.as_str()),
        ("CHECKOUT_SECRET", SECRET),
    ];
    let (_console, url) = Process::role("console", &[], &environment);
    for (method, path, status) in [
        ("GET", "/", 200),
        ("GET", "/style.css", 200),
        ("GET", "/readyz", 200),
        ("GET", "/nowhere", 404),
        ("POST", "/", 405),
    ] {
        let answer = ask(&shop, method.parse().unwrap(), &format!("{url}{path}")).await;
        assert_eq!(answer.status(), status, "{method} {path}");
        assert_protected(&format!("{method} {path}"), answer.headers(), true);
    }
    shop.close().await;
}
