//! What a dead process or an unknown outcome leaves behind is finished, with no second charge, or handed to a person.

use crate::support::{Opening, Shop, fresh_key, grinder, wait_for};

const VISA: &str = "pm_card_visa";

fn durable() -> Opening {
    Opening { gateway_in_memory: false, ..Opening::default() }
}

/// The api dies while the gateway is charging, nobody retries, and the worker finishes the order.
#[tokio::test]
async fn an_order_whose_api_was_killed_in_mid_charge_is_finished_by_the_worker() {
    let mut shop = Shop::open_with(durable()).await;
    let key = fresh_key();
    shop.fault("latency_after", 1, 5_000).await;
    let sent = shop.order_in_background(&key);
    wait_for("the gateway has charged", async || shop.captures().await == 1).await;
    shop.api.kill();
    assert!(sent.await.unwrap().is_err(), "the client got an answer from a dead api");
    assert_eq!(shop.count("orders").await, 0);

    shop.set_clock("16 seconds").await;
    shop.start_worker();
    wait_for("the worker has finished the order", async || shop.count("orders").await == 1).await;
    shop.restart_api();
    assert!(shop.order(&key, &grinder(VISA)).await.replayed);
    assert_eq!(shop.captures().await, 1);
    shop.close().await;
}

#[tokio::test]
async fn unknown_outcomes_of_every_kind_are_resolved_without_the_client() {
    let mut shop = Shop::open_with(durable()).await;
    let mut keys = Vec::new();
    for (fault, count) in [("http_500_after", 1), ("drop_after", 2), ("drop_before", 2), ("http_503_before", 2)] {
        shop.fault(fault, count, 0).await;
        let key = fresh_key();
        shop.order(&key, &grinder(VISA)).await.expect(504, "outcome_unknown");
        assert_eq!(shop.state_of(&key).await, "unknown", "{fault}");
        keys.push(key);
    }
    shop.start_worker();
    wait_for("every order is there", async || shop.count("orders").await == 4).await;
    for key in keys {
        assert_eq!(shop.state_of(&key).await, "completed");
    }
    assert_eq!(shop.captures().await, 4);
    shop.close().await;
}

/// After 23 hours the gateway may have forgotten our key, and sending again may charge again.
#[tokio::test]
async fn after_23_hours_nothing_is_sent_again_and_what_cannot_be_found_needs_review() {
    let mut shop = Shop::open_with(durable()).await;
    let (never_arrived, charged) = (fresh_key(), fresh_key());
    shop.fault("drop_before", 2, 0).await;
    shop.order(&never_arrived, &grinder(VISA)).await.expect(504, "outcome_unknown");
    shop.fault("drop_after", 2, 0).await;
    shop.order(&charged, &grinder(VISA)).await.expect(504, "outcome_unknown");
    let arrivals = shop.stats().await["executions"].clone();

    shop.set_clock("24 hours 1 minute").await;
    shop.advance_gateway_clock(25 * 3600).await;
    shop.start_worker();
    wait_for("the charge that happened is found", async || shop.state_of(&charged).await == "completed").await;
    wait_for("the other needs review", async || shop.state_of(&never_arrived).await == "needs_review").await;
    let under_review = shop.order(&never_arrived, &grinder(VISA)).await;
    under_review.expect(504, "outcome_unknown");
    assert_eq!(under_review.json()["retry"], "same_key");
    assert_eq!(shop.stats().await["executions"], arrivals, "nothing was sent after the window");
    assert_eq!((shop.captures().await, shop.count("orders").await), (1, 1));
    let report = serde_json::to_value(shop.audit().await).unwrap();
    assert_eq!(report["counted"]["needs_review"], 1, "{report}");
    shop.close().await;
}

/// "Not found" right after a send proves nothing, also when that send was the last one allowed: the search may lag.
#[tokio::test]
async fn a_search_that_lags_is_waited_for_after_the_last_send() {
    let shop = Shop::open_with(durable()).await;
    let key = fresh_key();
    shop.set_gateway(&serde_json::json!({"search_lag_ms": 1_000_000_000_u64})).await;
    shop.fault("drop_after", 2, 0).await;
    shop.order(&key, &grinder(VISA)).await.expect(504, "outcome_unknown");
    // As if that send had been made in the last second of the 23 hours.
    shop.set_clock("23 hours 1 second").await;
    let executions = shop.stats().await["executions"].clone();
    shop.order(&key, &grinder(VISA)).await.expect(504, "outcome_unknown");
    assert_eq!((shop.state_of(&key).await.as_str(), &shop.stats().await["executions"]), ("unknown", &executions));
    shop.set_gateway(&serde_json::json!({"search_lag_ms": 0})).await;
    shop.order(&key, &grinder(VISA)).await.expect_order();
    assert_eq!(shop.captures().await, 1);
    shop.close().await;
}

/// A declined key runs anew after its expiry; the old refusal at the gateway says nothing about the new charge.
#[tokio::test]
async fn an_old_decline_is_not_the_outcome_of_a_new_charge_under_the_key() {
    let mut shop = Shop::open_with(durable()).await;
    let key = fresh_key();
    shop.order(&key, &grinder("pm_card_chargeDeclined")).await.expect(402, "card_declined");
    shop.set_clock("72 hours 1 second").await;
    shop.advance_gateway_clock(72 * 3600).await;
    checkout::idempotency::partitions::maintain(&shop.pool, std::time::Duration::from_secs(72 * 3600)).await.unwrap();
    shop.set_gateway(&serde_json::json!({"search_lag_ms": 60_000})).await;
    shop.fault("drop_after", 2, 0).await;
    shop.order(&key, &grinder(VISA)).await.expect(504, "outcome_unknown");
    assert_eq!(shop.captures().await, 1, "the new charge took the money");
    shop.order(&key, &grinder(VISA)).await.expect_order();
    shop.start_worker();
    assert_eq!(shop.captures().await, 1);
    shop.close().await;
}

/// What the gateway shows under our key and cannot tell is for a person, once nothing may be sent any more.
#[tokio::test]
async fn an_outcome_that_is_found_but_untellable_needs_review_in_the_end() {
    let shop = Shop::open_with(durable()).await;
    let key = fresh_key();
    shop.fault("drop_before", 2, 0).await;
    shop.order(&key, &grinder(VISA)).await.expect(504, "outcome_unknown");
    let digest: Vec<u8> =
        sqlx::query_scalar("SELECT digest FROM idempotency_records").fetch_one(&shop.pool).await.unwrap();
    let other_amount = [
        ("amount", "100".to_owned()),
        ("currency", "eur".to_owned()),
        ("metadata[checkout_key]", format!("chk_{}", hex::encode(digest))),
    ];
    let url = format!("{}/v1/payment_intents", shop.gateway_url);
    let made = shop.http.post(url).bearer_auth("sk_test_checkout").form(&other_amount).send().await.unwrap();
    assert!(made.status().is_success(), "{}", made.text().await.unwrap());
    shop.order(&key, &grinder(VISA)).await.expect_order();
    shop.close().await;

    let shop = Shop::open_with(durable()).await;
    shop.fault("drop_before", 2, 0).await;
    shop.order(&key, &grinder(VISA)).await.expect(504, "outcome_unknown");
    let url = format!("{}/v1/payment_intents", shop.gateway_url);
    let made = shop.http.post(url).bearer_auth("sk_test_checkout").form(&other_amount).send().await.unwrap();
    assert!(made.status().is_success());
    shop.set_clock("24 hours 1 minute").await;
    shop.order(&key, &grinder(VISA)).await.expect(504, "outcome_unknown");
    assert_eq!(shop.state_of(&key).await, "needs_review");
    shop.close().await;
}

/// "Nothing was charged", said the 503, and its client went away. Nobody charges it behind that client's back.
#[tokio::test]
async fn what_was_released_unsent_waits_for_its_client_and_for_nobody_else() {
    let mut shop = Shop::open_with(durable()).await;
    let (given_up, unknown) = (fresh_key(), fresh_key());
    shop.gateway.kill();
    shop.order(&given_up, &grinder(VISA)).await.expect(503, "gateway_unavailable");
    shop.restart_gateway();
    shop.fault("drop_before", 2, 0).await;
    shop.order(&unknown, &grinder(VISA)).await.expect(504, "outcome_unknown");
    shop.set_clock("10 minutes").await;
    shop.start_worker();
    // The worker has been at work: what really was unknown is finished, and the other is as it was.
    wait_for("the unknown one is finished", async || shop.state_of(&unknown).await == "completed").await;
    assert_eq!((shop.captures().await, shop.state_of(&given_up).await.as_str()), (1, "released"));
    shop.order(&given_up, &grinder(VISA)).await.expect_order();
    assert_eq!(shop.captures().await, 2);
    shop.close().await;
}

/// What no program can find out, a person decides; the gateway must confirm a charge, and the decision is kept.
#[tokio::test]
async fn a_person_ends_a_review_and_the_gateway_has_the_last_word() {
    let mut shop = Shop::open_with(durable()).await;
    let (lost, hidden) = (fresh_key(), fresh_key());
    shop.fault("drop_before", 2, 0).await;
    shop.order(&lost, &grinder(VISA)).await.expect(504, "outcome_unknown");
    shop.fault("drop_after", 2, 0).await;
    shop.order(&hidden, &grinder(VISA)).await.expect(504, "outcome_unknown");
    let capture = shop.ledger().await["captures"][0].clone();
    let payment_intent = capture["payment_intent"].as_str().unwrap().to_owned();
    let hidden_key = capture["idempotency_key"].as_str().unwrap().to_owned();

    // The gateway's search stays behind for longer than it keeps its keys, and its list, which does not, is not read.
    shop.reconcile_nothing().await;
    shop.set_gateway(&serde_json::json!({"search_lag_ms": 1_000_000_000_u64})).await;
    shop.set_clock("24 hours 1 minute").await;
    shop.start_worker();
    for key in [&lost, &hidden] {
        wait_for("the key needs review", async || shop.state_of(key).await == "needs_review").await;
    }

    // It takes the person a weekend. The answer is not forgotten the moment it exists.
    shop.set_clock("80 hours").await;
    shop.set_gateway(&serde_json::json!({"search_lag_ms": 0})).await;
    let listed = shop.review(&[]).expect("a listing");
    let lost_key =
        listed.lines().find_map(|line| line.split(' ').next().filter(|key| *key != hidden_key)).unwrap().to_owned();
    assert!(listed.contains(&hidden_key) && lost_key.starts_with("chk_"), "{listed}");
    for (arguments, complaint) in [
        (vec![&*lost_key, "--charged", "pi_invented", "--by", "Ada"], "has no pi_invented"),
        (vec![&*lost_key, "--charged", &*payment_intent, "--by", "Ada"], "made for this key"),
        (vec![&*lost_key, "--charged", "../charges", "--by", "Ada"], "has no ../charges"),
        (vec![&*hidden_key, "--not-charged", "--by", "Ada"], "decide with --charged"),
        (vec![&*lost_key, "--not-charged"], "--by"),
        (vec![&*lost_key, "--by", "Ada"], "--charged"),
        (vec!["chk_nonsense", "--not-charged", "--by", "Ada"], "no gateway key of ours"),
    ] {
        let refused = shop.review(&arguments).expect_err("refused");
        assert!(refused.contains(complaint), "{arguments:?}: {refused}");
    }
    assert_eq!(shop.count("reviews").await, 0, "what was refused leaves nothing behind");

    shop.review(&[&hidden_key, "--charged", &payment_intent, "--by", "Ada"]).expect("settled");
    shop.review(&[&lost_key, "--not-charged", "--by", "Ada"]).expect("closed");
    assert!(shop.review(&[&lost_key, "--not-charged", "--by", "Ada"]).is_err(), "a decision is taken once");
    let placed = shop.order(&hidden, &grinder(VISA)).await;
    assert_eq!(placed.json()["charge"]["gateway_id"], payment_intent);
    assert!(placed.replayed);
    let closed = shop.order(&lost, &grinder(VISA)).await;
    closed.expect(402, "card_declined");
    assert_eq!((closed.json()["decline_code"].as_str(), closed.replayed), (Some("not_charged"), true));
    let decisions = [
        shop.count("reviews WHERE verdict = 'charged'").await,
        shop.count("reviews WHERE verdict = 'not_charged'").await,
    ];
    assert_eq!((decisions, shop.captures().await), ([1, 1], 1));
    shop.close().await;
}

/// A paused process wakes up after its lease: its answer from the gateway is true, and its writing days are over.
#[tokio::test]
async fn an_owner_that_slept_through_its_lease_writes_nothing() {
    let mut shop = Shop::open_with(durable()).await;
    let key = fresh_key();
    shop.fault("latency_after", 1, 1_500).await;
    let sleeper = shop.order_in_background(&key);
    wait_for("the gateway has charged", async || shop.captures().await == 1).await;
    shop.api.pause();
    shop.set_clock("16 seconds").await;
    shop.start_worker();
    wait_for("the worker has finished the order", async || shop.count("orders").await == 1).await;
    shop.api.resume();
    let answer = sleeper.await.unwrap().unwrap();
    assert_eq!(answer.status(), 201);
    assert_eq!(answer.headers()["idempotent-replayed"], "true", "the sleeper passes on the other owner's answer");
    assert_eq!((shop.captures().await, shop.count("orders").await, shop.count("charges").await), (1, 1, 1));
    shop.close().await;
}

#[tokio::test]
async fn a_gateway_that_hangs_costs_an_answer_in_time_and_nothing_else() {
    let flags = vec!["--gateway-budget-ms", "400", "--answer-ms", "2000", "--lease-ms", "4000"];
    let shop = Shop::open_with(Opening { flags, ..durable() }).await;
    let key = fresh_key();
    shop.fault("hang_after", 2, 0).await;
    let hung = shop.order(&key, &grinder(VISA)).await;
    hung.expect(504, "outcome_unknown");
    assert!(hung.retry_after_s.is_some());
    assert!(!shop.order_until_placed(&key).await.replayed);
    assert_eq!(shop.captures().await, 1);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_that_is_asked_to_stop_finishes_what_it_claimed() {
    let mut shop = Shop::open_with(durable()).await;
    shop.fault("latency_after", 1, 1_000).await;
    let sent = shop.order_in_background(&fresh_key());
    wait_for("the gateway has charged", async || shop.captures().await == 1).await;
    let status = tokio::task::block_in_place(|| shop.api.stop());
    assert!(status.success(), "{status}: {}", shop.api.stderr());
    assert_eq!(sent.await.unwrap().expect("an answer").status(), 201);
    assert_eq!(shop.count("orders").await, 1);
    shop.close().await;
}

/// Without the drain the last words of a hung-up client's order would be cut off with the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_that_is_asked_to_stop_also_finishes_for_clients_that_are_gone() {
    let mut shop = Shop::open_with(durable()).await;
    shop.fault("latency_after", 1, 1_000).await;
    let gone = shop.order_in_background(&fresh_key());
    wait_for("the gateway has charged", async || shop.captures().await == 1).await;
    gone.abort();
    assert!(gone.await.is_err_and(|error| error.is_cancelled()));
    let status = tokio::task::block_in_place(|| shop.api.stop());
    assert!(status.success(), "{status}: {}", shop.api.stderr());
    assert_eq!(shop.count("orders").await, 1);
    shop.close().await;
}

#[tokio::test]
async fn a_database_that_is_gone_is_a_503_that_says_so_and_readiness_says_it_first() {
    let shop = Shop::open().await;
    for day in sqlx::query_scalar::<_, String>(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'idempotency_records'::regclass",
    )
    .fetch_all(&shop.pool)
    .await
    .unwrap()
    {
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("DROP TABLE {day}"))).execute(&shop.pool).await.unwrap();
    }
    let ready = shop.http.get(format!("{}/readyz", shop.api_url)).send().await.unwrap();
    assert_eq!(ready.status(), 503);
    let refused = shop.order(&fresh_key(), &grinder(VISA)).await;
    refused.expect(503, "unavailable");
    assert_eq!((refused.json()["retry"].as_str(), refused.retry_after_s), (Some("same_key"), Some(2)));
    assert_eq!(shop.captures().await, 0);
    shop.close().await;
}

/// Connections to the database die under the orders again and again, also between COMMIT and its acknowledgement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_drops_its_connections_loses_and_doubles_nothing() {
    let shop = Shop::open_with(Opening { gateway_in_memory: true, worker: true, ..Opening::default() }).await;
    let keys: Vec<String> = (0..150).map(|_| fresh_key()).collect();
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = 'checkout api'";
    let mut cuts = 0;
    let placing = futures_util::future::join_all(keys.iter().map(|key| shop.order_until_placed(key)));
    let cutting = async {
        for _ in 0..12 {
            cuts += sqlx::query_scalar::<_, i64>(cut).fetch_one(&shop.pool).await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(30)).await;
        }
    };
    let (placed, ()) = tokio::join!(placing, cutting);
    assert!(cuts > 0, "no connection was cut");
    assert_eq!(placed.len(), keys.len());
    assert_eq!((shop.count("orders").await, shop.captures().await), (150, 150));
    shop.close().await;
}

/// The charge is made, and the database dies at every COMMIT that would record it: nothing is called a failure, and the next
/// attempt finds the charge.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_that_cannot_be_committed_is_finished_later() {
    let shop = Shop::open_with(durable()).await;
    let key = fresh_key();
    sqlx::raw_sql(
        "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION cut()",
    )
    .execute(&shop.pool)
    .await
    .unwrap();
    let told = shop.order(&key, &grinder(VISA)).await;
    assert_eq!((told.status, told.json()["retry"].as_str()), (500, Some("same_key")), "{}", told.text());
    assert_eq!((shop.captures().await, shop.count("orders").await), (1, 0));
    sqlx::raw_sql("DROP TRIGGER cut ON orders").execute(&shop.pool).await.unwrap();
    shop.set_clock("16 seconds").await;
    shop.order(&key, &grinder(VISA)).await.expect_order();
    assert_eq!((shop.captures().await, shop.count("orders").await), (1, 1));
    shop.close().await;
}

/// The claim's own COMMIT goes unheard: a 503 that says "charged nothing" would be a promise that recovery breaks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_in_doubt_is_a_504_and_is_finished_without_its_client() {
    let mut shop = Shop::open_with(durable()).await;
    let key = fresh_key();
    sqlx::raw_sql(
        "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON idempotency_records DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION cut()",
    )
    .execute(&shop.pool)
    .await
    .unwrap();
    shop.order(&key, &grinder(VISA)).await.expect(504, "outcome_unknown");
    assert_eq!(shop.captures().await, 0);
    sqlx::raw_sql("DROP TRIGGER cut ON idempotency_records").execute(&shop.pool).await.unwrap();
    shop.start_worker();
    shop.order_until_placed(&key).await;
    assert_eq!((shop.captures().await, shop.count("orders").await), (1, 1));
    shop.close().await;
}
