//! What is answered when something fails, and what the next attempt then gets. Cases 6, 7, 11, 13, 14 and 18.

use std::collections::BTreeMap;

use crate::support::{CUSTOMER, Opening, Process, SECRET, Shop, fresh_key, grinder, wait_for};

const VISA: &str = "pm_card_visa";
const DECLINED: &str = "pm_card_visa_chargeDeclined";

/// The gateway takes no connection for two seconds, or is too busy: the same key works as soon as it comes back.
#[tokio::test]
async fn b06_a_passing_failure_is_not_pinned_to_the_key() {
    let shop = Shop::open().await;
    for (fault, count, latency_ms) in [("refuse", 1, 2_000), ("http_429_before", 4, 0)] {
        let (key, before) = (fresh_key(), shop.captures().await);
        shop.fault(fault, count, latency_ms).await;
        for _ in 0..2 {
            let told = shop.order(&key, &grinder(VISA)).await;
            told.expect(503, "gateway_unavailable");
            assert_eq!((told.json()["retry"].as_str(), told.replayed), (Some("same_key"), false), "{fault}");
            assert_eq!(shop.state_of(&key).await, "released", "{fault}");
        }
        assert!(!shop.order_until_placed(&key).await.replayed, "{fault}");
        assert_eq!(shop.captures().await, before + 1, "{fault}");
    }
    shop.close().await;
}

type Headers = BTreeMap<String, String>;

/// Status, headers and bytes of one answer.
async fn whole(shop: &Shop, key: &str, payment_method: &str) -> (u16, Headers, Vec<u8>) {
    let request = shop.http.post(format!("{}/v1/orders", shop.api_url)).bearer_auth(shop.token(CUSTOMER));
    let heard = request.header("Idempotency-Key", key).json(&grinder(payment_method)).send().await.expect("an answer");
    let headers = heard.headers().iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    let (status, headers) = (heard.status().as_u16(), headers.collect());
    (status, headers, heard.bytes().await.expect("a body").to_vec())
}

/// Every header of a replay is the first one's, but for those of the exchange itself.
#[tokio::test]
async fn b07_a_replay_differs_in_nothing_but_its_own_request() {
    let mut shop = Shop::open().await;
    let keys = [(fresh_key(), VISA, 201), (fresh_key(), DECLINED, 402)];
    let mut first = Vec::new();
    for (key, payment_method, status) in &keys {
        let (heard, headers, body) = whole(&shop, key, payment_method).await;
        assert_eq!(heard, *status);
        let mut names: Vec<&str> = headers.keys().map(String::as_str).collect();
        names.retain(|name| *name != "location");
        let of_every_answer = ["cache-control", "content-security-policy", "referrer-policy", "x-content-type-options"];
        names.retain(|name| !of_every_answer.contains(name));
        assert_eq!(names, ["content-length", "content-type", "date", "request-id"], "no cookie, nothing of a moment");
        assert_eq!(headers.contains_key("location"), *status == 201);
        first.push((headers, body));
    }
    for restarted in [false, true] {
        if restarted {
            shop.restart_api();
        }
        for ((key, payment_method, status), (first_headers, first_body)) in keys.iter().zip(&first) {
            let (heard, mut headers, body) = whole(&shop, key, payment_method).await;
            assert_eq!((heard, &body), (*status, first_body));
            assert_eq!(headers.remove("idempotent-replayed").as_deref(), Some("true"));
            assert_ne!(headers["request-id"], first_headers["request-id"], "this request has its own id");
            for of_the_exchange in ["request-id", "date"] {
                headers.insert(of_the_exchange.to_owned(), first_headers[of_the_exchange].clone());
            }
            assert_eq!(headers, *first_headers);
        }
    }
    shop.close().await;
}

/// The first attempt is given up while the server works on. 409 says when to ask again, and then there is the order.
#[tokio::test]
async fn b11_in_progress_is_no_failure() {
    let shop = Shop::open().await;
    let key = fresh_key();
    shop.fault("latency_after", 1, 2_000).await;
    let first = shop.order_in_background(&key);
    wait_for("it is under way", async || shop.captures().await == 1).await;
    first.abort();
    for _ in 0..3 {
        let told = shop.order(&key, &grinder(VISA)).await;
        told.expect(409, "request_in_progress");
        assert_eq!((told.json()["retry"].as_str(), told.retry_after_s), (Some("same_key"), Some(1)));
        assert_eq!(shop.state_of(&key).await, "in_flight");
    }
    let placed = shop.order_until_placed(&key).await;
    assert!(placed.replayed, "the attempt that was given up has placed it");
    assert_eq!((shop.captures().await, shop.count("orders").await), (1, 1));
    shop.close().await;
}

/// kill -9 right after the claim, and no worker anywhere: the key waits for its lease and for nothing else.
#[tokio::test]
async fn b13_in_flight_ends_with_its_lease() {
    for after in ["16 seconds", "30 seconds", "5 minutes", "22 hours"] {
        let api_crash = "order.claimed:kill".to_owned();
        let mut shop = Shop::open_with(Opening { gateway_in_memory: true, api_crash, ..Opening::default() }).await;
        let key = fresh_key();
        assert!(shop.order_in_background(&key).await.unwrap().is_err(), "an answer of a dead api");
        shop.restart_api();
        for within in ["1 second", "10 seconds"] {
            shop.set_clock(within).await;
            let told = shop.order(&key, &grinder(VISA)).await;
            told.expect(409, "request_in_progress");
            assert!(told.retry_after_s.is_some_and(|wait| (1..=15).contains(&wait)), "{:?}", told.retry_after_s);
        }
        shop.set_clock(after).await;
        checkout::idempotency::partitions::maintain(&shop.pool, std::time::Duration::from_secs(72 * 3600))
            .await
            .unwrap();
        assert!(!shop.order(&key, &grinder(VISA)).await.replayed, "{after}");
        assert_eq!((shop.captures().await, shop.count("orders").await), (1, 1), "{after}");
        shop.close().await;
    }
}

/// A lease that is none, or shorter than what it must outlast: refused before the first customer comes.
#[tokio::test]
async fn b14_a_lease_that_cannot_be_right_does_not_start() {
    let shop = Shop::open().await;
    for (flags, environment, code, said) in [
        (&["--lease-ms", "0"][..], None, 2, "--lease-ms"),
        (&["--lease-ms=-1"], None, 2, "--lease-ms"),
        (&["--lease-ms", ""], None, 2, "--lease-ms"),
        (&["--lease-ms", "forever"], None, 2, "--lease-ms"),
        (&["--lease-ms", "18446744073709551615"], None, 2, "--lease-ms"),
        (&[], Some(("CHECKOUT_LEASE_MS", "0")), 2, "--lease-ms"),
        (&["--lease-ms", "13999"], None, 1, "the lease (13999 ms) must outlast"),
        (&["--answer-ms", "9001"], None, 1, "the lease (15000 ms) must outlast"),
        (&["--gateway-budget-ms", "8000"], None, 1, "the gateway budget (8000 ms) must be"),
    ] {
        for role in ["api", "worker"] {
            let mut command = Process::command(&[role, "--listen", "127.0.0.1:0"]);
            command.args(flags).envs(environment).env("DATABASE_URL", &shop.database.url);
            command.env("CHECKOUT_GATEWAY_URL", &shop.gateway_url).env("CHECKOUT_SECRET", SECRET);
            if role == "worker" {
                command.env_remove("CHECKOUT_SECRET");
            }
            let mut process = Process::spawn(command);
            let ended = process.ended().code();
            let heard = process.stderr();
            assert_eq!(ended, Some(code), "{role} {flags:?} {environment:?}: {heard}");
            assert!(heard.contains(said), "{role} {flags:?} {environment:?}: {heard}");
        }
    }
    shop.close().await;
}

/// The gateway answers a second after the lease has ended, and somebody asks all the time.
#[tokio::test]
async fn b14_a_gateway_that_takes_the_lease_and_a_second() {
    let flags = vec!["--lease-ms", "3000", "--answer-ms", "1500", "--gateway-budget-ms", "1000"];
    let shop = Shop::open_with(Opening { gateway_in_memory: true, flags, ..Opening::default() }).await;
    let key = fresh_key();
    shop.fault("latency_after", 2, 4_000).await;
    let first = shop.order(&key, &grinder(VISA)).await;
    first.expect(504, "outcome_unknown");
    assert!(!shop.order_until_placed(&key).await.replayed);
    assert_eq!((shop.captures().await, shop.count("orders").await, shop.count("charges").await), (1, 1, 1));
    shop.close().await;
}

/// What the gateway was sent for one request of a client, counted by the gateway itself.
#[tokio::test]
async fn b18_nothing_is_sent_that_we_did_not_send() {
    let shop = Shop::open().await;
    // The fault, our answer, and the sends: the first, and at most the one repetition that is ours.
    for (fault, status, sends) in [
        ("latency_after", 201, 1),
        ("http_500_after", 504, 1),
        ("http_500_before", 504, 1),
        ("http_503_before", 201, 2),
        ("http_429_before", 201, 2),
        ("drop_before", 201, 2),
        ("drop_after", 201, 2),
        ("rst_after", 201, 2),
        ("truncate_after", 201, 2),
    ] {
        let sent = async || {
            let stats = shop.stats().await;
            let count = |of: &serde_json::Value| of.as_u64().expect("a count");
            let unexecuted =
                ["http_503_before", "http_429_before", "drop_before"].map(|name| count(&stats["faults"][name]));
            count(&stats["executions"])
                + count(&stats["replays"])
                + count(&stats["conflicts"])
                + unexecuted.iter().sum::<u64>()
        };
        let (key, before) = (fresh_key(), sent().await);
        shop.fault(fault, 1, 10).await;
        let told = shop.order(&key, &grinder(VISA)).await;
        assert_eq!((told.status, sent().await - before), (status, sends), "{fault}: {}", told.text());
        if fault != "http_500_before" {
            shop.order_until_placed(&key).await;
        }
    }
    shop.close().await;
}
