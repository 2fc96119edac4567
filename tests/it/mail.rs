//! The mock mail service's contract, line by line, over either kind of books.
//!
//! It answers: is a mail delivered once per key, does each fault look from outside as it does in the wild, and does the record
//! say what the customer really got?

use checkout::mock_mail::{Books, Settings};
use serde_json::{Value, json};

use crate::{
    mail_world::{World, http, post, read, receipt},
    support::{Process, TestDatabase, wait_for},
};

#[tokio::test]
async fn one_key_delivers_one_mail_and_answers_alike() {
    for world in World::of_each_kind().await {
        let first = world.send("k1", "Your order").await;
        let again = world.send("k1", "Your order").await;
        assert_eq!((first.id(), first.replayed, again.replayed), (again.id(), false, true));
        assert_ne!(world.send("k2", "Your order").await.id(), first.id());
        world.send("k1", "Another order").await.expect(409, "invalid_idempotent_request");
        // Without a key every request is a mail of its own.
        for _ in 0..2 {
            let keyless = post(&world.http, &world.url, None, &receipt("Hello")).await.expect("an answer");
            assert!(!keyless.replayed);
        }
        assert_eq!(world.delivered().await, ["k1", "k2", "none", "none"]);
        let stats = world.get("/_mock/stats").await.json;
        let counted = ["deliveries", "replays", "conflicts", "mismatches"].map(|name| stats[name].as_u64());
        assert_eq!(counted, [Some(4), Some(1), Some(0), Some(1)]);
    }
}

#[tokio::test]
async fn a_key_is_forgotten_after_its_day_and_what_it_delivered_is_not() {
    for world in World::of_each_kind().await {
        let first = world.send("k1", "Your order").await.id();
        world.control("clock", json!({"advance_s": 86_399})).await;
        assert!(world.send("k1", "Your order").await.replayed);
        world.control("clock", json!({"advance_s": 1})).await;
        let found = world.get("/emails?idempotency_key=k1").await.json;
        assert_eq!((found["data"].as_array().map(Vec::len), &found["data"][0]["id"]), (Some(1), &json!(first)));
        let anew = world.send("k1", "Your order").await;
        assert!(!anew.replayed && anew.id() != first);
        assert_eq!(world.delivered().await, ["k1", "k1"]);
        let found = world.get("/emails?idempotency_key=k1").await.json;
        assert_eq!([&found["data"][0]["id"], &found["data"][1]["id"]], [&json!(first), &json!(anew.id())]);
        // The second delivery has a record of its own, and another knob ends it earlier.
        assert!(world.send("k1", "Your order").await.replayed);
        assert_eq!(world.control("settings", json!({"key_ttl_s": 0})).await.json["key_ttl_s"], 0);
        assert!(!world.send("k1", "Your order").await.replayed);
    }
}

#[tokio::test]
async fn a_mail_is_found_by_key_and_by_id_with_what_it_said() {
    for world in World::of_each_kind().await {
        let id = world.send("a_key+1", "Your order").await.id();
        let found = world.get("/emails?idempotency_key=a_key%2B1").await.json["data"][0].clone();
        assert_eq!(
            [&found["id"], &found["idempotency_key"], &found["to"], &found["subject"]],
            [&json!(id), &json!("a_key+1"), &json!("customer-42@example.com"), &json!("Your order")]
        );
        let one = world.get(&format!("/emails/{id}")).await.json;
        for name in ["from", "to", "subject", "text", "tags"] {
            assert_eq!(one[name], receipt("Your order")[name], "{name}");
        }
        assert_eq!(one["created_at"], found["created_at"]);
        assert!(one["created_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{one}");
        let listed = world.get("/_mock/mails").await.json["mails"][0].clone();
        assert_eq!(listed["tags"], json!({"order_id": "o-1"}));
        assert!(listed["created"].as_i64().is_some_and(|at| at > 1_700_000_000), "{listed}");
        assert_eq!(world.get("/emails?idempotency_key=other").await.json, json!({"data": []}));
        for nothing in ["/emails/x", "/emails/00000000-0000-0000-0000-000000000000", "/mails"] {
            world.get(nothing).await.expect(404, "not_found");
        }
        for wrong in ["/emails", "/emails?limit=1", "/emails?idempotency_key=a&idempotency_key=b"] {
            world.get(wrong).await.expect(422, "validation_error");
        }
    }
}

#[tokio::test]
async fn what_is_no_mail_is_refused_and_burns_no_key() {
    let world = World::in_memory().await;
    let posted = |body: String, key: &'static str, bearer: &'static str| {
        let request = world.http.post(format!("{}/emails", world.url)).header("Idempotency-Key", key).body(body);
        let request = if bearer.is_empty() { request } else { request.bearer_auth(bearer) };
        async { read(request.send().await).await.expect("an answer") }
    };
    let good = receipt("Your order").to_string();
    for body in [
        "{".to_owned(),
        good.replace("\"subject\"", "\"Subject\""),
        good.replacen('{', "{\"subject\":\"twice\",", 1),
        good.replace("customer-42@example.com", "customer 42"),
        good.replace("Your order", "Your\\norder"),
        good.replace("o-1", "o 1"),
    ] {
        posted(body, "k1", "re_x").await.expect(422, "validation_error");
    }
    let long: &'static str = Box::leak("k".repeat(257).into_boxed_str());
    for key in ["", long, "a b"] {
        posted(good.clone(), key, "re_x").await.expect(422, "validation_error");
    }
    posted(good.replace("42.99", &"9".repeat(64 * 1024)), "k1", "re_x").await.expect(413, "payload_too_large");
    posted(good.clone(), "k1", "").await.expect(401, "missing_api_key");
    posted(good.clone(), "k1", "sk_x").await.expect(401, "invalid_api_key");
    let deleted =
        world.http.delete(format!("{}/emails", world.url)).bearer_auth("re_x").send().await.expect("an answer");
    assert_eq!((deleted.status().as_u16(), deleted.headers()["allow"].as_bytes()), (405, &b"GET, POST"[..]));
    assert_eq!(world.delivered().await, Vec::<String>::new());
    assert!(!posted(good.clone(), &long[1..], "re_x").await.replayed);
    assert!(!posted(good, "k1", "re_x").await.replayed);
    assert_eq!(read(world.http.get(format!("{}/livez", world.url)).send().await).await.expect("alive").status, 200);
}

#[tokio::test]
async fn faults_before_send_nothing_and_the_retry_delivers() {
    let world = World::in_memory().await;
    world.fault(json!({"name": "unavailable_before", "count": 2})).await;
    for _ in 0..2 {
        world.send("k1", "Your order").await.expect(503, "service_unavailable");
    }
    world.fault(json!({"name": "drop_before"})).await;
    assert!(world.try_send("k1", &receipt("Your order")).await.is_err());
    assert_eq!(world.delivered().await, Vec::<String>::new());
    assert!(!world.send("k1", "Your order").await.replayed);
    assert_eq!((world.fired("unavailable_before").await, world.fired("drop_before").await), (2, 1));
}

#[tokio::test]
async fn faults_after_have_sent_and_the_retry_hears_of_it() {
    for world in World::of_each_kind().await {
        let body = receipt("Your order");
        world.fault(json!({"name": "drop_after"})).await;
        assert!(world.try_send("drop_after", &body).await.is_err());
        world.fault(json!({"name": "http_500_after"})).await;
        world.send("http_500_after", "Your order").await.expect(500, "internal_server_error");
        for silent in ["latency_after", "hang_after"] {
            world.fault(json!({"name": silent, "latency_ms": 60_000})).await;
            tokio::select! {
                answer = world.try_send(silent, &body) => panic!("{silent}: answered at once: {answer:?}"),
                () = wait_for("it has fired", async || world.fired(silent).await == 1) => {}
            }
        }
        let faults = ["drop_after", "http_500_after", "latency_after", "hang_after"];
        assert_eq!(world.delivered().await, faults);
        for fault in faults {
            assert!(world.send(fault, "Your order").await.replayed, "{fault}");
            assert_eq!(world.fired(fault).await, 1, "{fault}");
        }
        assert_eq!(world.delivered().await, faults);
    }
}

#[tokio::test]
async fn a_key_in_progress_is_refused_until_it_is_done_and_its_client_may_leave() {
    for world in World::of_each_kind().await {
        world.fault(json!({"name": "latency_before", "latency_ms": 2_000})).await;
        let body = receipt("Your order");
        {
            let slow = world.try_send("k1", &body);
            let begun = wait_for("it is in progress", async || world.fired("latency_before").await == 1);
            tokio::select! {
                answer = slow => panic!("answered too early: {answer:?}"),
                () = begun => {}
            }
        }
        // Its client is gone, and it goes on.
        let mut conflicts = 0;
        let mut last = None;
        wait_for("it has ended", async || {
            let answer = world.send("k1", "Your order").await;
            let ended = answer.status != 409;
            if !ended {
                answer.expect(409, "concurrent_idempotent_requests");
                conflicts += 1;
            }
            last = Some(answer);
            ended
        })
        .await;
        let ended = last.expect("an answer");
        assert!(ended.replayed && conflicts > 0, "{conflicts} {ended:?}");
        assert_eq!(world.delivered().await, ["k1"]);
        assert_eq!(world.get("/_mock/stats").await.json["conflicts"], conflicts);
    }
}

#[tokio::test]
async fn poison_strikes_its_recipient_every_time_until_it_is_taken_away() {
    let world = World::in_memory().await;
    world.send("before", "Your order").await.id();
    world.fault(json!({"name": "reject", "to": "customer-42@example.com"})).await;
    for _ in 0..3 {
        world.send("k1", "Your order").await.expect(422, "validation_error");
    }
    // What was delivered stays delivered, and others are not concerned.
    assert!(world.send("before", "Your order").await.replayed);
    let mut other = receipt("Your order");
    other["to"] = json!("customer-43@example.com");
    world.try_send("k2", &other).await.expect("an answer").id();
    assert_eq!(world.fired("reject").await, 3);
    let cleared = world.http.delete(format!("{}/_mock/faults", world.url)).send().await.expect("an answer");
    assert_eq!(cleared.status(), 200);
    world.send("k1", "Your order").await.id();
    world.fault(json!({"name": "reject", "count": 1})).await;
    world.send("k3", "Your order").await.expect(422, "validation_error");
    world.send("k3", "Your order").await.id();
    assert_eq!(world.delivered().await, ["before", "k2", "k1", "k3"]);
}

#[tokio::test]
async fn a_service_that_ignores_keys_is_caught_by_its_own_record() {
    for world in World::of_each_kind().await {
        let first = world.send("k1", "Your order").await.id();
        world.fault(json!({"name": "ignore_idempotency"})).await;
        let second = world.send("k1", "Your order").await;
        assert!(!second.replayed && second.id() != first);
        assert_eq!(world.send("k1", "Your order").await.id(), first, "the first record stands");
        assert_eq!(world.delivered().await, ["k1", "k1"]);
        assert_eq!(world.fired("ignore_idempotency").await, 1);
    }
}

#[tokio::test]
async fn the_control_plane_changes_nothing_on_a_wrong_request_and_resets_to_its_start() {
    let settings = Settings { seed: 7, faults: vec!["reject:0".to_owned(), "drop_after:0.25".to_owned()] };
    let world = World::new(Books::in_memory(), settings).await;
    let at_start = world.get("/_mock/faults").await.json;
    assert_eq!((&at_start["seed"], at_start["rates"].as_array().map(Vec::len)), (&json!(7), Some(1)));
    assert!(at_start["catalogue"]["hang_after"].is_string());
    for (path, wrong) in [
        ("faults", json!({"name": "rst_after"})),
        ("faults", json!({"name": "reject", "count": 0})),
        ("faults", json!({"name": "reject", "count": 1, "probability": 0.1})),
        ("faults", json!({"name": "reject", "count": 1, "to": "a@example.com"})),
        ("faults", json!({"name": "reject", "probability": 0.9})),
        ("faults", json!({"name": "latency_after", "latency_ms": 600_001})),
        ("faults", json!({"name": "reject", "where": "here"})),
        ("clock", json!({"advance_s": -1})),
        ("settings", json!({})),
    ] {
        world.control(path, wrong).await.expect(422, "validation_error");
    }
    assert_eq!(world.get("/_mock/faults").await.json, at_start);
    world.fault(json!({"name": "drop_after", "probability": 0})).await;
    world.fault(json!({"name": "unavailable_before", "count": 5})).await;
    world.send("k1", "Your order").await.expect(503, "service_unavailable");
    world.control("clock", json!({"advance_s": 100})).await;
    assert_eq!(world.control("reset", json!({})).await.status, 200);
    assert_eq!(world.get("/_mock/faults").await.json, at_start);
    assert_eq!(world.get("/_mock/clock").await.json["advance_s"], 0);
    assert_eq!(world.fired("unavailable_before").await, 0);
    world.get("/_mock/nothing").await.expect(404, "not_found");
    world.control("mails", json!({})).await.expect(405, "method_not_allowed");
}

#[tokio::test]
async fn the_record_is_whole_beyond_one_page() {
    for world in World::of_each_kind().await {
        let keys: Vec<String> = (0..1_050).map(|serial| format!("k{serial}")).collect();
        for few in keys.chunks(50) {
            let sent = few.iter().map(|key| world.send(key, "Your order"));
            assert!(futures_util::future::join_all(sent).await.iter().all(|answer| answer.status == 200));
        }
        let mut delivered = world.delivered().await;
        let mut expected = keys;
        delivered.sort();
        expected.sort();
        assert_eq!(delivered, expected);
    }
}

#[tokio::test]
async fn a_killed_service_keeps_its_mails_and_its_keys() {
    let (database, http) = (TestDatabase::create().await, http());
    let environment = [("DATABASE_URL", database.url.as_str())];
    let (mut killed, url) = Process::role("mail", &[], &environment);
    let body = receipt("Your order");
    let first = post(&http, &url, Some("k1"), &body).await.expect("an answer").id();
    let fault = json!({"name": "latency_before", "latency_ms": 60_000});
    http.post(format!("{url}/_mock/faults")).json(&fault).send().await.expect("an answer");
    let (waiting, at, other) = (http.clone(), url.clone(), body.clone());
    let in_progress = tokio::spawn(async move { post(&waiting, &at, Some("k2"), &other).await.map(|_| ()) });
    wait_for("k2 is in progress", async || {
        let stats: Value =
            http.get(format!("{url}/_mock/stats")).send().await.expect("stats").json().await.expect("JSON");
        stats["faults"]["latency_before"] == 1
    })
    .await;
    killed.kill();
    assert!(in_progress.await.expect("a task").is_err());

    let (_service, url) = Process::role("mail", &[], &environment);
    let again = post(&http, &url, Some("k1"), &body).await.expect("an answer");
    assert_eq!((again.id(), again.replayed), (first, true));
    // The key that was in progress died with the process, and delivered nothing.
    assert!(!post(&http, &url, Some("k2"), &body).await.expect("an answer").replayed);
    let record: Value = http.get(format!("{url}/_mock/mails")).send().await.expect("mails").json().await.expect("JSON");
    assert_eq!(record["count"], 2, "{record}");
}

#[tokio::test]
async fn one_process_has_the_books_open() {
    let database = TestDatabase::create().await;
    let first = World::new(Books::open(&database.url).await.expect("the books open"), Settings::default()).await;
    let said = Books::open(&database.url).await.expect_err("the books are taken").to_string();
    assert!(said.contains("another mail service has these books open"), "{said}");
    first.service.stop().await;
    Books::open(&database.url).await.expect("free again");
}
