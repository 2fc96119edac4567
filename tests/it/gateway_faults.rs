//! The mock gateway's misbehaviour, as an HTTP client meets it.
//!
//! It answers: does each fault look from outside as it does in the wild, and does the ledger say where the money stands?

use std::{error::Error, io, time::Duration};

use checkout::mock_gateway::{Books, Settings};
use serde_json::json;

use crate::{
    gateway_world::{GRINDER, World, grinder, read},
    support::{Process, wait_for},
};

/// Every cause of a failure, outermost first.
fn causes(error: &reqwest::Error) -> Vec<&(dyn Error + 'static)> {
    let first: &(dyn Error + 'static) = error;
    std::iter::successors(Some(first), |error: &&(dyn Error + 'static)| (*error).source()).collect()
}

fn incomplete(error: &reqwest::Error) -> bool {
    let hyper = causes(error).into_iter().filter_map(|cause| cause.downcast_ref::<hyper::Error>());
    hyper.into_iter().any(hyper::Error::is_incomplete_message)
}

fn reset(error: &reqwest::Error) -> bool {
    let io = causes(error).into_iter().filter_map(|cause| cause.downcast_ref::<io::Error>());
    io.into_iter().any(|error| error.kind() == io::ErrorKind::ConnectionReset)
}

async fn fails(world: &World, key: &str, form: crate::gateway_world::Pairs<'_>) -> reqwest::Error {
    world.send("/v1/payment_intents", Some(key), form).await.expect_err("no answer")
}

#[tokio::test]
async fn drop_after_charges_and_ends_without_a_byte() {
    let world = World::in_memory().await;
    world.fault("drop_after", 1).await;
    let error = fails(&world, "k1", GRINDER).await;
    assert!(incomplete(&error), "{error:?}");
    assert_eq!(world.captures().await, 1);
    let retried = world.pay("k1", GRINDER).await;
    assert_eq!((retried.status, retried.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(world.captures().await, 1);
    assert_eq!(world.stats().await["faults"]["drop_after"], 1);
}

#[tokio::test]
async fn rst_after_charges_and_resets_the_connection() {
    let world = World::in_memory().await;
    world.fault("rst_after", 1).await;
    let error = fails(&world, "k1", GRINDER).await;
    assert!(reset(&error), "{error:?}");
    assert_eq!(world.captures().await, 1);
    assert_eq!(world.pay("k1", GRINDER).await.header("idempotent-replayed"), Some("true"));
}

#[tokio::test]
async fn truncate_after_charges_and_sends_half_an_answer() {
    let world = World::in_memory().await;
    world.fault("truncate_after", 1).await;
    let response = world.send("/v1/payment_intents", Some("k1"), GRINDER).await.expect("headers");
    assert_eq!(response.status(), 200);
    let error = read(response).await.expect_err("half a body");
    assert!(error.is_body() || error.is_decode(), "{error:?}");
    assert_eq!(world.captures().await, 1);
    assert_eq!(world.pay("k1", GRINDER).await.header("idempotent-replayed"), Some("true"));
}

#[tokio::test]
async fn drop_before_charges_nothing_and_the_retry_executes() {
    let world = World::in_memory().await;
    world.fault("drop_before", 1).await;
    let error = fails(&world, "k1", GRINDER).await;
    assert!(incomplete(&error), "{error:?}");
    assert_eq!(world.captures().await, 0);
    assert_eq!(world.pay("k1", GRINDER).await.header("idempotent-replayed"), None);
    assert_eq!(world.captures().await, 1);
}

#[tokio::test]
async fn refusals_before_execution_are_not_recorded() {
    let world = World::in_memory().await;
    for (fault, status, code, advice) in [
        ("http_503_before", 503, None, None),
        ("http_429_before", 429, Some("rate_limit"), None),
        ("lock_timeout_before", 429, Some("lock_timeout"), Some("true")),
    ] {
        world.fault(fault, 2).await;
        for _ in 0..2 {
            let refused = world.pay(fault, GRINDER).await;
            assert_eq!((refused.status, refused.error("code")), (status, code));
            assert_eq!(refused.header("stripe-should-retry"), advice);
        }
        assert_eq!(world.pay(fault, GRINDER).await.header("idempotent-replayed"), None);
    }
    assert_eq!(world.captures().await, 3);
}

#[tokio::test]
async fn a_500_is_recorded_whether_or_not_money_moved() {
    let world = World::in_memory().await;
    for (fault, captures) in [("http_500_before", 0), ("http_500_after", 1)] {
        world.fault(fault, 1).await;
        let first = world.pay(fault, GRINDER).await;
        assert_eq!((first.status, first.error("type")), (500, Some("api_error")));
        assert_eq!(first.header("stripe-should-retry"), Some("false"));
        let again = world.pay(fault, GRINDER).await;
        assert_eq!((again.status, &again.text), (500, &first.text));
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!(again.header("stripe-should-retry"), Some("false"));
        assert_eq!(world.captures().await, captures, "{fault}");
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_is_charged_all_the_same() {
    let world = World::in_memory().await;
    for (fault, key) in [("latency_before_1500", "k1"), ("hang_after", "k2")] {
        let form = grinder(&[("metadata[mock_fault]", fault)]);
        let request = world.client.post(world.url("/v1/payment_intents")).bearer_auth("sk_test_1").form(&form);
        let request = request.header("Idempotency-Key", key).timeout(Duration::from_millis(200));
        let error = request.send().await.expect_err("a time-out");
        assert!(error.is_timeout(), "{error:?}");
    }
    wait_for("both are charged", async || world.captures().await == 2).await;
    for key in ["k1", "k2"] {
        let (first, fault) = if key == "k1" { ("k1", "latency_before_1500") } else { ("k2", "hang_after") };
        let retried = world.pay(first, &grinder(&[("metadata[mock_fault]", fault)])).await;
        assert_eq!((retried.status, retried.header("idempotent-replayed")), (200, Some("true")));
    }
}

#[tokio::test]
async fn a_fault_asked_for_by_the_request_strikes_once_unless_told_always() {
    let world = World::in_memory().await;
    let once = grinder(&[("payment_method", "pm_mock_drop_after")]);
    assert!(incomplete(&fails(&world, "k1", &once).await));
    assert_eq!(world.pay("k1", &once).await.header("idempotent-replayed"), Some("true"));
    let always = grinder(&[("payment_method", "pm_mock_drop_after_always")]);
    for _ in 0..3 {
        assert!(incomplete(&fails(&world, "k2", &always).await));
    }
    let noted = grinder(&[("metadata[mock_fault]", "http_503_before")]);
    assert_eq!(world.pay("k3", &noted).await.status, 503);
    assert_eq!(world.pay("k3", &noted).await.status, 200);
    let wrong = world.pay("k4", &grinder(&[("metadata[mock_fault]", "earthquake")])).await;
    assert_eq!((wrong.status, wrong.error("param")), (400, Some("metadata[mock_fault]")));
    let wrong = world.pay("k4", &grinder(&[("payment_method", "pm_mock_earthquake")])).await;
    assert_eq!((wrong.status, wrong.error("code")), (400, Some("resource_missing")));
    assert_eq!(world.captures().await, 3);
}

#[tokio::test]
async fn chance_draws_the_same_fate_for_the_same_seed_and_key() {
    let mut runs = Vec::new();
    for seed in [7, 7, 8] {
        let settings = Settings {
            seed,
            faults: vec!["http_503_before:0.3".into(), "http_429_before:0.2".into()],
            ..Settings::default()
        };
        let world = World::new(Books::in_memory(), settings).await;
        let mut run = Vec::new();
        for serial in 0..60 {
            run.push(world.pay(&format!("k{serial}"), GRINDER).await.status);
        }
        runs.push(run);
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
    assert!([200, 429, 503].iter().all(|status| runs[0].contains(status)));
}

#[tokio::test]
async fn rates_that_cannot_be_refuse_to_start() {
    for wrong in ["drop_after", "drop_after:2", "drop_after:-0.1", "drop_after:NaN", "earthquake:0.1", "refuse:0.5"] {
        let settings = Settings { faults: vec![wrong.into()], ..Settings::default() };
        let address = "127.0.0.1:0".parse().expect("an address");
        let started = checkout::mock_gateway::start(address, settings, Books::in_memory()).await;
        assert!(started.is_err(), "{wrong}");
    }
    let settings = Settings { faults: vec!["drop_after:0.6".into(), "rst_after:0.6".into()], ..Settings::default() };
    let address = "127.0.0.1:0".parse().expect("an address");
    let started = checkout::mock_gateway::start(address, settings, Books::in_memory()).await;
    assert!(started.is_err(), "more than certain");
}

/// A teacher reads in the log what struck whom, whichever fault it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_is_in_the_catalogue_with_a_sentence_and_in_the_log_when_it_strikes() {
    let _tls_provider_of_the_client = World::in_memory().await;
    let (gateway, url) = Process::role("gateway", &["--in-memory"], &[]);
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(5)).build().expect("a client");
    let faults = format!("{url}/_mock/faults");
    let listing: serde_json::Value = client.get(&faults).send().await.expect("sent").json().await.expect("JSON");
    let catalogue = listing["catalogue"].as_object().expect("a catalogue");
    let fired = client.get(format!("{url}/_mock/stats")).send().await.expect("sent");
    let fired: serde_json::Value = fired.json().await.expect("JSON");
    assert_eq!(catalogue.len(), fired["faults"].as_object().expect("faults").len());
    assert_eq!((&listing["queue"], &listing["webhooks"]["queue"]), (&json!([]), &json!([])));
    // The one that shuts the port comes last: it shuts it for the others too.
    let (refusing, others): (Vec<_>, Vec<_>) = catalogue.iter().partition(|(name, _)| *name == "refuse");
    // Those of events need an endpoint, and have their own stories.
    let others = others.into_iter().filter(|(name, _)| !name.starts_with("webhook_"));
    for (name, meaning) in others.chain(refusing) {
        assert!(meaning.as_str().expect("text").ends_with('.'), "{name}: {meaning}");
        let asked = json!({ "name": name, "latency_ms": 1 });
        assert_eq!(client.post(&faults).json(&asked).send().await.expect("sent").status(), 200, "{name}");
        let key = if name == "refuse" { "none".to_owned() } else { format!("key-of-{name}") };
        if name != "refuse" {
            let paying = client.post(format!("{url}/v1/payment_intents")).bearer_auth("sk_test_1");
            let paying = paying.timeout(Duration::from_millis(500)).header("Idempotency-Key", &key).form(GRINDER);
            let _what_the_fault_leaves_of_it = paying.send().await;
        }
        let line = format!("a fault strikes fault=\"{name}\" key=\"{key}\"");
        wait_for("the log names the fault", async || gateway.stderr().contains(&line)).await;
        wait_for("the port is open", async || client.get(&faults).send().await.is_ok()).await;
    }
}

#[tokio::test]
async fn a_refusing_gateway_closes_its_port_and_comes_back() {
    let world = World::in_memory().await;
    let asked = world.control("faults", json!({ "name": "refuse", "latency_ms": 1000 })).await;
    assert_eq!(asked.status, 200, "{}", asked.text);
    let mut refused = None;
    // Until the port is closed the gateway answers.
    wait_for("the port is closed", async || {
        refused = world.send("/v1/payment_intents", Some("k1"), GRINDER).await.err();
        refused.is_some()
    })
    .await;
    let error = refused.expect("an error");
    assert!(error.is_connect() || incomplete(&error) || reset(&error), "{error:?}");
    let mut paid = None;
    wait_for("the port is open", async || {
        paid = world.send("/v1/payment_intents", Some("k1"), GRINDER).await.ok();
        paid.is_some()
    })
    .await;
    let paid = read(paid.expect("an answer")).await.expect("a whole answer");
    assert_eq!((paid.status, world.captures().await), (200, 1));
}

#[tokio::test]
async fn a_stopping_gateway_answers_what_is_under_way() {
    let world = World::in_memory().await;
    let form = grinder(&[("metadata[mock_fault]", "latency_before_300")]);
    let paying = {
        let (client, url, form) = (world.client.clone(), world.url("/v1/payment_intents"), form.clone());
        let request = client.post(url).bearer_auth("sk_test_1").header("Idempotency-Key", "k1").form(&form);
        tokio::spawn(async move { request.send().await })
    };
    wait_for("it is under way", async || world.stats().await["faults"]["latency_before"] == 1).await;
    world.gateway.stop().await;
    let answer = paying.await.expect("no panic").expect("an answer");
    assert_eq!(answer.status(), 200);
}
