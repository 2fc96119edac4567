//! What a stack has written down. Question: is what the phones were told also what happened?

use anyhow::Context;
use checkout::audit::{self, AuditOptions};
use futures_util::TryStreamExt;
use serde::Deserialize;
use sqlx::PgPool;

use crate::{
    found::OrderMade,
    judge::{Entry, Joined},
    orders::Run,
    pipeline::Behind,
    report::AuditFound,
};

/// The ledger's totals stand at its very end, in less than this.
const LEDGER_TAIL: usize = 256;

/// The two places where an order leaves a trace: the database and the gateway's own ledger.
#[derive(Debug)]
pub(crate) struct Books {
    database: PgPool,
    gateway_url: String,
    mail_url: String,
    http: reqwest::Client,
}

/// Everything they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) orders: u64,
    pub(crate) captures: u64,
    /// Orders in the ledger.
    pub(crate) booked: u64,
    /// Mails that really went out.
    pub(crate) mails: u64,
}

impl Written {
    /// What was written after that moment.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            orders: self.orders - before.orders,
            captures: self.captures - before.captures,
            booked: self.booked - before.booked,
            mails: self.mails - before.mails,
        }
    }
}

impl Books {
    pub(crate) async fn close(&self) {
        self.database.close().await;
    }

    pub(crate) async fn open(database_url: &str, gateway_url: &str, mail_url: &str) -> anyhow::Result<Self> {
        Ok(Self {
            database: PgPool::connect(database_url).await.context("cannot connect to the stack's database")?,
            gateway_url: gateway_url.to_owned(),
            mail_url: mail_url.to_owned(),
            http: reqwest::Client::builder().no_proxy().build()?,
        })
    }

    pub(crate) fn database(&self) -> &PgPool {
        &self.database
    }

    /// Counts both. Costs the server a little, so never within a window.
    pub(crate) async fn read(&self) -> anyhow::Result<Written> {
        let counts = sqlx::query!(
            r#"SELECT (SELECT count(*) FROM orders) AS "orders!",
                      (SELECT count(*) FROM ledger_entries WHERE account = 'gateway') AS "booked!""#
        )
        .fetch_one(&self.database)
        .await
        .context("cannot count the orders")?;
        Ok(Written {
            orders: u64::try_from(counts.orders)?,
            captures: self.captures().await?,
            booked: u64::try_from(counts.booked)?,
            mails: self.mails().await?,
        })
    }

    /// How many events are on their way. Cheap: the unsent have an index of their own, the rest is sixteen rows.
    pub(crate) async fn behind(&self) -> anyhow::Result<Behind> {
        let behind = sqlx::query!(
            r#"WITH written AS (SELECT sum(next_offset)::bigint AS events FROM log_partitions),
                    read AS (SELECT consumer, sum(next_offset)::bigint AS events FROM consumer_offsets GROUP BY consumer)
               SELECT (SELECT count(*) FROM outbox WHERE sent_at IS NULL) AS "outbox!",
                      (SELECT w.events - r.events FROM written AS w, read AS r WHERE r.consumer = 'ledger') AS "ledger!",
                      (SELECT w.events - r.events FROM written AS w, read AS r WHERE r.consumer = 'receipts') AS "receipts!""#
        )
        .fetch_one(&self.database)
        .await
        .context("cannot ask how far the pipeline is")?;
        Ok(Behind {
            outbox: behind.outbox.unsigned_abs(),
            ledger: behind.ledger.unsigned_abs(),
            receipts: behind.receipts.unsigned_abs(),
        })
    }

    /// What the mail service says that it delivered.
    async fn mails(&self) -> anyhow::Result<u64> {
        #[derive(Deserialize)]
        struct Stats {
            deliveries: u64,
        }
        let stats = self.http.get(format!("{}/_mock/stats", self.mail_url)).send().await?.error_for_status()?;
        Ok(serde_json::from_slice::<Stats>(&stats.bytes().await?).context("the mail service's counts")?.deliveries)
    }

    /// Puts every promise to the test, not only the totals.
    pub(crate) async fn audit(&self) -> anyhow::Result<AuditFound> {
        let report = audit::run(&self.database, &self.gateway_url, Some(&self.mail_url), AuditOptions::default())
            .await
            .context("the audit")?;
        Ok(AuditFound::from(&report))
    }

    /// The database's own time, as seconds of its era.
    pub(crate) async fn clock(&self) -> anyhow::Result<f64> {
        let clock = sqlx::query_scalar!(r#"SELECT extract(epoch FROM db_clock())::float8 AS "clock!""#);
        clock.fetch_one(&self.database).await.context("cannot ask for the database's time")
    }

    /// Every order and every capture of this run, under the intent that it was for. Reads both books to their end: not within
    /// a window. Where the stack is `ours` alone, what has no name is a stranger; `began` is when the run did, by
    /// [`clock`](Self::clock).
    pub(crate) async fn by_intent(&self, run: Run, began: f64, ours: bool) -> anyhow::Result<Joined> {
        #[derive(Deserialize)]
        struct Ledger {
            captures: Vec<Capture>,
        }
        #[derive(Deserialize)]
        struct Capture {
            reference: Option<String>,
        }
        let mut joined = Joined::default();
        let mut orders = sqlx::query!(
            r#"SELECT id, client_reference, extract(epoch FROM created_at)::float8 AS "at!" FROM orders
               ORDER BY created_at, id"#
        )
        .fetch(&self.database);
        while let Some(order) = orders.try_next().await.context("cannot read the orders")? {
            match order.client_reference.as_deref().and_then(|name| run.intent_of(name)) {
                Some(intent) => {
                    let made = OrderMade { id: order.id.to_string(), at_s: order.at - began };
                    joined.intents.entry(intent).or_insert_with(Entry::default).orders.push(made);
                }
                None => joined.strangers += u64::from(ours),
            }
        }
        drop(orders);
        let ledger = self.http.get(format!("{}/_mock/ledger", self.gateway_url)).send().await?.error_for_status()?;
        let ledger: Ledger = serde_json::from_slice(&ledger.bytes().await?).context("the gateway's ledger")?;
        for capture in ledger.captures {
            match capture.reference.as_deref().and_then(|name| run.intent_of(name)) {
                Some(intent) => joined.intents.entry(intent).or_insert_with(Entry::default).captures += 1,
                None => joined.strangers += u64::from(ours),
            }
        }
        Ok(joined)
    }

    /// Keys that have no end yet.
    pub(crate) async fn open_keys(&self) -> anyhow::Result<u64> {
        let open = sqlx::query_scalar!(
            r#"SELECT count(*) AS "open!" FROM idempotency_records WHERE state IN ('in_flight', 'unknown', 'needs_review')"#
        );
        Ok(u64::try_from(open.fetch_one(&self.database).await.context("cannot count the open keys")?)?)
    }

    /// How often the broker was given an event that it had already.
    pub(crate) async fn repeated_deliveries(&self) -> anyhow::Result<u64> {
        let repeated = sqlx::query_scalar!(
            r#"SELECT (SELECT count(*) FROM event_log) - (SELECT count(*) FROM (SELECT DISTINCT event_id FROM event_log) AS once)
                   AS "repeated!""#
        );
        Ok(u64::try_from(repeated.fetch_one(&self.database).await.context("cannot read the log")?)?)
    }

    pub(crate) async fn postgresql_version(&self) -> anyhow::Result<String> {
        let version = sqlx::query_scalar!(r#"SELECT current_setting('server_version') AS "version!""#);
        version.fetch_one(&self.database).await.context("cannot ask for PostgreSQL's version")
    }

    /// The ledger lists every capture, megabytes of them, before it says how many they were: only its end is kept.
    async fn captures(&self) -> anyhow::Result<u64> {
        let mut answer =
            self.http.get(format!("{}/_mock/ledger", self.gateway_url)).send().await?.error_for_status()?;
        let mut tail = Vec::new();
        while let Some(chunk) = answer.chunk().await.context("the gateway's ledger broke off")? {
            tail.extend_from_slice(&chunk);
            tail.drain(..tail.len().saturating_sub(LEDGER_TAIL));
        }
        count_in(&tail).context("the gateway's ledger does not end in its totals")
    }
}

/// `…],"count":3,"amount":12897}` is 3.
fn count_in(ledger_tail: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Totals {
        count: u64,
    }
    let text = String::from_utf8_lossy(ledger_tail);
    let (_, totals) = text.rsplit_once("],")?;
    serde_json::from_str::<Totals>(&format!("{{{totals}")).ok().map(|totals| totals.count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledgers_count_is_found_behind_its_captures() {
        assert_eq!(count_in(br#"{"captures":[],"count":0,"amount":0}"#), Some(0));
        assert_eq!(count_in(br#"ions":1,"created":5}],"count":104999,"amount":451390701}"#), Some(104_999));
        assert_eq!(count_in(br#""executions":1,"created":5},{"payment_in"#), None, "a ledger that broke off has none");
    }
}
