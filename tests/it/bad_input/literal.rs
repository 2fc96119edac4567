//! What looks wrong and is not: strange keys, hostile words and unusual HTTP are taken as what they are.

use serde_json::{Value, json};

use super::{
    bodies::in_one_chunk,
    judge::orders,
    keys,
    row::{Framing, Request, Route},
    sizes::{BODY_BYTES_MAX, of_length},
    socket::{Heard, Socket},
};
use crate::support::Shop;

const HOSTILE: [&str; 14] = [
    "'; DROP TABLE orders; --",
    "' OR '1'='1",
    "\\'; SELECT pg_sleep(60); --",
    "$1, $2); DELETE FROM charges; --",
    "<script>alert(document.cookie)</script>",
    "\"><img src=x onerror=alert(1)>",
    "javascript:alert(1)",
    "{{7*7}} ${7*7} <%= 7*7 %>",
    "${jndi:ldap://127.0.0.1/a}",
    "$(reboot) `reboot` ; reboot",
    "../../../etc/passwd",
    "%s%s%s%n",
    "=cmd|' /C calc'!A0",
    "Ω≈ç√ 💳 \u{202e}eur\u{202c} a\u{300} \u{feff}\u{fffd}",
];

async fn heard(host: &str, bytes: &[u8]) -> Heard {
    let mut socket = Socket::open(host).await;
    socket.send(bytes).await;
    socket.answer().await.expect("an answer")
}

async fn get(route: &Route, target: &str) -> Heard {
    let request = route.request().method("GET").target(target).without("Idempotency-Key").body("");
    heard(&route.host, &request.bytes()).await
}

/// Every byte of a text as a path has it.
fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn a_strange_key_is_a_key_and_means_itself() {
    let shop = Shop::open().await;
    let route = orders(&shop);
    for (sent, key) in keys::good() {
        let request = route.request_under(&sent);
        let first = heard(&route.host, &request.bytes()).await;
        assert_eq!((first.status, first.header("idempotent-replayed")), (201, None), "{sent}: {}", first.text());
        let again = heard(&route.host, &request.bytes()).await;
        assert_eq!((again.header("idempotent-replayed"), &again.body), (Some("true"), &first.body), "{sent}");
        let state = get(&route, &format!("/v1/idempotency-keys/orders.create/{}", escaped(&sent))).await;
        assert_eq!((state.status, &state.json()["key"]), (200, &Value::from(key.as_str())), "{sent}");
        let kept = "SELECT count(*) FROM idempotency_records WHERE key = $1";
        let kept: i64 = sqlx::query_scalar(kept).bind(&key).fetch_one(&shop.pool).await.expect("a count");
        assert_eq!(kept, 1, "{sent}");
    }
    let bought = shop.count("orders").await;
    assert_eq!(bought, i64::try_from(keys::good().len()).unwrap(), "each is another key");
    shop.close().await;
}

#[tokio::test]
async fn hostile_words_are_kept_and_given_back_as_they_came() {
    let shop = Shop::open().await;
    let route = orders(&shop);
    for words in HOSTILE {
        let placed = route.request().field("/client_reference", &json!(words).to_string());
        let placed = heard(&route.host, &placed.bytes()).await;
        assert_eq!((placed.status, &placed.json()["client_reference"]), (201, &json!(words)), "{}", placed.text());
        let shown = get(&route, placed.header("location").expect("a location")).await;
        assert_eq!(shown.json()["client_reference"], json!(words));
    }
    assert_eq!(shop.count("orders").await, i64::try_from(HOSTILE.len()).unwrap());
    shop.close().await;
}

/// Good requests as few clients send them. The usual request under the same key is then their replay: same key, same meaning.
fn unusual(route: &Route) -> Vec<(&'static str, Request, Vec<u8>)> {
    let body = route.good_body.to_string();
    let chunk = in_one_chunk(&body);
    let set = |name: &str, value: &str| route.request().set(name, value);
    let many = (0..95).fold(route.request(), |request, n| request.with(&format!("X-{n}"), "1"));
    let length = body.len().to_string();
    let told_twice = route.request().with("Content-Length", &length).with("Content-Length", &length);
    let both = route.request().with("Content-Length", "5").with("Transfer-Encoding", "chunked");
    let requests = vec![
        ("the media type in capitals", set("Content-Type", "Application/JSON")),
        ("the media type with its charset", set("Content-Type", "application/json;charset=\"UTF-8\"")),
        ("the media type with an empty parameter", set("Content-Type", "application/json;")),
        ("the scheme in capitals", set("Authorization", &format!("BEARER  {}", route.token))),
        ("64 KiB", of_length(route, BODY_BYTES_MAX)),
        ("64 KiB in chunks", of_length(route, BODY_BYTES_MAX).framing(Framing::Chunked)),
        ("an absolute target", route.request().target("http://elsewhere/v1/orders")),
        ("a query", route.request().target("/v1/orders?customer_id=7&total=1")),
        ("a fragment", route.request().target("/v1/orders#x")),
        ("100 headers", many),
        ("a header of 32 KiB", route.request().with("X-Long", "a".repeat(32 * 1024))),
        ("100-continue", route.request().with("Expect", "100-continue")),
        ("another expectation", route.request().with("Expect", "the-unexpected")),
        ("an upgrade we do not know", route.request().with("Connection", "Upgrade").with("Upgrade", "h2c")),
        ("an override of the method", route.request().with("X-HTTP-Method-Override", "DELETE")),
        ("one length twice", told_twice.framing(Framing::AsTold)),
        // The coding counts, as RFC 9112 has it, and the connection ends with the answer.
        ("a length and a coding", both.framing(Framing::AsTold).body(&chunk)),
        ("escapes in the body", route.request().body(body.replace("grinder", "\\u0067rinder"))),
    ];
    let mut sent: Vec<_> =
        requests.into_iter().map(|(name, request)| (name, request.clone(), request.bytes())).collect();
    let request = route.request();
    let text = String::from_utf8(request.bytes()).expect("text");
    sent.push(("HTTP/1.0", request.clone(), text.replace("HTTP/1.1", "HTTP/1.0").into_bytes()));
    // RFC 9112 lets a reader take a bare LF for the end of a line.
    let request = route.request();
    let text = String::from_utf8(request.bytes()).expect("text");
    sent.push(("lines ended by a bare LF", request, text.replace("\r\n", "\n").into_bytes()));
    let request = route.request();
    sent.push(("empty lines before it", request.clone(), [b"\r\n\r\n", request.bytes().as_slice()].concat()));
    sent
}

#[tokio::test]
async fn an_unusual_request_that_is_good_is_taken() {
    let shop = Shop::open().await;
    let route = orders(&shop);
    let mut wrong = Vec::new();
    for (name, request, bytes) in unusual(&route) {
        let first = heard(&route.host, &bytes).await;
        if (first.status, first.header("idempotent-replayed")) != (201, None) {
            wrong.push(format!("{name}: {} {}", first.status, first.text()));
        }
        let usual = heard(&route.host, &route.request_under(request.key()).bytes()).await;
        if (usual.header("idempotent-replayed"), &usual.body) != (Some("true"), &first.body) {
            wrong.push(format!("{name}: the usual request is no replay: {} {}", usual.status, usual.text()));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    shop.close().await;
}

/// Ten thousand requests at once on one connection: an order, its retries, and what is wrong in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_requests_are_answered_one_by_one_and_in_their_order() {
    // A connection is good for a thousand requests, so ten of them for ten thousand.
    const ROUNDS: usize = 250;
    let shop = Shop::open().await;
    let route = orders(&shop);
    let (good, bad) = (route.request(), route.request().body("{"));
    let nowhere = route.request().method("GET").target("/v1/nothing").body("");
    let round = [good.bytes(), bad.bytes(), nowhere.bytes(), good.bytes()].concat();
    let mut answers = Vec::new();
    for _ in 0..10 {
        let mut socket = Socket::open(&route.host).await;
        answers.extend(socket.converse(&round.repeat(ROUNDS), ROUNDS * 4).await);
    }
    assert_eq!(answers.len(), 10_000);
    let first = &answers[0].1;
    for (place, (status, body)) in answers.iter().enumerate() {
        let expected = [201, 400, 404, 201][place % 4];
        assert_eq!(*status, expected, "answer {place}");
        assert!(expected != 201 || body == first, "answer {place} is another order");
    }
    assert_eq!((shop.captures().await, shop.count("orders").await), (1, 1));
    shop.close().await;
}
