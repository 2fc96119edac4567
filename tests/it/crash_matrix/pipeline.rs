//! What came of the events: sent, booked and mailed, each once, and what was done again on the way.

use std::collections::BTreeSet;

use super::{rows::Again, stage::Stage};
use crate::support::wait_for;

/// How often each thing was seen at the end of an event's way.
#[derive(Debug)]
pub(super) struct Delivered {
    /// Entries of the log; an event that was published twice has two.
    pub(super) in_log: i64,
    /// Events with two entries in the ledger that sum to zero.
    pub(super) booked: i64,
    pub(super) mails: i64,
    /// Mails that were sent again and recognised by the mail service.
    pub(super) recognised: u64,
}

/// Everything is sent, read to its end, and nothing is held.
const QUIET: &str = "SELECT NOT EXISTS (SELECT FROM outbox WHERE sent_at IS NULL)
    AND NOT EXISTS (SELECT FROM parked_events)
    AND (SELECT bool_and(c.next_offset = p.next_offset) FROM consumer_offsets AS c JOIN log_partitions AS p USING (partition))";

/// Every row that says an event was dealt with, with the transaction that wrote it last.
const DEEDS: &str = "SELECT 'sent ' || event_id || ' ' || xmin FROM outbox
    UNION ALL SELECT 'processed ' || consumer || ' ' || event_id || ' ' || xmin FROM processed
    UNION ALL SELECT 'booked ' || event_id || ' ' || account || ' ' || xmin FROM ledger_entries
    UNION ALL SELECT 'receipt ' || event_id || ' ' || xmin FROM receipts
    UNION ALL SELECT 'held ' || stage || ' ' || event_id FROM parked_events
    ORDER BY 1";

/// How far each consumer has read each partition, with the transaction that said so.
const READ: &str = "SELECT consumer || ' ' || partition, next_offset, xmin::text FROM consumer_offsets ORDER BY 1";

/// Everybody has read on behind this event, in its partition.
const IS_OVERTAKEN: &str = "SELECT EXISTS (
    SELECT FROM event_log AS l
    WHERE l.event_id = $1
      AND EXISTS (SELECT FROM event_log AS n WHERE n.partition = l.partition AND n.\"offset\" > l.\"offset\" AND n.event_id <> $1))";

impl Stage {
    pub(super) async fn until_every_event_has_arrived(&self) {
        wait_for("everything is sent and read", async || {
            sqlx::query_scalar(QUIET).fetch_one(&self.shop.pool).await.unwrap_or(false)
        })
        .await;
    }

    pub(super) async fn deeds(&self) -> Vec<String> {
        sqlx::query_scalar(DEEDS).fetch_all(&self.shop.pool).await.expect("the deeds")
    }

    pub(super) async fn read(&self) -> Vec<(String, i64, String)> {
        sqlx::query_as(READ).fetch_all(&self.shop.pool).await.expect("the offsets")
    }

    /// The last event of the outbox: the one that met the fault.
    pub(super) async fn last_event(&self) -> sqlx::types::Uuid {
        let last = "SELECT event_id FROM outbox ORDER BY id DESC LIMIT 1";
        sqlx::query_scalar(last).fetch_one(&self.shop.pool).await.expect("an event")
    }

    /// Others have read on, in the very partition of this event.
    pub(super) async fn is_overtaken(&self, event: sqlx::types::Uuid) -> bool {
        let overtaken = sqlx::query_scalar(IS_OVERTAKEN).bind(event);
        overtaken.fetch_one(&self.shop.pool).await.expect("the log and the offsets")
    }

    /// Counts what became of the events, and compares what the mail service has with what we believe it has.
    pub(super) async fn delivered(&self) -> Delivered {
        let mails = self.shop.mails().await;
        let text = |mail: &serde_json::Value, name: &str| mail[name].as_str().unwrap_or_default().to_owned();
        let arrived: BTreeSet<_> = mails.iter().map(|mail| (text(mail, "idempotency_key"), text(mail, "id"))).collect();
        let recorded = sqlx::query_as("SELECT event_id::text, mail_id FROM receipts ORDER BY 1");
        let recorded: Vec<(String, String)> = recorded.fetch_all(&self.shop.pool).await.expect("the receipts");
        assert_eq!(arrived.into_iter().collect::<Vec<_>>(), recorded, "mails and receipts");
        let entries = self.shop.count("ledger_entries").await;
        let sum_to_zero =
            "(SELECT FROM ledger_entries GROUP BY event_id HAVING count(*) = 2 AND sum(amount_minor) = 0) AS b";
        let booked = self.shop.count(sum_to_zero).await;
        assert_eq!(entries, 2 * booked, "entries that are not two of one posting");
        let recognised = self.shop.mail_stats().await["replays"].as_u64().unwrap_or_default();
        Delivered { in_log: self.shop.count("event_log").await, booked, mails: mails.len() as i64, recognised }
    }

    /// What had to be done again was done again: otherwise the row proves less than it says.
    pub(super) async fn did_again(&self, delivered: &Delivered, events: i64) {
        match self.trial.again {
            Again::Nothing => {}
            Again::InTheLog => assert!(delivered.in_log > events, "nothing was published again"),
            Again::AtTheMail => assert!(delivered.recognised > 0, "no mail was sent again"),
            Again::AtTheGateway => {
                let stats = self.shop.stats().await;
                assert!(stats["replays"].as_u64() > Some(0), "no refund was sent again: {stats}");
            }
            Again::AtOurDoor => self.was_told_again(events).await,
        }
    }
}
