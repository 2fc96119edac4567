//! One trial's shop, and the steps of the trial on it. How the faults strike is in `fault`, what comes of the events in
//! `pipeline`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use serde_json::json;
use tokio::{sync::Semaphore, task::JoinHandle};

use super::{
    Seen,
    phone::{self, Attempt},
    rows::{Fault, Place, Trial},
};
use crate::support::{Answer, Opening, Process, Shop, TestDatabase, fresh_key, wait_for};

/// Short, but in the right proportions: the roles refuse knobs that contradict each other.
const TIMING: [(&str, &str); 5] = [
    ("CHECKOUT_GATEWAY_BUDGET_MS", "400"),
    ("CHECKOUT_ANSWER_MS", "1500"),
    ("CHECKOUT_LEASE_MS", "3000"),
    ("CHECKOUT_RECOVERY_PAUSE_MS", "200"),
    ("CHECKOUT_EVENT_PAUSE_MS", "20"),
];
/// What a dead worker held waits for its end.
const EVENT_LEASE: (&str, &str) = ("CHECKOUT_EVENT_LEASE_MS", "1500");
/// Two workers that share must both have their shares when the work comes, also on a machine that is busy.
const EVENT_LEASE_OF_TWO: (&str, &str) = ("CHECKOUT_EVENT_LEASE_MS", "4000");
/// For answers that do not come.
const MAIL_TIMEOUT: (&str, &str) = ("CHECKOUT_MAIL_TIMEOUT_MS", "700");
const MAIL_LATENCY_MS: u64 = 1_200;
/// Orders that are placed before anything goes wrong: whoever is armed passes its point this often unharmed.
const BEFORE: usize = 2;
/// Of every order here.
pub(super) const PRICE: i64 = 4299;
/// Books are compared at once, or the trial would take minutes.
const RECONCILIATION: [(&str, &str); 2] =
    [("CHECKOUT_RECONCILE_PAUSE_MS", "100"), ("CHECKOUT_RECONCILE_GRACE_MS", "1")];
const BETWEEN_TWO_OF_THE_LOAD: Duration = Duration::from_millis(15);
/// Of orders under way, as many begin when the fault strikes, however quick the others were.
pub(super) const KEPT_FOR_THE_FAULT: usize = 10;

pub(super) struct Stage {
    pub(super) trial: Trial,
    pub(super) shop: Shop,
    pub(super) before: Vec<(String, Answer)>,
    pub(super) keys: Vec<String>,
    pub(super) stopped_at: Option<Instant>,
    pub(super) other_worker: Option<Process>,
    /// A server that is away, and its guardian.
    pub(super) away: Option<(u32, u32)>,
    /// The payment intent of a charge that nobody here asked for.
    pub(super) stray: Option<String>,
    /// A permit for each order of the load that waits for the fault.
    pub(super) rest_of_the_load: Arc<Semaphore>,
}

type Sent = Vec<JoinHandle<Attempt>>;

/// What is armed in the api and in the worker.
fn crashes(trial: Trial) -> (String, String) {
    let nth = BEFORE + 1;
    match (trial.place, trial.fault) {
        (Place::Api(point), Fault::Kill) => (format!("{}:kill:{nth}", point.name()), String::new()),
        (Place::Api(point), _) => (format!("{}:stop:{nth}", point.name()), String::new()),
        (Place::Recovery(point, left_behind_at), _) => {
            (format!("{}:kill:{nth}", left_behind_at.name()), format!("{}:kill", point.name()))
        }
        (Place::Reconciliation(point), _) => (String::new(), format!("{}:kill", point.name())),
        (Place::Delivery(point), Fault::Kill) => (String::new(), format!("{}:kill:{nth}", point.name())),
        (Place::Delivery(point), _) => (String::new(), format!("{}:stop:{nth}", point.name())),
        _ => (String::new(), String::new()),
    }
}

impl Stage {
    pub(super) async fn open(trial: Trial, database: Option<TestDatabase>) -> Self {
        let (api_crash, worker_crash) = crashes(trial);
        let mut environment = TIMING.to_vec();
        environment.push(if let Place::Backlog(_) = trial.place { EVENT_LEASE_OF_TWO } else { EVENT_LEASE });
        if let Fault::Mail { .. } = trial.fault {
            environment.push(MAIL_TIMEOUT);
        }
        if let Place::Reconciliation(_) = trial.place {
            environment.extend(RECONCILIATION);
        }
        let shop = Shop::open_with(Opening {
            // Another company's books are not to go down with our database, but have to outlive its own process.
            gateway_in_memory: !matches!(trial.fault, Fault::KillTheMail),
            worker: !matches!(trial.place, Place::Maintenance(_) | Place::Backlog(_)),
            webhooks: trial.has_webhooks(),
            environment,
            api_crash,
            worker_crash,
            database,
            ..Opening::default()
        })
        .await;
        let keys = (0..trial.place.orders()).map(|_| fresh_key()).collect();
        Self {
            trial,
            shop,
            before: Vec::new(),
            keys,
            stopped_at: None,
            other_worker: None,
            away: None,
            stray: None,
            rest_of_the_load: Arc::new(Semaphore::new(0)),
        }
    }

    pub(super) async fn take_orders_before(&mut self) {
        let before = if let Place::Backlog(_) = self.trial.place { 0 } else { BEFORE };
        for _ in 0..before {
            self.take_one_more_order().await;
            if let Place::Delivery(_) | Place::Mail | Place::Rest = self.trial.place {
                // Each event alone, so that it is known which one meets the fault.
                self.until_every_event_has_arrived().await;
            }
        }
        if self.trial.has_webhooks() {
            wait_for("all news are kept", async || self.shop.count("gateway_events").await == before as i64).await;
        }
    }

    pub(super) async fn take_one_more_order(&mut self) {
        let key = fresh_key();
        let (answer, attempts) = phone::until_final(&self.shop, &key).await;
        assert_eq!(answer.status, 201, "where nothing goes wrong: {}", answer.text());
        if let Place::Api(_) | Place::Recovery(..) = self.trial.place {
            // A second attempt may have passed the point a second time, and the fault would come too early.
            assert_eq!(attempts, 1, "where nothing goes wrong: {}", answer.text());
        }
        self.before.push((key, answer));
    }

    /// The attempts that will meet the fault. Nobody waits for them yet.
    pub(super) async fn send_into_the_fault(&mut self) -> Sent {
        match self.trial.fault {
            Fault::Gateway { name, requests, latency_ms } => self.shop.fault(name, requests, latency_ms).await,
            Fault::GatewayRecordsAnError => self.shop.fault("http_500_before", 1, 0).await,
            Fault::Mail { name, mails } => {
                let fault = json!({"name": name, "count": mails, "latency_ms": MAIL_LATENCY_MS});
                self.shop.mail_fault(&fault).await;
            }
            Fault::KillTheMail => self.shop.mail_fault(&json!({"name": "hang_after", "count": 1})).await,
            Fault::PostgresAway => self.take_postgres_away().await,
            Fault::KillOneOfTwo(_) | Fault::WipeTheMarks => self.let_two_workers_share().await,
            Fault::Kill | Fault::StopPastLease | Fault::CutConnections | Fault::RestartPostgres => {}
        }
        if let Place::Reconciliation(_) = self.trial.place {
            self.take_more_than_was_bought().await;
        }
        if let Place::Maintenance(point) = self.trial.place {
            self.shop.set_clock("5 days").await;
            self.shop.start_doomed_worker(&format!("{}:kill", point.name()));
            return Vec::new();
        }
        if let Place::Backlog(_) = self.trial.place {
            return Vec::new();
        }
        let attempts = self.keys.iter().map(|key| phone::attempt(&self.shop, key));
        let kept_from =
            if let Place::Load(orders) = self.trial.place { orders - KEPT_FOR_THE_FAULT } else { usize::MAX };
        let spaced = attempts.enumerate().map(|(n, attempt)| {
            let rest = Arc::clone(&self.rest_of_the_load);
            async move {
                tokio::time::sleep(n as u32 * BETWEEN_TWO_OF_THE_LOAD).await;
                if n >= kept_from {
                    rest.acquire().await.expect("nobody closes it").forget();
                }
                attempt.await
            }
        });
        spaced.map(tokio::spawn).collect()
    }

    /// The clients, until each has its final answer. Returns the answers, and the attempts of the most patient one.
    pub(super) async fn retry_until_final(&self) -> (Vec<Answer>, usize) {
        let ended = join_all(self.keys.iter().map(|key| phone::until_final(&self.shop, key))).await;
        let attempts = ended.iter().map(|(_, attempts)| *attempts).max().unwrap_or_default();
        (ended.into_iter().map(|(answer, _)| answer).collect(), attempts)
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
        let fired = match self.trial.fault {
            Fault::Gateway { .. } | Fault::GatewayRecordsAnError | Fault::Mail { .. } => {
                format!("{}×", self.times_counted(&self.trial.fault.name()).await)
            }
            _ => fired,
        };
        let delivered = self.delivered().await;
        let seen = Seen {
            fired,
            first,
            attempts,
            end: told.iter().map(|answer| answer.status).max().unwrap_or_default(),
            orders: self.shop.count("orders").await,
            charges: self.shop.count("charges WHERE status = 'succeeded'").await,
            captures: self.shop.refunded().await.values().filter(|back| **back < PRICE).count() as u64,
            events: self.shop.count("outbox").await,
            delivered,
        };
        let expected = placed + self.before.len() as i64;
        let counted = [seen.orders, seen.charges, seen.captures as i64, seen.events];
        assert_eq!(counted, [expected; 4], "orders, charges, captures, events");
        assert_eq!([seen.delivered.booked, seen.delivered.mails], [expected; 2], "postings, mails");
        self.did_again(&seen.delivered, expected).await;
        if let Place::Maintenance(_) = self.trial.place {
            self.days_are_in_order().await;
        }
        self.shop.close().await;
        seen
    }
}

impl Stage {
    /// The gateway has forgotten the key after a day, nothing may be sent any more, and nothing is found.
    pub(super) async fn close_as_not_charged(&self) {
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
