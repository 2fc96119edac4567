//! The server under load. Question: is what the phones were told also what was written down?
//!
//! Either a whole stack of our own, with an empty database, or somebody else's server, whose books we cannot read.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::Context;
use checkout::{
    audit::{self, AuditOptions},
    database::embedded::Lifetime,
    demo::{DemoState, Ports, Stack, StackOptions},
};
use futures_util::TryStreamExt;
use serde::Deserialize;
use sqlx::PgPool;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};
use tokio_util::sync::CancellationToken;

use crate::{
    cpu::{Family, Watched},
    found::OrderMade,
    judge::{Entry, Joined},
    orders::Run,
    pipeline::Behind,
    report::{AuditFound, Server},
    setting::Setting,
};

/// The ledger's totals stand at its very end, in less than this.
const LEDGER_TAIL: usize = 256;

/// Somewhere to send orders to.
#[derive(Debug)]
pub(crate) struct Stand {
    pub(crate) name: String,
    /// `None` where the server is not ours.
    pub(crate) described: Option<Server>,
    pub(crate) server: SocketAddr,
    pub(crate) secret: String,
    pub(crate) watched: Vec<Watched>,
    pub(crate) books: Option<Books>,
    owned: Owned,
}

/// What ends with the stand.
#[derive(Debug)]
enum Owned {
    Stack(Box<Stack>),
    NullServer(Child),
    Nothing,
}

impl Stand {
    /// A stack of its own: empty database, gateway and mail with their books in memory, the api set like this.
    pub(crate) async fn stack(setting: Setting, stop: &CancellationToken) -> anyhow::Result<Self> {
        Self::stack_with(setting, RelayFate::Lives, stop).await
    }

    pub(crate) async fn stack_with(
        setting: Setting,
        relay: RelayFate,
        stop: &CancellationToken,
    ) -> anyhow::Result<Self> {
        Self::start(setting, relay, false, stop).await
    }

    /// The same stack with a checkout that knows no keys in the api's place.
    pub(crate) async fn without_keys(
        setting: Setting,
        relay: RelayFate,
        stop: &CancellationToken,
    ) -> anyhow::Result<Self> {
        Self::start(setting, relay, true, stop).await
    }

    async fn start(
        setting: Setting,
        relay: RelayFate,
        without_keys: bool,
        stop: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let mut options = StackOptions::new(checkout_program()?, Lifetime::Ephemeral, Ports::free());
        options.console = false;
        options.webhooks = false;
        options.gateway_arguments = vec!["--in-memory".to_owned()];
        options.mail_arguments = vec!["--in-memory".to_owned()];
        options.api_arguments = setting.api_arguments();
        options.worker_environment = relay.environment();
        options.api_role = if without_keys { "no-keys" } else { "api" };
        options.progress = |line| eprintln!("  {line}");
        let stack = Stack::start(options, stop).await?;
        let state = stack.state();
        let mail_url = state.mail_url.as_deref().context("the stack has no mail service")?;
        let books = Books::open(&state.database_url, &state.gateway_url, mail_url).await?;
        let postgresql = books.postgresql_version().await?;
        let stand = Self {
            name: setting.to_string(),
            described: Some(Server { setting, connections: setting.connections(), postgresql }),
            server: address_of(&state.api_url)?,
            secret: state.secret.clone(),
            watched: watched(stack.pids()),
            books: Some(books),
            owned: Owned::Nothing,
        };
        Ok(Self { owned: Owned::Stack(Box::new(stack)), ..stand })
    }

    /// A server that runs already.
    pub(crate) fn of_others(url: &str, secret: String) -> anyhow::Result<Self> {
        Ok(Self {
            name: url.to_owned(),
            described: None,
            server: address_of(url)?,
            secret,
            watched: watched(Vec::new()),
            books: None,
            owned: Owned::Nothing,
        })
    }

    /// A server that does nothing, in a process of its own.
    pub(crate) async fn null_server() -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot tell which program this is")?;
        let mut command = Command::new(program);
        command.arg("null-server").env(checkout::stop::STOP_ON_STDIN_EOF, "1").stdin(Stdio::piped());
        let mut child =
            command.stdout(Stdio::piped()).kill_on_drop(true).spawn().context("cannot start the null server")?;
        let stdout = child.stdout.take().context("the null server has no stdout")?;
        let line = BufReader::new(stdout).lines().next_line().await?.context("the null server said nothing")?;
        let url = line.strip_prefix("listening on ").context("the null server does not say where it listens")?;
        let pid = child.id().context("the null server has ended")?;
        Ok(Self {
            name: "null server".to_owned(),
            described: None,
            server: address_of(url)?,
            // Nobody checks it.
            secret: "0".repeat(checkout::credential::SECRET_LENGTH_MIN),
            watched: watched(vec![("null server", pid)]),
            books: None,
            owned: Owned::NullServer(child),
        })
    }

    /// A stack that somebody else started, and whose books we may read.
    pub(crate) async fn running(data_dir: &Path) -> anyhow::Result<Self> {
        let state = DemoState::read(Some(data_dir))?;
        let mail_url = state.mail_url.as_deref().context("the stack has no mail service")?;
        Ok(Self {
            name: format!("the stack in {}", data_dir.display()),
            described: None,
            server: address_of(&state.api_url)?,
            secret: state.secret.clone(),
            watched: watched(Vec::new()),
            books: Some(Books::open(&state.database_url, &state.gateway_url, mail_url).await?),
            owned: Owned::Nothing,
        })
    }

    /// Whether nobody else buys here.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.owned, Owned::Stack(_))
    }

    /// The processes to watch, as they are now: one that was killed runs again under another number.
    pub(crate) fn watched_now(&self) -> Vec<Watched> {
        match &self.owned {
            Owned::Stack(stack) => watched(stack.pids()),
            Owned::NullServer(_) | Owned::Nothing => self.watched.clone(),
        }
    }

    pub(crate) fn pid_of(&self, name: &str) -> Option<u32> {
        self.watched.iter().find(|watched| watched.name == name).map(|watched| watched.pid)
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        if let Some(books) = self.books {
            books.database.close().await;
        }
        match self.owned {
            Owned::Stack(stack) => stack.stop().await,
            Owned::NullServer(mut child) => child.kill().await.context("cannot end the null server"),
            Owned::Nothing => Ok(()),
        }
    }
}

/// What becomes of the relay within a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RelayFate {
    Lives,
    /// Killed between the log's acknowledgement and its own mark: whoever takes over delivers the same events again.
    Killed,
}

/// Rounds of the relay until it is killed. A round takes some 50 ms under load.
const RELAY_ROUNDS: u32 = 40;

impl RelayFate {
    fn environment(self) -> Vec<(&'static str, String)> {
        match self {
            Self::Lives => Vec::new(),
            Self::Killed => vec![(checkout::crash_point::VARIABLE, format!("relay.before_mark:kill:{RELAY_ROUNDS}"))],
        }
    }
}

/// The server's processes with their children, and ourselves without.
fn watched(pids: Vec<(&'static str, u32)>) -> Vec<Watched> {
    let us = Watched { name: "harness", pid: std::process::id(), family: Family::Alone };
    // The only part of a stack that a run kills.
    let killed = pids.iter().any(|(name, _)| *name == "worker").then(|| Watched {
        name: "worker",
        family: Family::EndedChildren,
        ..us.clone()
    });
    // It stands in the api's place, and is laid beside it.
    let name = |role| if role == "no-keys" { "api" } else { role };
    let servers =
        pids.into_iter().map(|(role, pid)| Watched { name: name(role), pid, family: Family::WithDescendants });
    servers.chain([us]).chain(killed).collect()
}

/// The `checkout` program of the same build.
fn checkout_program() -> anyhow::Result<PathBuf> {
    let us = std::env::current_exe().context("cannot tell which program this is")?;
    let program = us.with_file_name("checkout");
    anyhow::ensure!(
        program.is_file(),
        "{} is not there: build both programs, with `cargo build --release --bins`",
        program.display()
    );
    Ok(program)
}

fn address_of(url: &str) -> anyhow::Result<SocketAddr> {
    let authority =
        url.trim_end_matches('/').strip_prefix("http://").context("only http:// URLs can be put under load")?;
    let mut addresses = authority.to_socket_addrs().with_context(|| format!("{url} names no host and port"))?;
    addresses.next().with_context(|| format!("{url} has no address"))
}

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
    async fn open(database_url: &str, gateway_url: &str, mail_url: &str) -> anyhow::Result<Self> {
        Ok(Self {
            database: PgPool::connect(database_url).await.context("cannot connect to the stack's database")?,
            gateway_url: gateway_url.to_owned(),
            mail_url: mail_url.to_owned(),
            http: reqwest::Client::builder().no_proxy().build()?,
        })
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

    async fn postgresql_version(&self) -> anyhow::Result<String> {
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

    #[test]
    fn an_address_is_found_in_a_url() {
        assert_eq!(address_of("http://127.0.0.1:8080/").unwrap(), "127.0.0.1:8080".parse().unwrap());
        for wrong in ["https://127.0.0.1:8080", "127.0.0.1:8080", "http://127.0.0.1"] {
            assert!(address_of(wrong).is_err(), "{wrong}");
        }
    }
}
