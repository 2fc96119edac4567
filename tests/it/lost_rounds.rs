//! A step of the delivery that fails in the database is done by the next round; its effect happens once.
//!
//! Real failures, as in `lost_races`: a trigger in the test's own database raises a serialization failure or a deadlock, or ends
//! its own connection, when the step first comes to its commit.

use futures_util::{StreamExt, stream};

use crate::support::{FAILURES, Opening, Shop, apart, fresh_key, grinder, wait_for};

/// They wait more than they work.
const AT_ONCE: usize = 3;

/// A transaction on the way of an event.
#[derive(Debug, Clone, Copy)]
enum Step {
    Lease,
    Publish,
    Mark,
    Book,
    AcknowledgeBooked,
    Receipt,
    AcknowledgeReceipt,
}

/// What must be seen to have been repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeated {
    Nothing,
    Publishing,
    Mailing,
}

impl Step {
    const ALL: [Self; 7] = [
        Self::Lease,
        Self::Publish,
        Self::Mark,
        Self::Book,
        Self::AcknowledgeBooked,
        Self::Receipt,
        Self::AcknowledgeReceipt,
    ];

    /// The write that makes the step recognisable, and what has to be done again when it fails.
    fn write(self) -> (&'static str, &'static str, Repeated) {
        match self {
            Self::Lease => ("UPDATE ON leases", "NEW.duty = 'relay'", Repeated::Nothing),
            Self::Publish => ("INSERT ON event_log", "true", Repeated::Nothing),
            Self::Mark => ("UPDATE ON outbox", "NEW.sent_at IS NOT NULL", Repeated::Publishing),
            Self::Book => ("INSERT ON ledger_entries", "true", Repeated::Nothing),
            Self::AcknowledgeBooked => ("UPDATE ON consumer_offsets", "NEW.consumer = 'ledger'", Repeated::Nothing),
            Self::Receipt => ("INSERT ON receipts", "true", Repeated::Mailing),
            Self::AcknowledgeReceipt => ("UPDATE ON consumer_offsets", "NEW.consumer = 'receipts'", Repeated::Nothing),
        }
    }

    async fn fails_once(self, shop: &Shop, how: &str) {
        let (write, when, _) = self.write();
        let install = format!(
            "CREATE SEQUENCE reached;
             CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN IF nextval('reached') = 1 THEN {how}; END IF; RETURN NULL; END $$;
             CREATE CONSTRAINT TRIGGER fail_once AFTER {write} DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION fail_once()"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(install)).execute(&shop.pool).await.expect("the trigger");
    }
}

async fn one_effect_though_it_failed(step: Step, how: &str) {
    let mut shop = Shop::open_with(Opening { gateway_in_memory: true, ..Opening::default() }).await;
    shop.order(&fresh_key(), &grinder("pm_card_visa")).await.expect_order();
    step.fails_once(&shop, how).await;
    shop.start_worker();
    let arrived = "SELECT NOT EXISTS (SELECT FROM outbox WHERE sent_at IS NULL)
        AND (SELECT bool_and(c.next_offset = p.next_offset AND p.next_offset > 0)
             FROM consumer_offsets AS c JOIN log_partitions AS p USING (partition)
             WHERE partition IN (SELECT partition FROM event_log))";
    wait_for("the event has arrived everywhere", async || {
        sqlx::query_scalar(arrived).fetch_one(&shop.pool).await.is_ok_and(|arrived: Option<bool>| arrived == Some(true))
    })
    .await;
    let reached: i64 = sqlx::query_scalar("SELECT last_value FROM reached").fetch_one(&shop.pool).await.unwrap();
    assert!(reached >= 2, "the step was reached {reached} times: it did not fail, or was not done again");
    let worker = shop.worker.as_ref().expect("a worker").stderr();
    assert!(worker.contains("a round of "), "the worker noticed nothing: {worker}");

    let effects = [shop.count("processed").await, shop.count("ledger_entries").await, shop.count("receipts").await];
    assert_eq!((effects, shop.count("parked_events").await), ([2, 2, 1], 0));
    assert_eq!(shop.mails().await.len(), 1);
    let recognised = shop.mail_stats().await["replays"].as_u64();
    let (_, _, repeated) = step.write();
    assert_eq!(recognised, Some(u64::from(repeated == Repeated::Mailing)), "mails sent again");
    let published_again = shop.count("event_log").await - 1;
    assert_eq!(published_again, i64::from(repeated == Repeated::Publishing), "events published again");
    shop.close().await;
}

#[tokio::test]
async fn a_step_of_the_delivery_that_fails_is_done_by_the_next_round_and_works_once() {
    let cases = Step::ALL.into_iter().flat_map(|step| FAILURES.map(|(failure, how)| (step, failure, how)));
    let played = stream::iter(cases)
        .map(async |(step, failure, how)| (step, failure, apart(move || one_effect_though_it_failed(step, how)).await))
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    for (step, failure, ended) in &played {
        assert!(ended.is_ok(), "{step:?}, {failure}: {ended:?}");
    }
    assert_eq!(played.len(), 21);
}
