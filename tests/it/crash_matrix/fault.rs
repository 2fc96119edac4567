//! The faults: how each strikes and by what it is recognised, what a supervisor puts right afterwards, and what a late owner
//! must not do.

use std::time::{Duration, Instant};

use checkout::stop::{Signal, send};
use futures_util::future::join_all;

use super::{
    phone,
    rows::{Again, Fault, Place},
    stage::{KEPT_FOR_THE_FAULT, Stage},
};
use crate::support::{Process, wait_for};

const PAST_THE_LEASE: Duration = Duration::from_millis(3_300);
/// Of orders under way, as many are placed before the fault strikes.
const PLACED_OF_THE_LOAD: i64 = 10;
const POSTGRES_AWAY: Duration = Duration::from_secs(5);
/// One order in eight takes a given partition.
const OVERTAKING_MAX: usize = 100;
/// How often the marks of a backlog are wiped, and between two times.
const WIPES: usize = 10;
const BETWEEN_TWO_WIPES: Duration = Duration::from_millis(60);

impl Stage {
    /// Waits for the fault, and says by what it was recognised.
    pub(super) async fn until_it_has_struck(&mut self) -> String {
        match (self.trial.place, self.trial.fault) {
            (Place::Api(point), Fault::Kill) => killed_at(&mut self.shop.api, point.name()).await,
            (Place::Recovery(point, left_behind_at), _) => {
                killed_at(&mut self.shop.api, left_behind_at.name()).await;
                killed_at(self.worker(), point.name()).await
            }
            (Place::Reconciliation(point), _) => {
                let fired = killed_at(self.worker(), point.name()).await;
                self.is_decided(point).await;
                fired
            }
            (Place::Delivery(point), Fault::Kill)
            | (Place::Maintenance(point), _)
            | (_, Fault::KillOneOfTwo(point)) => killed_at(self.worker(), point.name()).await,
            (Place::Api(point) | Place::Delivery(point), fault) => self.stopped_and_then(point.name(), fault).await,
            (Place::Gateway | Place::Mail, Fault::KillTheMail) => self.kill_the_mail().await,
            (Place::Gateway | Place::Mail, fault) => {
                let fault = fault.name();
                wait_for("the fault is counted", async || self.times_counted(&fault).await > 0).await;
                "counted".to_owned()
            }
            (Place::Backlog(_), _) => self.wipe_the_marks().await,
            (Place::Load(_), _) => {
                let enough = PLACED_OF_THE_LOAD + self.before.len() as i64;
                wait_for("some of the load is placed", async || self.shop.count("orders").await >= enough).await;
                self.rest_of_the_load.add_permits(KEPT_FOR_THE_FAULT);
                let placed = self.shop.count("orders").await;
                assert!(placed < (self.keys.len() + self.before.len()) as i64, "all was placed before it struck");
                self.restart_postgres().await
            }
            (Place::Rest, _) => self.postgres_comes_back().await,
        }
    }

    /// The armed process stands at its point, and this happens meanwhile.
    async fn stopped_and_then(&mut self, point: &str, fault: Fault) -> String {
        let is_api = matches!(self.trial.place, Place::Api(_));
        let process = if is_api { &self.shop.api } else { self.shop.worker.as_ref().expect("a worker") };
        stopped_at(process, point).await;
        if let Fault::StopPastLease = fault {
            self.stopped_at = Some(Instant::now());
            return "SIGSTOP".to_owned();
        }
        let fired = match fault {
            Fault::CutConnections => self.cut_connections(if is_api { "api" } else { "worker" }).await,
            _ => self.restart_postgres().await,
        };
        process.resume();
        fired
    }

    /// Puts right what a supervisor would. A process that is only stopped is left so, and comes back as the late owner.
    pub(super) async fn heal(&mut self) -> Option<Process> {
        match (self.trial.place, self.trial.fault) {
            (Place::Api(_), Fault::StopPastLease) => return Some(self.shop.replace_api()),
            (Place::Delivery(_), Fault::StopPastLease) => {
                let late = self.shop.worker.take();
                self.shop.start_worker();
                return late;
            }
            (Place::Api(_), Fault::Kill) => {
                self.shop.restart_api();
                if self.trial.has_webhooks() {
                    self.shop.listen_to_webhooks().await;
                }
            }
            (Place::Recovery(..), _) => {
                self.shop.start_worker();
                self.shop.restart_api();
            }
            (Place::Maintenance(_) | Place::Reconciliation(_), _) | (Place::Delivery(_), Fault::Kill) => {
                self.shop.start_worker();
            }
            (Place::Gateway, Fault::GatewayRecordsAnError) => self.close_as_not_charged().await,
            _ => {}
        }
        None
    }

    /// Lets the late owner go on, to its end. Others have finished without it.
    pub(super) async fn wake(&mut self, late_owner: Option<Process>) {
        match (late_owner, self.trial.place) {
            (None, _) => {}
            (Some(worker), Place::Delivery(_)) => self.wake_the_worker(worker).await,
            (Some(api), _) => self.wake_the_api(api).await,
        }
    }

    async fn wake_the_api(&self, mut api: Process) {
        let stopped_for = self.stopped_at.map_or(Duration::ZERO, |stopped_at| stopped_at.elapsed());
        tokio::time::sleep(PAST_THE_LEASE.saturating_sub(stopped_for)).await;
        assert!(api.is_paused(), "it went on before it was told to");
        let records = self.records().await;
        api.resume();
        // Asked to stop, it first finishes what it has claimed, as far as it is let.
        let status = api.stop();
        assert!(status.success(), "the late owner ended with {status}: {}", api.stderr());
        assert!(api.stderr().contains("everything that was claimed is finished"), "{}", api.stderr());
        assert_eq!(self.records().await, records, "the late owner wrote what was not its own any more");
    }

    /// Another worker has done everything, and in the same partition more than that, before the late one goes on.
    async fn wake_the_worker(&mut self, mut late: Process) {
        self.until_every_event_has_arrived().await;
        let event = self.last_event().await;
        for _ in 0..OVERTAKING_MAX {
            if self.is_overtaken(event).await {
                break;
            }
            self.take_one_more_order().await;
            self.until_every_event_has_arrived().await;
        }
        assert!(self.is_overtaken(event).await, "nobody has read on");
        assert!(late.is_paused(), "it went on before it was told to");
        let (deeds, read) = (self.deeds().await, self.read().await);
        late.resume();
        // Asked to stop, it first ends its rounds.
        let status = late.stop();
        assert!(status.success(), "the late worker ended with {status}: {}", late.stderr());
        assert_eq!(self.deeds().await, deeds, "the late worker did what was done, or undid it");
        // What it publishes again is read again, and everybody is one further. Otherwise nothing was written at all.
        let now = self.read().await;
        let went_on = now.iter().zip(&read).all(|(now, before)| now == before || now.1 > before.1);
        let is_the_same = now == read || self.trial.again == Again::InTheLog;
        assert!(went_on && is_the_same, "read before: {read:?}, and after the late worker: {now:?}");
        let failed = late.stderr().contains("a round of the relay failed")
            || late.stderr().contains("a round of a consumer failed");
        assert!(failed || !self.trial.loses_its_transaction(), "it kept its transaction: {}", late.stderr());
    }

    /// All orders are placed before there is a worker, and their events kept out of sight until two workers have divided the
    /// lanes and the partitions between them: neither can do it all before the other has begun.
    pub(super) async fn let_two_workers_share(&mut self) {
        join_all(self.keys.iter().map(|key| phone::until_final(&self.shop, key))).await;
        self.run("UPDATE outbox SET sent_at = db_clock()").await;
        self.shop.start_worker();
        self.other_worker = self.shop.worker.take();
        let armed = match self.trial.fault {
            Fault::KillOneOfTwo(point) => format!("{}:kill", point.name()),
            _ => String::new(),
        };
        self.shop.start_doomed_worker(&armed);
        wait_for("two workers share", async || self.shop.count(SHARES).await == 6).await;
        let backlog = self.run("UPDATE outbox SET sent_at = NULL").await;
        assert_eq!(backlog, self.keys.len() as u64, "the backlog");
    }
}

/// A worker's share of a duty: while two share all three, there are six.
const SHARES: &str = "(SELECT FROM leases WHERE duty IN ('relay', 'ledger', 'receipts') AND lease_until > db_clock()
    GROUP BY duty, owner) AS share";

impl Stage {
    fn worker(&mut self) -> &mut Process {
        self.shop.worker.as_mut().expect("a worker")
    }

    /// As many rows as it wrote; none, if it lost a deadlock.
    async fn run(&self, sql: &'static str) -> u64 {
        sqlx::query(sql).execute(&self.shop.pool).await.map_or(0, |done| done.rows_affected())
    }

    async fn cut_connections(&self, role: &str) -> String {
        let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                   WHERE datname = current_database() AND application_name = 'checkout ' || $1";
        let cut = sqlx::query_scalar(cut).bind(role).fetch_one(&self.shop.pool).await;
        let cut: i64 = cut.expect("cut");
        assert!(cut > 0, "there was no connection to cut");
        format!("{cut} connections")
    }

    /// Immediate shutdown: no checkpoint, no goodbye to any client. The guardian starts the server again on its port.
    async fn restart_postgres(&self) -> String {
        let server = self.shop.database.server_pid().expect("a server of our own");
        assert!(send(server, Signal::Quit));
        self.until_another_server_runs(server).await;
        "SIGQUIT".to_owned()
    }

    async fn until_another_server_runs(&self, server: u32) {
        wait_for("another server runs", async || {
            self.shop.database.server_pid().is_some_and(|pid| pid != server) && self.shop.pool.acquire().await.is_ok()
        })
        .await;
    }

    /// As [`Self::restart_postgres`], while the guardian is stopped.
    pub(super) async fn take_postgres_away(&mut self) {
        let server = self.shop.database.server_pid().expect("a server of our own");
        let guardian = parent_of(server);
        assert!(send(guardian, Signal::Stop) && send(server, Signal::Quit));
        self.stopped_at = Some(Instant::now());
        self.away = Some((server, guardian));
    }

    async fn postgres_comes_back(&self) -> String {
        let (server, guardian) = self.away.expect("a server that is away");
        tokio::time::sleep(POSTGRES_AWAY).await;
        for what in ["a round of recovery failed", "a round of the relay failed", "a round of a consumer failed"] {
            let stderr = self.shop.worker.as_ref().expect("a worker").stderr();
            assert!(stderr.contains(what), "the worker has noticed nothing: {stderr}");
        }
        assert!(send(guardian, Signal::Continue));
        self.until_another_server_runs(server).await;
        "SIGQUIT".to_owned()
    }

    /// The mail is delivered and its answer held back: now the service dies, and comes back with nothing but its books.
    async fn kill_the_mail(&mut self) -> String {
        wait_for("a mail is delivered", async || self.times_counted("hang_after").await > 0).await;
        assert_eq!(self.shop.mails().await.len(), self.before.len() + 1);
        self.shop.mail.kill();
        self.shop.restart_mail();
        "SIGKILL".to_owned()
    }

    /// As if no mark had ever been committed, while everybody works.
    async fn wipe_the_marks(&self) -> String {
        let mut wiped = 0;
        for _ in 0..WIPES {
            wait_for("events are marked", async || self.shop.count("outbox WHERE sent_at IS NOT NULL").await > 0).await;
            // The relays lock the same rows in another order.
            wiped += self.run("UPDATE outbox SET sent_at = NULL WHERE sent_at IS NOT NULL").await;
            tokio::time::sleep(BETWEEN_TWO_WIPES).await;
        }
        assert!(wiped > 0, "no mark was wiped");
        format!("{wiped} marks")
    }

    /// By the other company itself, which may be refusing connections at the moment.
    pub(super) async fn times_counted(&self, fault: &str) -> u64 {
        let is_mail = matches!(self.trial.place, Place::Mail);
        let company = if is_mail { &self.shop.mail_url } else { &self.shop.gateway_url };
        let ask = async || {
            let stats = self.shop.http.get(format!("{company}/_mock/stats")).send().await.ok()?;
            stats.json::<serde_json::Value>().await.ok()?["faults"][fault].as_u64()
        };
        ask().await.unwrap_or_default()
    }

    /// The records with the transactions that wrote them last: any later write shows.
    async fn records(&self) -> Vec<(String, i32, String)> {
        let records = "SELECT xmin::text, fence, state FROM idempotency_records ORDER BY digest";
        sqlx::query_as(records).fetch_all(&self.shop.pool).await.expect("the records")
    }
}

/// Of an embedded server: its guardian.
fn parent_of(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let behind_the_name = stat.rsplit(") ").next().expect("its state");
    behind_the_name.split(' ').nth(1).and_then(|parent| parent.parse().ok()).expect("its parent")
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
