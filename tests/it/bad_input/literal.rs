//! What looks wrong and is not: strange keys, hostile words and unusual HTTP are taken as what they are.

use serde_json::{Value, json};

use super::{
    bodies::in_one_chunk,
    judge::{heard, kinds, open, orders, routes},
    keys,
    row::{Framing, Request, Route},
    sizes::{bytes_max, of_length},
    socket::{Heard, Socket},
};
use crate::support::{Shop, fresh_key, grinder};

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
    let shop = open().await;
    for route in routes(&shop).await.iter().filter(|route| kinds::keyed(route)) {
        let (operation, table) = match route.id() {
            "createOrder" => ("orders.create", "orders"),
            "createCharge" => ("charges.create", "charges"),
            _ => ("orders.refund", "refunds"),
        };
        let before = shop.count(table).await;
        for (sent, key) in keys::good() {
            let request = route.request_under(&sent);
            let first = heard(&route.host, &request.bytes()).await;
            assert_eq!((first.status, first.header("idempotent-replayed")), (201, None), "{sent}: {}", first.text());
            let again = heard(&route.host, &request.bytes()).await;
            assert_eq!((again.header("idempotent-replayed"), &again.body), (Some("true"), &first.body), "{sent}");
            let state = get(route, &format!("/v1/idempotency-keys/{operation}/{}", escaped(&sent))).await;
            assert_eq!((state.status, &state.json()["key"]), (200, &Value::from(key.as_str())), "{sent}");
            let kept = "SELECT count(*) FROM idempotency_records WHERE key = $1 AND operation = $2";
            let kept = sqlx::query_scalar::<_, i64>(kept).bind(&key).bind(operation).fetch_one(&shop.pool).await;
            assert_eq!(kept.expect("a count"), 1, "{sent}");
        }
        let made = shop.count(table).await - before;
        assert_eq!(made, i64::try_from(keys::good().len()).unwrap(), "each is another key of {operation}");
    }
    shop.close().await;
}

#[tokio::test]
async fn hostile_words_are_kept_and_given_back_as_they_came() {
    let shop = open().await;
    let takes_words = |route: &&Route| ["createOrder", "createCharge"].contains(&route.id());
    let before = shop.count("charges").await;
    for route in routes(&shop).await.iter().filter(takes_words) {
        for words in HOSTILE {
            // One reference, one purchase: the audit counts.
            let words = format!("{words} {}", route.id());
            let placed = route.request().field("/client_reference", &json!(words).to_string());
            let placed = heard(&route.host, &placed.bytes()).await;
            assert_eq!((placed.status, &placed.json()["client_reference"]), (201, &json!(words)), "{}", placed.text());
            let shown = get(route, placed.header("location").expect("a location")).await;
            assert_eq!(shown.json()["client_reference"], json!(words));
        }
    }
    // Two charges more: of the order and the charge that there are to begin with.
    assert_eq!(shop.count("charges").await - before, i64::try_from(HOSTILE.len()).unwrap() * 2 + 2);
    shop.close().await;
}

/// Good requests as few clients send them. The usual request under the same key is then their replay: same key, same meaning.
fn unusual(route: &Route) -> Vec<(&'static str, Request, Vec<u8>)> {
    let target = route.target.as_str();
    let body = route.good_body().to_string();
    let first = body.as_bytes()[2];
    let chunk = in_one_chunk(&body);
    let set = |name: &str, value: &str| route.request().set(name, value);
    let many = (route.request().lines()..100).fold(route.request(), |request, n| request.with(&format!("X-{n}"), "1"));
    let length = body.len().to_string();
    let told_twice = route.request().with("Content-Length", &length).with("Content-Length", &length);
    let both = route.request().with("Content-Length", "5").with("Transfer-Encoding", "chunked");
    let requests = vec![
        ("the media type in capitals", set("Content-Type", "Application/JSON")),
        ("the media type with its charset", set("Content-Type", "application/json;charset=\"UTF-8\"")),
        ("the media type with an empty parameter", set("Content-Type", "application/json;")),
        ("the scheme in capitals", set("Authorization", &format!("BEARER  {}", route.token))),
        ("as much as there may be", of_length(route, bytes_max(route))),
        ("as much as there may be, in chunks", of_length(route, bytes_max(route)).framing(Framing::Chunked)),
        ("an absolute target", route.request().target(format!("http://elsewhere{target}"))),
        ("a query", route.request().target(format!("{target}?customer_id=7&total=1"))),
        ("a fragment", route.request().target(format!("{target}#x"))),
        ("100 headers", many),
        ("a header of 32 KiB", route.request().with("X-Long", "a".repeat(32 * 1024))),
        ("100-continue", route.request().with("Expect", "100-continue")),
        ("another expectation", route.request().with("Expect", "the-unexpected")),
        ("an upgrade we do not know", route.request().with("Connection", "Upgrade").with("Upgrade", "h2c")),
        ("an override of the method", route.request().with("X-HTTP-Method-Override", "DELETE")),
        ("one length twice", told_twice.framing(Framing::AsTold)),
        // The coding counts, as RFC 9112 has it, and the connection ends with the answer.
        ("a length and a coding", both.framing(Framing::AsTold).body(&chunk)),
        ("escapes in the body", route.request().body(format!("{{\"\\u00{first:x}{}", &body[3..]))),
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
    let shop = open().await;
    let mut wrong = Vec::new();
    for route in routes(&shop).await.iter().filter(|route| kinds::keyed(route)) {
        for (name, request, bytes) in unusual(route) {
            let first = heard(&route.host, &bytes).await;
            if (first.status, first.header("idempotent-replayed")) != (201, None) {
                wrong.push(format!("{}: {name}: {} {}", route.id(), first.status, first.text()));
            }
            let usual = heard(&route.host, &route.request_under(request.key()).bytes()).await;
            if (usual.header("idempotent-replayed"), &usual.body) != (Some("true"), &first.body) {
                let said = usual.text();
                wrong.push(format!("{}: {name}: the usual request is no replay: {} {said}", route.id(), usual.status));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    shop.close().await;
}

/// One id has spellings that mean the same (RFC 9562: case; RFC 3986: escapes). Its refund is one refund under all of them.
#[tokio::test]
async fn an_order_spelled_otherwise_is_the_same_order_and_its_refund_the_same_refund() {
    let shop = open().await;
    let routes = routes(&shop).await;
    let refunds = routes.iter().find(|route| route.id() == "createRefund").expect("a route");
    let order = refunds.target.split('/').nth(3).expect("an id").to_owned();
    let key = fresh_key();
    let first = heard(&refunds.host, &refunds.request_under(&key).bytes()).await;
    assert_eq!(first.status, 201, "{}", first.text());
    for spelled in [order.to_uppercase(), escaped(&order)] {
        let target = refunds.target.replace(&order, &spelled);
        let again = heard(&refunds.host, &refunds.request_under(&key).target(&target).bytes()).await;
        assert_eq!((again.header("idempotent-replayed"), &again.body), (Some("true"), &first.body), "{}", again.text());
        let shown = get(refunds, &format!("/v1/orders/{spelled}")).await;
        assert_eq!((shown.status, &shown.json()["id"]), (200, &json!(order)));
    }
    shop.close().await;
}

/// Queries that look odd and mean a page.
#[tokio::test]
async fn an_odd_query_that_means_a_page_gets_it_and_a_cursor_is_a_place_in_ones_own_list() {
    let shop = open().await;
    for route in routes(&shop).await.iter().filter(|route| kinds::list(route)) {
        let all = get(route, &route.target).await.json();
        let newest = all["data"][0]["id"].as_str().expect("an id").to_owned();
        for query in [
            "",
            "&",
            "&&limit=20",
            "limit=20&",
            "%6Cimit=%32%30",
            "limit=100",
            "starting_after=ffffffff-ffff-ffff-ffff-ffffffffffff",
        ] {
            let page = get(route, &format!("{}?{query}", route.target)).await;
            assert_eq!((page.status, page.json()), (200, all.clone()), "{}: {query}", route.id());
        }
        // A cursor of nobody's, of another list's and of a stranger's only say from when on: what is shown is one's own.
        let strangers = shop.order_as(7, &fresh_key(), &grinder("pm_card_visa")).await;
        let strangers_charge = strangers.json()["charge"]["id"].as_str().expect("an id").to_owned();
        for cursor in [fresh_key().replacen(|_| true, "f", 1), strangers.expect_order(), strangers_charge] {
            let page = get(route, &format!("{}?starting_after={cursor}", route.target)).await;
            assert_eq!((page.status, page.json()), (200, all.clone()), "{}: {cursor}", route.id());
        }
        for cursor in ["00000000-0000-0000-0000-000000000000", &newest, &newest.to_uppercase()] {
            let page = get(route, &format!("{}?limit=1&starting_after={cursor}", route.target)).await.json();
            assert_eq!(page, json!({"data": [], "has_more": false}), "{}: {cursor}", route.id());
        }
    }
    shop.close().await;
}

/// What the gateway signed is kept as it came, whatever it says; and once.
#[tokio::test]
async fn whatever_the_gateway_signed_is_kept_as_it_came() {
    let shop = open().await;
    let routes = routes(&shop).await;
    let route = routes.iter().find(|route| route.is_signed()).expect("a route");
    let mut sent =
        vec![of_length(route, bytes_max(route)), of_length(route, bytes_max(route)).framing(Framing::Chunked)];
    sent.extend(HOSTILE.map(|words| route.request().field("/note", &json!(words).to_string())));
    let odd = ["\"\\u0000\"", "18446744073709551616", "{\"a\":1,\"a\":2}"];
    sent.extend(odd.map(|json| route.request().field("/data/object/note", json)));
    sent.push(route.request().field("/data/object/note", &("[".repeat(100) + &"]".repeat(100))));
    sent.push(route.request().field("/id", &json!("e".repeat(255)).to_string()));
    sent.push(route.request().field("/data/object/payment_intent", "\"pi 1\""));
    sent.push(route.request().field("/data/object/metadata", "{\"checkout_key\":\"chk_7\"}"));
    sent.push(route.request().set("Content-Type", "text/plain"));
    sent.push(route.request().without("Content-Type"));
    sent.push(route.request().target("/v1/webhooks/gateway?source=anywhere"));
    for (place, request) in sent.iter().enumerate() {
        for _ in 0..2 {
            let received = heard(&route.host, &request.bytes()).await;
            assert_eq!((received.status, received.json()), (200, json!({"received": true})), "{request:?}");
        }
        assert_eq!(shop.count("gateway_events").await, i64::try_from(place + 1).unwrap());
        let kept = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM gateway_events WHERE payload = $1");
        assert_eq!(kept.bind(request.text()).fetch_one(&shop.pool).await.expect("a count"), 1, "{request:?}");
    }
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
