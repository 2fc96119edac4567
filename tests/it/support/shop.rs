//! A whole shop for a test: its own database, its own gateway and mail service, a real api and, where wanted, a real worker. Every test that
//! opens one closes it with [`Shop::close`], which audits database, ledger and mails.

use std::{collections::HashMap, process::Command, time::Duration};

use checkout::{
    audit::{self, AuditOptions, Kind, Report},
    credential::{Credentials, Subject},
    delivery::health::Health,
    ids::CustomerId,
};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::{Process, TestDatabase, WEBHOOK_SECRET, install_tls_provider};

/// What the api signs and checks tokens with.
pub(crate) const SECRET: &str = "a-secret-of-the-tests-0123456789abcdef";
/// A customer of the tests; another one is any other number.
pub(crate) const CUSTOMER: i64 = 42;

/// Longer than any test moves its clock.
const FOR_EVER: Duration = Duration::from_secs(400 * 24 * 3600);
/// Generous: it only bounds the wait for what never comes.
const QUIET_LOOKS_MAX: u32 = 600;

/// What a shop is opened with beyond the usual.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    /// And the mail's.
    pub(crate) gateway_in_memory: bool,
    pub(crate) worker: bool,
    /// The gateway tells the api what happened.
    pub(crate) webhooks: bool,
    /// The museum's checkout without keys in the api's place.
    pub(crate) without_keys: bool,
    /// Further flags of the api and the worker.
    pub(crate) flags: Vec<&'static str>,
    /// Further environment of the two, by name and value.
    pub(crate) environment: Vec<(&'static str, &'static str)>,
    /// What is armed in the first api and the first worker, as `CHECKOUT_CRASH` says it. Later ones are unharmed.
    pub(crate) api_crash: String,
    pub(crate) worker_crash: String,
    /// A database elsewhere than on the server that all tests share.
    pub(crate) database: Option<TestDatabase>,
}

#[derive(Debug)]
pub(crate) struct Shop {
    pub(crate) database: TestDatabase,
    pub(crate) pool: PgPool,
    pub(crate) api: Process,
    pub(crate) api_url: String,
    pub(crate) gateway: Process,
    pub(crate) gateway_url: String,
    pub(crate) mail: Process,
    pub(crate) mail_url: String,
    pub(crate) worker: Option<Process>,
    /// Where the worker tells its health.
    pub(crate) worker_url: Option<String>,
    pub(crate) http: reqwest::Client,
    opening: Opening,
}

/// An answer, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) replayed: bool,
    pub(crate) location: Option<String>,
    pub(crate) retry_after_s: Option<u64>,
    pub(crate) content_type: Option<String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// `None`: the connection ended before the answer did.
    pub(crate) async fn read(answer: reqwest::Response) -> Option<Self> {
        let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Some(Self {
            status: answer.status().as_u16(),
            replayed: header("idempotent-replayed").as_deref() == Some("true"),
            location: header("location"),
            retry_after_s: header("retry-after").and_then(|wait| wait.parse().ok()),
            content_type: header("content-type"),
            body: answer.bytes().await.ok()?.to_vec(),
        })
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn expect(&self, status: u16, code: &str) -> &Self {
        assert_eq!((self.status, self.code().as_str()), (status, code), "{}", self.text());
        self
    }

    #[track_caller]
    pub(crate) fn expect_order(&self) -> String {
        assert_eq!(self.status, 201, "{}", self.text());
        self.json()["id"].as_str().expect("an order id").to_owned()
    }
}

/// The worked example's body.
pub(crate) fn grinder(payment_method: &str) -> Value {
    json!({
        "items": [{"sku": "grinder", "quantity": 1}], "total": 4299, "currency": "eur", "payment_method": payment_method
    })
}

/// A key nobody used.
pub(crate) fn fresh_key() -> String {
    Uuid::new_v4().to_string()
}

impl Shop {
    pub(crate) async fn open() -> Self {
        Self::open_with(Opening { gateway_in_memory: true, ..Opening::default() }).await
    }

    pub(crate) async fn open_with(mut opening: Opening) -> Self {
        install_tls_provider();
        let database = match opening.database.take() {
            Some(elsewhere) => elsewhere,
            None => TestDatabase::create().await,
        };
        let pool = database.pool().await;
        let in_memory = opening.gateway_in_memory;
        let (gateway, gateway_url) = start_company("gateway", &database, in_memory, "127.0.0.1:0");
        let (mail, mail_url) = start_company("mail", &database, in_memory, "127.0.0.1:0");
        let start =
            |role, crash| Process::listening(command_of(role, &database, &gateway_url, &mail_url, &opening, crash));
        let api = if opening.without_keys { "no-keys" } else { "api" };
        let (api, api_url) = start(api, &opening.api_crash);
        let (worker, worker_url) = opening.worker.then(|| start("worker", &opening.worker_crash)).unzip();
        let http = super::client();
        let shop = Self {
            database,
            pool,
            api,
            api_url,
            gateway,
            gateway_url,
            mail,
            mail_url,
            worker,
            worker_url,
            http,
            opening,
        };
        if shop.opening.webhooks {
            shop.listen_to_webhooks().await;
        }
        shop
    }

    pub(crate) fn token(&self, customer: i64) -> String {
        let credentials = Credentials::new(SECRET).expect("a secret");
        credentials.mint(Subject::Customer(CustomerId(customer)), Duration::from_secs(3600)).expect("a token")
    }

    pub(crate) fn operator_token(&self) -> String {
        let credentials = Credentials::new(SECRET).expect("a secret");
        credentials.mint(Subject::Operator, Duration::from_secs(3600)).expect("a token")
    }

    pub(crate) async fn order(&self, key: &str, body: &Value) -> Answer {
        self.order_as(CUSTOMER, key, body).await
    }

    pub(crate) async fn order_as(&self, customer: i64, key: &str, body: &Value) -> Answer {
        self.post_as(customer, "/v1/orders", key, body).await
    }

    /// A keyed POST.
    pub(crate) async fn post(&self, path: &str, key: &str, body: &Value) -> Answer {
        self.post_as(CUSTOMER, path, key, body).await
    }

    pub(crate) async fn post_as(&self, customer: i64, path: &str, key: &str, body: &Value) -> Answer {
        let request = self.http.post(format!("{}{path}", self.api_url)).bearer_auth(self.token(customer));
        answer(request.header("Idempotency-Key", key).json(body)).await
    }

    /// Gives back `amount` of an order, or all that is left.
    pub(crate) async fn refund(&self, order: &str, key: &str, amount: Option<i64>) -> Answer {
        let body = amount.map_or_else(|| json!({}), |amount| json!({ "amount": amount }));
        self.post(&format!("/v1/orders/{order}/refunds"), key, &body).await
    }

    /// Sends the worked example's order and does not wait; the answer may never come.
    pub(crate) fn order_in_background(&self, key: &str) -> JoinHandle<reqwest::Result<reqwest::Response>> {
        let request = self.http.post(format!("{}/v1/orders", self.api_url)).bearer_auth(self.token(CUSTOMER));
        tokio::spawn(request.header("Idempotency-Key", key).json(&grinder("pm_card_visa")).send())
    }

    /// Sends the order again and again under its key, as a phone does, until there is one.
    pub(crate) async fn order_until_placed(&self, key: &str) -> Answer {
        for _ in 0..200 {
            let answer = self.order(key, &grinder("pm_card_visa")).await;
            match answer.status {
                201 => return answer,
                409 | 500 | 503 | 504 => assert_eq!(answer.json()["retry"], "same_key", "{}", answer.text()),
                other => panic!("{other}: {}", answer.text()),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("no order under {key}");
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.get_as(CUSTOMER, path).await
    }

    pub(crate) async fn get_as(&self, customer: i64, path: &str) -> Answer {
        answer(self.http.get(format!("{}{path}", self.api_url)).bearer_auth(self.token(customer))).await
    }

    /// State of an order's key as the api tells it.
    pub(crate) async fn state_of(&self, key: &str) -> String {
        self.state_of_operation("orders.create", key).await
    }

    pub(crate) async fn state_of_operation(&self, operation: &str, key: &str) -> String {
        let shown = self.get(&format!("/v1/idempotency-keys/{operation}/{key}")).await;
        shown.json()["state"].as_str().unwrap_or_default().to_owned()
    }

    /// Queues a fault at the gateway for its next `count` requests.
    pub(crate) async fn fault(&self, name: &str, count: u32, latency_ms: u64) {
        let body = json!({"name": name, "count": count, "latency_ms": latency_ms});
        let sent = self.http.post(format!("{}/_mock/faults", self.gateway_url)).json(&body).send().await.expect("sent");
        assert!(sent.status().is_success(), "{}", sent.text().await.unwrap_or_default());
    }

    /// Takes back every fault that has not fired.
    pub(crate) async fn clear_faults(&self) {
        let sent = self.http.delete(format!("{}/_mock/faults", self.gateway_url)).send().await.expect("sent");
        assert!(sent.status().is_success(), "{}", sent.text().await.unwrap_or_default());
    }

    pub(crate) async fn advance_gateway_clock(&self, seconds: u64) {
        let body = json!({"advance_s": seconds});
        let sent = self.http.post(format!("{}/_mock/clock", self.gateway_url)).json(&body).send().await.expect("sent");
        assert!(sent.status().is_success(), "{}", sent.text().await.unwrap_or_default());
    }

    /// Changes the gateway's settings by its control plane.
    pub(crate) async fn set_gateway(&self, settings: &Value) {
        let sent =
            self.http.post(format!("{}/_mock/settings", self.gateway_url)).json(settings).send().await.expect("sent");
        assert!(sent.status().is_success(), "{}", sent.text().await.unwrap_or_default());
    }

    /// Runs `checkout review` and returns what it printed, or what it complained of.
    pub(crate) fn review(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Process::command(&["review"]);
        command.args(arguments).env("DATABASE_URL", &self.database.url).env("CHECKOUT_GATEWAY_URL", &self.gateway_url);
        let output = command.output().expect("the program under test");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    pub(crate) async fn ledger(&self) -> Value {
        let ledger = self.http.get(format!("{}/_mock/ledger", self.gateway_url)).send().await.expect("a ledger");
        ledger.json().await.expect("JSON")
    }

    pub(crate) async fn captures(&self) -> u64 {
        self.ledger().await["count"].as_u64().expect("a count")
    }

    pub(crate) async fn stats(&self) -> Value {
        let stats = self.http.get(format!("{}/_mock/stats", self.gateway_url)).send().await.expect("stats");
        stats.json().await.expect("JSON")
    }

    /// Every mail really delivered, oldest first.
    pub(crate) async fn mails(&self) -> Vec<Value> {
        let record = self.http.get(format!("{}/_mock/mails", self.mail_url)).send().await.expect("a record");
        let record: Value = record.json().await.expect("JSON");
        record["mails"].as_array().expect("mails").clone()
    }

    /// Sets a fault at the mail service, as its control plane takes it: `{"name", "count" | "probability" | "to", …}`.
    pub(crate) async fn mail_fault(&self, fault: &Value) {
        let sent = self.http.post(format!("{}/_mock/faults", self.mail_url)).json(fault).send().await.expect("sent");
        assert!(sent.status().is_success(), "{}", sent.text().await.unwrap_or_default());
    }

    pub(crate) async fn mail_stats(&self) -> Value {
        let stats = self.http.get(format!("{}/_mock/stats", self.mail_url)).send().await.expect("stats");
        stats.json().await.expect("JSON")
    }

    /// The samples of the worker's metrics, by name and labels.
    pub(crate) async fn metrics(&self) -> HashMap<String, f64> {
        self.metrics_at(self.worker_url.as_deref().expect("a worker")).await
    }

    /// And of the api's.
    pub(crate) async fn api_metrics(&self) -> HashMap<String, f64> {
        self.metrics_at(&self.api_url).await
    }

    async fn metrics_at(&self, url: &str) -> HashMap<String, f64> {
        let scrape = self.http.get(format!("{url}/metrics")).send().await.expect("an answer");
        let text = scrape.text().await.expect("a text");
        let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            (name.to_owned(), value.parse().expect("a number"))
        });
        samples.collect()
    }

    pub(crate) async fn count(&self, table: &str) -> i64 {
        let count = format!("SELECT count(*) FROM {table}");
        sqlx::query_scalar(sqlx::AssertSqlSafe(count)).fetch_one(&self.pool).await.expect("a count")
    }

    /// Moves this database's clock, and only this database's: the code under test asks no other.
    pub(crate) async fn set_clock(&self, offset: &str) {
        set_clock(&self.pool, offset).await;
    }

    pub(crate) fn start_worker(&mut self) {
        let (worker, url) = Process::listening(self.command_of("worker", ""));
        (self.worker, self.worker_url) = (Some(worker), Some(url));
    }

    /// Starts a worker that does not live long enough to listen.
    pub(crate) fn start_doomed_worker(&mut self, crash: &str) {
        self.worker = Some(Process::spawn(self.command_of("worker", crash)));
    }

    /// A worker with further flags of its own.
    pub(crate) fn start_worker_with(&mut self, flags: &[&str]) {
        let mut command = self.command_of("worker", "");
        command.args(flags);
        let (worker, url) = Process::listening(command);
        (self.worker, self.worker_url) = (Some(worker), Some(url));
    }

    /// A backup of the database as it is now. The api and the worker must be gone.
    pub(crate) async fn back_up(&mut self) -> TestDatabase {
        let backup = self.database.copy(&self.pool).await;
        self.pool = self.database.pool().await;
        backup
    }

    /// An older backup takes the database's place. The other companies notice nothing.
    pub(crate) async fn restore(&mut self, backup: TestDatabase) {
        self.pool.close().await;
        self.database = backup;
        self.pool = self.database.pool().await;
    }

    pub(crate) fn restart_api(&mut self) {
        drop(self.replace_api());
    }

    /// Starts another api, where clients go from now on, and returns the old one as it is.
    pub(crate) fn replace_api(&mut self) -> Process {
        let (api, api_url) = Process::listening(self.command_of("api", ""));
        self.api_url = api_url;
        std::mem::replace(&mut self.api, api)
    }

    fn command_of(&self, role: &str, crash: &str) -> Command {
        command_of(role, &self.database, &self.gateway_url, &self.mail_url, &self.opening, crash)
    }

    /// Starts the gateway again where it was: the others know its address.
    pub(crate) fn restart_gateway(&mut self) {
        let listen = self.gateway_url.trim_start_matches("http://").to_owned();
        (self.gateway, self.gateway_url) =
            start_company("gateway", &self.database, self.opening.gateway_in_memory, &listen);
    }

    /// Starts the mail service again where it was: the worker knows its address.
    pub(crate) fn restart_mail(&mut self) {
        let listen = self.mail_url.trim_start_matches("http://").to_owned();
        (self.mail, self.mail_url) = start_company("mail", &self.database, self.opening.gateway_in_memory, &listen);
    }

    /// With a worker every event has had its time, and a lost one is named at once; without one they are all on their way.
    pub(crate) async fn audit(&mut self) -> Report {
        let event_grace = if self.is_worked_on() { Duration::ZERO } else { FOR_EVER };
        let mail_url = self.mail.is_alive().then_some(self.mail_url.as_str());
        let options = AuditOptions { grace: Duration::from_secs(60), event_grace };
        audit::run(&self.pool, &self.gateway_url, mail_url, options).await.expect("an audit")
    }

    fn is_worked_on(&mut self) -> bool {
        self.worker.as_mut().is_some_and(Process::is_alive)
    }

    /// Waits until everything that happened has had its effect, or is parked; not for ever, since what never comes is for the
    /// audit to name.
    pub(crate) async fn wait_until_quiet(&self) {
        for _ in 0..QUIET_LOOKS_MAX {
            if Health::read(&self.pool).await.expect("the health").is_drained() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Ends the test: nothing idles in a transaction, and the audit finds nothing.
    pub(crate) async fn close(mut self) {
        let idle = idle_in_transaction(&self.pool).await;
        if !idle.is_empty() {
            // Between two statements every transaction idles for a moment. One that still does half a second later is stuck.
            tokio::time::sleep(Duration::from_millis(500)).await;
            let still = idle_in_transaction(&self.pool).await;
            let stuck: Vec<_> = still.iter().filter(|transaction| idle.contains(transaction)).collect();
            assert!(stuck.is_empty(), "idle in a transaction, by process and beginning: {stuck:?}");
        }
        let mut report = self.audit_when_quiet().await;
        // An order that recovery settled between the last look and the audit has an event that is a moment old.
        for _ in 0..3 {
            if report.kinds() != [Kind::LostEvent] {
                break;
            }
            report = self.audit_when_quiet().await;
        }
        assert!(report.is_clean(), "{report}");
    }

    async fn audit_when_quiet(&mut self) -> Report {
        if self.is_worked_on() {
            self.wait_until_quiet().await;
        }
        self.audit().await
    }
}

/// Who idles inside a transaction, and since when that transaction runs.
async fn idle_in_transaction(pool: &PgPool) -> Vec<(i32, String)> {
    sqlx::query_as(
        "SELECT pid, xact_start::text FROM pg_stat_activity
         WHERE datname = current_database() AND state LIKE 'idle in transaction%'",
    )
    .fetch_all(pool)
    .await
    .expect("pg_stat_activity")
}

/// Shifts the clock of one database by an interval.
pub(crate) async fn set_clock(pool: &PgPool, offset: &str) {
    let replaced = format!(
        "CREATE OR REPLACE FUNCTION db_clock() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
         AS 'SELECT clock_timestamp() + interval ''{offset}'''"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(replaced)).execute(pool).await.expect("the clock");
}

pub(crate) async fn answer(request: reqwest::RequestBuilder) -> Answer {
    Answer::read(request.send().await.expect("an answer")).await.expect("a whole answer")
}

/// The gateway or the mail service.
fn start_company(role: &str, database: &TestDatabase, in_memory: bool, listen: &str) -> (Process, String) {
    let mut command = Process::command(&[role, "--listen", listen]);
    if in_memory {
        command.arg("--in-memory");
    } else {
        command.env("DATABASE_URL", &database.url);
    }
    Process::listening(command)
}

fn command_of(
    role: &str,
    database: &TestDatabase,
    gateway_url: &str,
    mail_url: &str,
    opening: &Opening,
    crash: &str,
) -> Command {
    let mut command = Process::command(&[role, "--listen", "127.0.0.1:0"]);
    command.args(&opening.flags).envs(opening.environment.iter().copied()).envs([
        ("DATABASE_URL", database.url.as_str()),
        ("CHECKOUT_GATEWAY_URL", gateway_url),
        ("CHECKOUT_MAIL_URL", mail_url),
        ("CHECKOUT_SECRET", SECRET),
        ("CHECKOUT_WEBHOOK_SECRET", WEBHOOK_SECRET),
        // One customer of the tests buys as much as a town.
        ("CHECKOUT_CUSTOMER_RATE_PER_S", "0"),
        ("CHECKOUT_CUSTOMER_READS_PER_S", "0"),
        ("CHECKOUT_CONNECTIONS", "6"),
        ("CHECKOUT_CRASH", crash),
    ]);
    command
}
