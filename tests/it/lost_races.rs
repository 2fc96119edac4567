//! A database step that fails is run again; the charge never is.
//!
//! Real failures: a trigger in the test's own database raises a serialization failure or a deadlock, or ends its own
//! connection, the first time it is reached. It counts in a sequence, which no rollback turns back.

use futures_util::{StreamExt, stream};

use crate::support::{FAILURES, Opening, Shop, apart, fresh_key, grinder, wait_for};

const VISA: &str = "pm_card_visa";
/// They wait more than they work.
const AT_ONCE: usize = 2;

/// A step of the protocol in the database: by whose hand, and what it does to which table.
#[derive(Debug, Clone, Copy)]
enum Step {
    Claim,
    Settle,
    TakeOverByTheClient,
    TakeOverByRecovery,
}

impl Step {
    const ALL: [Self; 4] = [Self::Claim, Self::Settle, Self::TakeOverByTheClient, Self::TakeOverByRecovery];

    /// The first time it comes to its commit, it fails.
    async fn fails_once(self, shop: &Shop, how: &str) {
        let reached = match self {
            Self::Claim => "AFTER INSERT ON idempotency_records",
            Self::Settle => "AFTER INSERT ON orders",
            Self::TakeOverByTheClient | Self::TakeOverByRecovery => "AFTER UPDATE ON idempotency_records",
        };
        let when = match self {
            Self::Claim | Self::Settle => "true",
            Self::TakeOverByTheClient | Self::TakeOverByRecovery => "NEW.fence > OLD.fence",
        };
        let install = format!(
            "CREATE SEQUENCE reached;
             CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN IF nextval('reached') = 1 THEN {how}; END IF; RETURN NULL; END $$;
             CREATE CONSTRAINT TRIGGER fail_once {reached} DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION fail_once()"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(install)).execute(&shop.pool).await.expect("the trigger");
    }
}

/// Plays one failure, and says what the client was first told.
async fn one_order_though_it_failed(step: Step, how: &str) -> u16 {
    let mut shop = Shop::open_with(Opening { gateway_in_memory: true, ..Opening::default() }).await;
    let key = fresh_key();
    if let Step::TakeOverByTheClient | Step::TakeOverByRecovery = step {
        shop.fault("drop_before", 2, 0).await;
        shop.order(&key, &grinder(VISA)).await.expect(504, "outcome_unknown");
    }
    step.fails_once(&shop, how).await;
    if let Step::TakeOverByRecovery = step {
        shop.set_clock("10 minutes").await;
        shop.start_worker();
        wait_for("recovery has finished the order", async || shop.state_of(&key).await == "completed").await;
    }

    let told = shop.order(&key, &grinder(VISA)).await;
    if told.status != 201 {
        assert_eq!(told.json()["retry"], "same_key", "{}", told.text());
    }
    let placed = shop.order_until_placed(&key).await;
    let reached: i64 = sqlx::query_scalar("SELECT last_value FROM reached").fetch_one(&shop.pool).await.unwrap();
    assert!(reached >= 2, "the step was reached {reached} times: it did not fail, or was not run again");
    assert_eq!(
        (shop.stats().await["executions"].as_u64(), shop.captures().await),
        (Some(1), 1),
        "it was charged again"
    );
    assert_eq!((shop.count("orders").await, shop.count("outbox").await), (1, 1));
    assert_eq!(shop.order(&key, &grinder(VISA)).await.body, placed.body);
    shop.close().await;
    told.status
}

#[tokio::test]
async fn a_database_step_that_fails_is_run_again_and_the_charge_is_not() {
    let cases = Step::ALL.into_iter().flat_map(|step| FAILURES.map(|(failure, how)| (step, failure, how)));
    let played = stream::iter(cases)
        .map(async |(step, failure, how)| (step, failure, apart(move || one_order_though_it_failed(step, how)).await))
        .buffered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    for (step, failure, ended) in played {
        // None of these costs the client more than a moment: the step is run again under its own attempt.
        assert!(matches!(ended, Ok(201)), "{step:?}, {failure}: {ended:?}");
    }
}

/// A batch that loses a race loses it for all of its orders, and none of them hears of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_loses_a_race_is_an_answer_for_each_of_its_orders() {
    let shop = Shop::open_with(Opening { gateway_in_memory: true, ..Opening::default() }).await;
    Step::Settle.fails_once(&shop, FAILURES[0].1).await;
    let keys: Vec<String> = (0..40).map(|_| fresh_key()).collect();
    let body = grinder(VISA);
    let told = futures_util::future::join_all(keys.iter().map(|key| shop.order(key, &body))).await;
    for answer in &told {
        answer.expect_order();
    }
    assert_eq!((shop.stats().await["executions"].as_u64(), shop.count("orders").await), (Some(40), 40));
    let reached: i64 = sqlx::query_scalar("SELECT last_value FROM reached").fetch_one(&shop.pool).await.unwrap();
    assert!(reached > 40, "nothing failed: the trigger was reached {reached} times");
    shop.close().await;
}
