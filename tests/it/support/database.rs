//! A database per test, cloned from one that was migrated once. The server is ours, durable, and ends with this process:
//! a test binary has no hook for its end, but its guardian notices.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use checkout::{
    checkout::upkeep,
    config::Timing,
    database::embedded::{Cluster, ClusterOptions, DataFolder, Lifetime},
};
use sqlx::{
    AssertSqlSafe, Connection, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::sync::{Mutex, OnceCell};

use super::wait_for;

const TEMPLATE: &str = "template_of_tests";
/// Tests run side by side, each with pools of several connections; the server takes 200 altogether.
const CONNECTIONS_OF_A_TEST: u32 = 8;

static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
/// Cloning reads the template exclusively for a moment; in a queue it is quick, all at once it is refused.
static CLONING: Mutex<()> = Mutex::const_new(());
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A migrated database that no other test sees.
#[derive(Debug)]
pub(crate) struct TestDatabase {
    pub(crate) name: String,
    pub(crate) url: String,
    /// The cluster's folder, of a server that a test has to itself.
    folder: Option<Arc<DataFolder>>,
}

impl TestDatabase {
    pub(crate) async fn create() -> Self {
        super::on_watch();
        let cluster = CLUSTER.get_or_init(start).await;
        let name = format!("test_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        let _one_at_a_time = CLONING.lock().await;
        let mut connection = PgConnection::connect(&cluster.url("postgres")).await.expect("connect");
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}")))
            .execute(&mut connection)
            .await
            .expect("clone the template");
        connection.close().await.expect("close");
        Self { url: cluster.url(&name), name, folder: None }
    }

    /// An empty database on a server of the test's own: whoever connects first brings the schema.
    pub(crate) async fn create_on(cluster: &Cluster, name: &str) -> Self {
        cluster.create_database(name).await.expect("a database");
        Self { url: cluster.url(name), name: name.to_owned(), folder: Some(Arc::clone(cluster.folder())) }
    }

    /// Of a server of the test's own, the first process.
    pub(crate) fn server_pid(&self) -> Option<u32> {
        self.folder.as_ref()?.server_pid()
    }

    /// A backup as it is now. Nobody but this pool may be connected, and it is closed.
    pub(crate) async fn copy(&self, pool: &PgPool) -> Self {
        pool.close().await;
        let cluster = CLUSTER.get_or_init(start).await;
        let name = format!("{}_backup", self.name);
        let mut connection = PgConnection::connect(&cluster.url("postgres")).await.expect("connect");
        let alone = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{}'", self.name);
        wait_for("nobody is connected", async || {
            let count: i64 =
                sqlx::query_scalar(AssertSqlSafe(alone.clone())).fetch_one(&mut connection).await.expect("a count");
            count == 0
        })
        .await;
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name} TEMPLATE {}", self.name)))
            .execute(&mut connection)
            .await
            .expect("a backup");
        connection.close().await.expect("close");
        Self { url: cluster.url(&name), name, folder: None }
    }

    /// A pool of the test's own, beside those of the processes it starts.
    pub(crate) async fn pool(&self) -> PgPool {
        let options: PgConnectOptions = self.url.parse().expect("a database URL");
        PgPoolOptions::new().max_connections(CONNECTIONS_OF_A_TEST).connect_with(options).await.expect("connect")
    }
}

/// The usual knobs.
pub(crate) fn usual_timing() -> Timing {
    Timing {
        lease_ms: 15_000,
        answer_ms: 8_000,
        gateway_budget_ms: 6_000,
        key_expiry_hours: 72,
        resend_hours: 23,
        events_kept_days: 7,
    }
}

/// Makes the days of every table, as the start of a role does.
pub(crate) async fn keep_days(pool: &PgPool) {
    upkeep::keep_days(pool, &usual_timing()).await.expect("today's partitions");
}

async fn start() -> Cluster {
    let program = super::CHECKOUT.into();
    let cluster = Cluster::start(ClusterOptions { lifetime: Lifetime::Ephemeral, program }).await.expect("a cluster");
    cluster.create_database(TEMPLATE).await.expect("the template");
    let pool = PgPool::connect(&cluster.url(TEMPLATE)).await.expect("connect");
    checkout::database::migrate(&pool).await.expect("migrate");
    // A template with a connection to it cannot be cloned.
    pool.close().await;
    cluster
}
