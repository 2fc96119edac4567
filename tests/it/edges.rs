//! The edges of the HTTP api as a stranger meets them: what every answer carries, and what a connection may do.

use checkout::credential::{Credentials, Subject};
use futures_util::future::join_all;
use reqwest::{Method, Response, header::HeaderMap};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{Opening, PATIENCE, Process, SECRET, Shop, fresh_key, grinder, wait_for};

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

async fn shop_with(flags: &[&'static str]) -> Shop {
    Shop::open_with(Opening { gateway_in_memory: true, flags: flags.to_vec(), ..Opening::default() }).await
}

/// A connection that has sent these bytes.
async fn client(shop: &Shop, sends: &str) -> TcpStream {
    let mut client = TcpStream::connect(shop.api_url.trim_start_matches("http://")).await.unwrap();
    client.write_all(sends.as_bytes()).await.unwrap();
    client
}

/// Everything until the server closes the connection, in order or not.
async fn until_closed(mut client: TcpStream) -> String {
    let mut read = Vec::new();
    let reading = tokio::time::timeout(PATIENCE, client.read_to_end(&mut read));
    let _reset_is_closed_too = reading.await.expect("the server closes it");
    String::from_utf8(read).unwrap()
}

#[tokio::test]
async fn a_body_that_does_not_come_is_a_408_and_burns_no_key() {
    let shop = Shop::open().await;
    let (key, token, order) = (fresh_key(), shop.token(42), grinder("pm_card_visa"));
    let body = order.to_string();
    let head = format!(
        "POST /v1/orders HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer {token}\r\nIdempotency-Key: {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let answer = until_closed(client(&shop, &format!("{head}{}", &body[..body.len() - 1])).await).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    for told in ["\"code\":\"request_timeout\"", "\"retry\":\"same_key\"", "connection: close"] {
        assert!(answer.contains(told), "{told}: {answer}");
    }
    assert_eq!(shop.count("idempotency_records").await, 0);
    shop.order(&key, &order).await.expect_order();
    shop.close().await;
}

/// Slow clients hold a place each, and nothing else: the honest ones do not notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_slow_clients_cost_the_others_nothing() {
    let shop = Shop::open().await;
    let begun = [
        "",
        "POST /v1/ord",
        "POST /v1/orders HTTP/1.1\r\nHost: shop\r\nX-Slow: ",
        "POST /v1/orders HTTP/1.1\r\nHost: shop\r\nContent-Length: 9\r\n\r\n{",
    ];
    let slow = join_all((0..500).map(|serial| client(&shop, begun[serial % begun.len()]))).await;
    let keys: Vec<_> = (0..100).map(|_| fresh_key()).collect();
    for key in &keys {
        shop.order(key, &grinder("pm_card_visa")).await.expect_order();
    }
    let held = shop.api_metrics().await["checkout_connections"];
    assert!(held >= 1.0, "{held}");
    // Each is closed by the server, the silent ones too; those that began a body are told first what else is wrong.
    let answers = join_all(slow.into_iter().map(until_closed)).await;
    let late = answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 401 ")).count();
    let silent = answers.iter().filter(|answer| answer.is_empty()).count();
    assert_eq!((late, silent), (125, 375));
    wait_for("their places are free", async || shop.api_metrics().await["checkout_connections"] <= 3.0).await;
    shop.close().await;
}

/// A burst that comes while the process is off the processor waits for it in the kernel; nobody is forgotten there.
#[tokio::test]
async fn a_burst_of_clients_finds_a_place_though_nobody_accepts_yet() {
    let shop = Shop::open().await;
    shop.api.pause();
    wait_for("it is paused", async || shop.api.is_paused()).await;
    let burst = join_all((0..500).map(|_| client(&shop, ""))).await;
    shop.api.resume();
    let closed = join_all(burst.into_iter().map(until_closed)).await;
    assert!(closed.iter().all(String::is_empty), "they said nothing and were told nothing");
    shop.close().await;
}

#[tokio::test]
async fn a_connection_is_closed_in_order_after_its_last_request() {
    let shop = shop_with(&["--requests-per-connection", "1000"]).await;
    let asks = "GET /livez HTTP/1.1\r\nHost: shop\r\n\r\n".repeat(1000);
    let answers = until_closed(client(&shop, &asks).await).await;
    assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), 1000);
    assert_eq!(answers.matches("connection: close\r\n").count(), 1);
    let last = answers.rfind("HTTP/1.1 200 OK\r\n").unwrap();
    assert!(answers[last..].contains("connection: close\r\n"), "it is the last one that says so");
    shop.close().await;
}

#[tokio::test]
async fn one_address_may_hold_so_many_connections_and_no_more() {
    let shop = shop_with(&["--connections-per-address", "3"]).await;
    let mut held = join_all((0..3).map(|_| client(&shop, "GET /livez HTTP/1.1\r\nHost: shop\r\n\r\n"))).await;
    for client in &mut held {
        let mut answer = [0; 12];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
    }
    assert_eq!(until_closed(TcpStream::connect(shop.api_url.trim_start_matches("http://")).await.unwrap()).await, "");
    drop(held);
    wait_for("their places are free", async || {
        let livez = shop.http.get(format!("{}/livez", shop.api_url)).send().await;
        livez.is_ok_and(|answer| answer.status() == 200)
    })
    .await;
    assert!(shop.api_metrics().await["checkout_connections_refused_total"] >= 1.0);
    shop.close().await;
}
