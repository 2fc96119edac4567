//! One trial's shop, and the steps of the trial on it.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::task::JoinHandle;

use super::{
    Seen,
    phone::{self, Attempt},
    rows::{Fault, Place, Trial},
};
use crate::support::{Answer, Opening, Process, Shop, TestDatabase, fresh_key, wait_for};

/// Short, but in the right proportions: the roles refuse knobs that contradict each other.
const TIMING: [(&str, &str); 4] = [
    ("CHECKOUT_GATEWAY_BUDGET_MS", "400"),
    ("CHECKOUT_ANSWER_MS", "1500"),
    ("CHECKOUT_LEASE_MS", "3000"),
    ("CHECKOUT_RECOVERY_PAUSE_MS", "200"),
];
const PAST_THE_LEASE: Duration = Duration::from_millis(3_300);
/// Orders that are placed before anything goes wrong: whoever is armed passes its point this often unharmed.
const BEFORE: usize = 2;
/// Of orders under way, as many are placed before the fault strikes.
const PLACED_OF_THE_LOAD: i64 = 10;
const BETWEEN_TWO_OF_THE_LOAD: Duration = Duration::from_millis(15);

pub(super) struct Stage {
    trial: Trial,
    shop: Shop,
    before: Vec<(String, Answer)>,
    keys: Vec<String>,
    stopped_at: Option<Instant>,
}

type Sent = Vec<JoinHandle<Attempt>>;

impl Stage {
    pub(super) async fn open(trial: Trial, database: Option<TestDatabase>) -> Self {
        let nth = BEFORE + 1;
        let (api_crash, worker_crash) = match (trial.place, trial.fault) {
            (Place::Api(point), Fault::Kill) => (format!("{}:kill:{nth}", point.name()), String::new()),
            (Place::Api(point), _) => (format!("{}:stop:{nth}", point.name()), String::new()),
            (Place::Recovery(point, left_behind_at), _) => {
                (format!("{}:kill:{nth}", left_behind_at.name()), format!("{}:kill", point.name()))
            }
            (Place::Maintenance(_) | Place::Gateway | Place::Load(_), _) => (String::new(), String::new()),
        };
        let shop = Shop::open_with(Opening {
            // Another company's books are not to go down with our database.
            gateway_in_memory: true,
            worker: !matches!(trial.place, Place::Maintenance(_)),
            environment: TIMING.to_vec(),
            api_crash,
            worker_crash,
            database,
            ..Opening::default()
        })
        .await;
        let orders = if let Place::Load(orders) = trial.place { orders } else { 1 };
        let keys = (0..orders).map(|_| fresh_key()).collect();
        Self { trial, shop, before: Vec::new(), keys, stopped_at: None }
    }

    pub(super) async fn take_orders_before(&mut self) {
        for _ in 0..BEFORE {
            let key = fresh_key();
            let (answer, attempts) = phone::until_final(&self.shop, &key).await;
            assert_eq!((answer.status, attempts), (201, 1), "before anything went wrong: {}", answer.text());
            self.before.push((key, answer));
        }
    }

    /// The attempts that will meet the fault. Nobody waits for them yet.
    pub(super) async fn send_into_the_fault(&mut self) -> Sent {
        match self.trial.fault {
            Fault::Gateway { name, requests, latency_ms } => self.shop.fault(name, requests, latency_ms).await,
            Fault::GatewayRecordsAnError => self.shop.fault("http_500_before", 1, 0).await,
            Fault::Kill | Fault::StopPastLease | Fault::CutConnections | Fault::RestartPostgres => {}
        }
        if let Place::Maintenance(point) = self.trial.place {
            self.shop.set_clock("5 days").await;
            self.shop.start_doomed_worker(&format!("{}:kill", point.name()));
            return Vec::new();
        }
        let attempts = self.keys.iter().map(|key| phone::attempt(&self.shop, key));
        let spaced = attempts.zip(0..).map(|(attempt, n)| async move {
            tokio::time::sleep(n * BETWEEN_TWO_OF_THE_LOAD).await;
            attempt.await
        });
        spaced.map(tokio::spawn).collect()
    }

    /// Waits for the fault, and says by what it was recognised.
    pub(super) async fn until_it_has_struck(&mut self) -> String {
        match (self.trial.place, self.trial.fault) {
            (Place::Api(point), Fault::Kill) => killed_at(&mut self.shop.api, point.name()).await,
            (Place::Recovery(point, left_behind_at), _) => {
                killed_at(&mut self.shop.api, left_behind_at.name()).await;
                killed_at(self.shop.worker.as_mut().expect("a worker"), point.name()).await
            }
            (Place::Maintenance(point), _) => {
                killed_at(self.shop.worker.as_mut().expect("a worker"), point.name()).await
            }
            (Place::Api(point), Fault::StopPastLease) => {
                stopped_at(&self.shop.api, point.name()).await;
                self.stopped_at = Some(Instant::now());
                "SIGSTOP".to_owned()
            }
            (Place::Api(point), Fault::CutConnections) => {
                stopped_at(&self.shop.api, point.name()).await;
                let cut = self.cut_connections().await;
                self.shop.api.resume();
                format!("{cut} connections")
            }
            (Place::Api(point), _) => {
                stopped_at(&self.shop.api, point.name()).await;
                let fired = self.restart_postgres().await;
                self.shop.api.resume();
                fired
            }
            (Place::Load(_), _) => {
                let enough = PLACED_OF_THE_LOAD + self.before.len() as i64;
                wait_for("some of the load is placed", async || self.shop.count("orders").await >= enough).await;
                let placed = self.shop.count("orders").await;
                assert!(placed < (self.keys.len() + self.before.len()) as i64, "all was placed before it struck");
                self.restart_postgres().await
            }
            (Place::Gateway, fault) => {
                let fault = fault.name();
                wait_for("the gateway counts the fault", async || self.times_counted(&fault).await > 0).await;
                "counted".to_owned()
            }
        }
    }

    /// Puts right what a supervisor would. A process that is only stopped is left so, and comes back as the late owner.
    pub(super) async fn heal(&mut self) -> Option<Process> {
        match (self.trial.place, self.trial.fault) {
            (Place::Api(_), Fault::StopPastLease) => return Some(self.shop.replace_api()),
            (Place::Api(_), Fault::Kill) => self.shop.restart_api(),
            (Place::Recovery(..), _) => {
                self.shop.start_worker();
                self.shop.restart_api();
            }
            (Place::Maintenance(_), _) => self.shop.start_worker(),
            (Place::Gateway, Fault::GatewayRecordsAnError) => self.close_as_not_charged().await,
            (Place::Api(_) | Place::Gateway | Place::Load(_), _) => {}
        }
        None
    }

    /// The clients, until each has its final answer. Returns the answers, and the attempts of the most patient one.
    pub(super) async fn retry_until_final(&self) -> (Vec<Answer>, usize) {
        let ended = join_all(self.keys.iter().map(|key| phone::until_final(&self.shop, key))).await;
        let attempts = ended.iter().map(|(_, attempts)| *attempts).max().unwrap_or_default();
        (ended.into_iter().map(|(answer, _)| answer).collect(), attempts)
    }

    /// Lets the late owner go on, to its end. Others have finished without it.
    pub(super) async fn wake(&mut self, late_owner: Option<Process>) {
        if let (Some(mut process), Some(stopped_at)) = (late_owner, self.stopped_at) {
            tokio::time::sleep(PAST_THE_LEASE.saturating_sub(stopped_at.elapsed())).await;
            assert!(process.is_paused(), "it went on before it was told to");
            let records = self.records().await;
            process.resume();
            // Asked to stop, it first finishes what it has claimed, as far as it is let.
            let status = process.stop();
            assert!(status.success(), "the late owner ended with {status}: {}", process.stderr());
            assert!(process.stderr().contains("everything that was claimed is finished"), "{}", process.stderr());
            assert_eq!(self.records().await, records, "the late owner wrote what was not its own any more");
        }
    }

    /// Whatever the attempts that met the fault were told in the end, it contradicts nothing.
    pub(super) async fn compare(&self, first: Sent, told: &[Answer]) -> String {
        let mut names = Vec::new();
        for (attempt, told) in first.into_iter().zip(told) {
            let attempt = attempt.await.expect("an attempt");
            if let Attempt::Final(answer) = &attempt {
                assert_eq!((answer.status, &answer.body), (told.status, &told.body), "two answers under one key");
            }
            let fresh = if let Attempt::Final(Answer { replayed: true, .. }) = attempt { " replayed" } else { "" };
            names.push(format!("{}{fresh}", attempt.name()));
        }
        names.sort_unstable();
        let counted = names.chunk_by(|a, b| a == b).map(|equal| match equal.len() {
            1 => equal[0].clone(),
            n => format!("{n}×{}", equal[0]),
        });
        counted.collect::<Vec<_>>().join(" ")
    }

    pub(super) async fn until_nothing_is_open(&self) {
        let open =
            "idempotency_records WHERE state IN ('in_flight', 'unknown', 'needs_review') AND first_sent_at IS NOT NULL";
        wait_for("no key is open", async || self.shop.count(open).await == 0).await;
    }

    /// Every key, asked once more: the same bytes. A key whose day is gone says where its order is.
    pub(super) async fn replay(&self, told: &[Answer]) {
        let before = self.before.iter().map(|(key, answer)| (key, answer));
        for (key, answer) in before.clone().chain(self.keys.iter().zip(told)) {
            let again = self.shop.order(key, &crate::support::grinder("pm_card_visa")).await;
            let is_gone =
                matches!(self.trial.place, Place::Maintenance(_)) && before.clone().any(|(old, _)| old == key);
            if is_gone {
                again.expect(410, "idempotency_key_expired");
                assert_eq!(again.location, answer.location);
            } else {
                assert!(again.replayed, "{}", again.text());
                assert_eq!((again.status, &again.body), (answer.status, &answer.body), "a replay differs");
            }
        }
    }

    pub(super) async fn audited(self, fired: String, first: String, attempts: usize, told: &[Answer]) -> Seen {
        let placed = told.iter().filter(|answer| answer.status == 201).count() as i64;
        let fired = match self.trial.place {
            Place::Gateway => format!("{}×", self.times_counted(&self.trial.fault.name()).await),
            _ => fired,
        };
        let seen = Seen {
            fired,
            first,
            attempts,
            end: told.iter().map(|answer| answer.status).max().unwrap_or_default(),
            orders: self.shop.count("orders").await,
            charges: self.shop.count("charges WHERE status = 'succeeded'").await,
            captures: self.shop.captures().await,
            events: self.shop.count("outbox").await,
        };
        let expected = placed + self.before.len() as i64;
        let counted = [seen.orders, seen.charges, seen.captures as i64, seen.events];
        assert_eq!(counted, [expected; 4], "orders, charges, captures, events");
        if let Place::Maintenance(_) = self.trial.place {
            self.days_are_in_order().await;
        }
        self.shop.close().await;
        seen
    }
}

impl Stage {
    async fn cut_connections(&self) -> i64 {
        let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                   WHERE datname = current_database() AND application_name = 'checkout api'";
        let cut = sqlx::query_scalar(cut).fetch_one(&self.shop.pool).await.expect("cut");
        assert!(cut > 0, "there was no connection to cut");
        cut
    }

    /// Immediate shutdown: no checkpoint, no goodbye to any client. The guardian starts the server again on its port.
    async fn restart_postgres(&self) -> String {
        let server = self.shop.database.server_pid().expect("a server of our own");
        assert!(checkout::stop::send(server, checkout::stop::Signal::Quit));
        wait_for("another server runs", async || {
            self.shop.database.server_pid().is_some_and(|pid| pid != server) && self.shop.pool.acquire().await.is_ok()
        })
        .await;
        "SIGQUIT".to_owned()
    }

    /// By the gateway itself, which may be refusing connections at the moment.
    async fn times_counted(&self, fault: &str) -> u64 {
        let ask = async || {
            let stats = self.shop.http.get(format!("{}/_mock/stats", self.shop.gateway_url)).send().await.ok()?;
            stats.json::<serde_json::Value>().await.ok()?["faults"][fault].as_u64()
        };
        ask().await.unwrap_or_default()
    }

    /// The records with the transactions that wrote them last: any later write shows.
    async fn records(&self) -> Vec<(String, i32, String)> {
        let records = "SELECT xmin::text, fence, state FROM idempotency_records ORDER BY digest";
        sqlx::query_as(records).fetch_all(&self.shop.pool).await.expect("the records")
    }

    /// The gateway has forgotten the key after a day, nothing may be sent any more, and nothing is found.
    async fn close_as_not_charged(&self) {
        let key = &self.keys[0];
        wait_for("the outcome is unknown", async || self.shop.state_of(key).await == "unknown").await;
        self.shop.set_clock("24 hours 1 minute").await;
        wait_for("a person is needed", async || self.shop.state_of(key).await == "needs_review").await;
        let listed = self.shop.review(&[]).expect("a listing");
        let gateway_key = listed.split(' ').next().expect("a key").to_owned();
        self.shop.review(&[&gateway_key, "--not-charged", "--by", "Ada"]).expect("closed");
    }

    /// No detached day was left lying about, and the days ahead are attached.
    async fn days_are_in_order(&self) {
        let detached =
            "pg_class WHERE relkind = 'r' AND relname ~ '^idempotency_records_[0-9_]{10}$' AND NOT relispartition";
        assert_eq!(self.shop.count(detached).await, 0, "a detached day is still there");
        let expiry = Duration::from_secs(72 * 3600);
        let done = checkout::idempotency::partitions::maintain(&self.shop.pool, expiry).await.expect("upkeep");
        assert_eq!(done, Default::default(), "something was left to do for the day partitions");
    }
}

async fn killed_at(process: &mut Process, point: &str) -> String {
    use std::os::unix::process::ExitStatusExt;
    let mut status = None;
    wait_for(&format!("a process is killed at {point}"), async || {
        status = process.end();
        status.is_some()
    })
    .await;
    process.ended();
    assert_eq!(status.and_then(|status| status.signal()), Some(9), "{point}: {}", process.stderr());
    said(process, point, "kill").await;
    "SIGKILL".to_owned()
}

async fn stopped_at(process: &Process, point: &str) {
    said(process, point, "stop").await;
    wait_for(&format!("a process is stopped at {point}"), async || process.is_paused()).await;
}

async fn said(process: &Process, point: &str, action: &str) {
    let line = format!("crash point {point}: {action}\n");
    wait_for(&line, async || process.stderr().contains(&line)).await;
}
