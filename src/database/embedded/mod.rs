//! A PostgreSQL of our own. Question: what if this machine has no database yet?
//!
//! A private, durable cluster in a data folder, on a free port of the loopback interface. It does not outlive its owner,
//! however that ends ([`guardian`]), and comes back with everything it had acknowledged.

mod account;
mod folder;
pub mod guardian;
mod leftover;
mod owner;
mod programs;
mod settings;

use std::{
    net::TcpListener,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use anyhow::Context;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

pub use self::folder::{DataFolder, Lifetime, default_data_folder, is_in_use, open_log, random_secret, write_private};
use self::{account::ServerAccount, owner::GuardianProcess, programs::Programs};

/// Names the short-lived folders: the guardian removes no other.
const EPHEMERAL_PREFIX: &str = "checkout-";
const SUPERUSER: &str = "checkout";
/// A free port can be taken between our look and the server's.
const PORTS_TRIED_MAX: u32 = 5;

/// Where a cluster lives, and for how long.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    pub lifetime: Lifetime,
    /// The `checkout` program, which is started as the cluster's guardian.
    pub program: PathBuf,
}

/// A running cluster. Dropped without [`Cluster::stop`], it stops all the same, a moment later.
#[derive(Debug)]
pub struct Cluster {
    folder: Arc<DataFolder>,
    port: u16,
    password: String,
    account: ServerAccount,
    programs: Programs,
    /// The `checkout` program, and what the server is started with: for another guardian, should this one die.
    program: PathBuf,
    arguments: Vec<String>,
    guardian: GuardianProcess,
}

impl Cluster {
    /// Starts the cluster, creating it where it is new.
    pub async fn start(options: ClusterOptions) -> anyhow::Result<Self> {
        Self::start_in(DataFolder::open(&options.lifetime)?, options.program).await
    }

    /// [`Cluster::start`] in a folder that is ours already.
    pub async fn start_in(mut folder: DataFolder, program: PathBuf) -> anyhow::Result<Self> {
        let account = ServerAccount::detect()?;
        account.can_reach(folder.path())?;
        let programs = Programs::find(major_of_data(&folder.cluster())).await?;
        let password = folder.password(&account)?;
        if folder.cluster().exists() {
            leftover::end(&folder.cluster(), &programs, &account).await?;
        } else {
            initialise(&folder, &programs, &account)?;
        }
        let wal_compression = settings::wal_compression(&programs, &account, &folder.cluster());
        for _ in 0..PORTS_TRIED_MAX {
            let port = free_port()?;
            let arguments = settings::arguments(&folder.cluster(), port, wal_compression);
            let log_length = std::fs::metadata(log_of_server(&folder)).map_or(0, |found| found.len());
            let mut guardian = spawn_guardian(&program, &folder, &programs, &arguments)?;
            if guardian.until_ready().await? {
                folder.hand_over();
                let folder = Arc::new(folder);
                return Ok(Self { folder, port, password, account, programs, program, arguments, guardian });
            }
            let complaint = complaint_after(&log_of_server(&folder), log_length);
            anyhow::ensure!(
                complaint.contains("Address already in use"),
                "PostgreSQL {} does not start: {complaint} (log: {})",
                programs.major(),
                log_of_server(&folder).display(),
            );
        }
        anyhow::bail!("no port stayed free long enough for PostgreSQL, {PORTS_TRIED_MAX} tried")
    }

    /// A connection URL. The password in it opens everything in this cluster.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{SUPERUSER}:{}@127.0.0.1:{}/{database}", self.password, self.port)
    }

    /// Creates a database where there is none of that name.
    pub async fn create_database(&self, name: &str) -> anyhow::Result<()> {
        anyhow::ensure!(
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
            "`{name}` is no name for a database"
        );
        let mut connection = PgConnection::connect(&self.url("postgres")).await.context("cannot connect")?;
        let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
            .bind(name)
            .fetch_one(&mut connection)
            .await?;
        if !exists {
            // Names cannot be bound as values; this one was checked letter by letter.
            sqlx::raw_sql(AssertSqlSafe(format!(r#"CREATE DATABASE "{name}""#)))
                .execute(&mut connection)
                .await
                .with_context(|| format!("cannot create the database {name}"))?;
        }
        connection.close().await.context("closing the connection")
    }

    /// What became of the server, a line at a time. `None`: its guardian is gone, and [`Cluster::revive`] is due.
    pub async fn news(&mut self) -> Option<String> {
        self.guardian.news().await
    }

    /// After the death of the guardian: stops the server that nobody looks after, and starts both again where they were.
    pub async fn revive(&mut self) -> anyhow::Result<()> {
        self.guardian.ended().await?;
        leftover::end(&self.folder.cluster(), &self.programs, &self.account).await?;
        self.guardian = spawn_guardian(&self.program, &self.folder, &self.programs, &self.arguments)?;
        let log = log_of_server(&self.folder);
        anyhow::ensure!(self.guardian.until_ready().await?, "PostgreSQL does not start (log: {})", log.display());
        Ok(())
    }

    /// Stops the server and waits until it is gone. What its guardian did not live to do is done here.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let ended = self.guardian.stop().await?;
        if !ended.success() {
            tracing::warn!("the guardian of PostgreSQL ended with {ended}: stopping the server without it");
            leftover::end(&self.folder.cluster(), &self.programs, &self.account).await?;
            if self.folder.is_ephemeral() && self.folder.path().exists() {
                guardian::remove(self.folder.path())?;
            }
        }
        Ok(())
    }

    pub fn folder(&self) -> &Arc<DataFolder> {
        &self.folder
    }

    pub fn guardian_pid(&self) -> u32 {
        self.guardian.pid()
    }

    /// The server's first process; its backends are its children.
    pub fn server_pid(&self) -> Option<u32> {
        self.folder.server_pid()
    }
}

fn major_of_data(cluster: &Path) -> Option<u32> {
    std::fs::read_to_string(cluster.join("PG_VERSION")).ok()?.trim().parse().ok()
}

/// Into a folder beside the final one, then renamed: an `initdb` that was killed half way is simply done again.
fn initialise(folder: &DataFolder, programs: &Programs, account: &ServerAccount) -> anyhow::Result<()> {
    let unfinished = folder.path().join("postgres.unfinished");
    if unfinished.exists() {
        std::fs::remove_dir_all(&unfinished).with_context(|| format!("cannot remove {}", unfinished.display()))?;
    }
    std::fs::create_dir(&unfinished).with_context(|| format!("cannot create {}", unfinished.display()))?;
    account.own(&unfinished)?;
    let mut command = programs.command(account, "initdb");
    command.arg("--pgdata").arg(&unfinished).arg("--pwfile").arg(folder.password_file());
    command.args(["--username", SUPERUSER, "--auth", "scram-sha-256"]);
    // One collation on every machine: sort orders, and the indexes built on them, do not change with the C library.
    command.args(["--encoding", "UTF8", "--locale", "C", "--no-instructions"]);
    if folder.is_ephemeral() {
        // These files need not survive a power cut before the server has even started.
        command.arg("--no-sync");
    }
    let output = command.output().context("cannot run initdb")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "initdb failed: {}", complaint.trim().replace('\n', "; "));
    std::fs::rename(&unfinished, folder.cluster()).context("cannot put the new cluster in its place")
}

fn log_of_server(folder: &DataFolder) -> PathBuf {
    folder.log_of("postgres")
}

fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port")?;
    Ok(listener.local_addr()?.port())
}

fn spawn_guardian(
    program: &Path,
    folder: &DataFolder,
    programs: &Programs,
    server_arguments: &[String],
) -> anyhow::Result<GuardianProcess> {
    let mut command = Command::new(program);
    command.arg("guardian").arg("--cluster").arg(folder.cluster()).arg("--log").arg(log_of_server(folder));
    if folder.is_ephemeral() {
        command.arg("--remove-afterwards").arg(folder.path());
    }
    command.arg("--").arg(programs.program("postgres")).args(server_arguments);
    // A group of its own, so that Ctrl-C reaches us and not it: the roles stop first.
    command.process_group(0).current_dir("/");
    // What it has to say belongs beside the server's own words.
    command.stderr(open_log(&log_of_server(folder))?);
    GuardianProcess::spawn(command)
}

/// What the server said last that explains its end, in one line.
fn complaint_after(log: &Path, length: u64) -> String {
    let written = std::fs::read(log).unwrap_or_default();
    let start = usize::try_from(length).unwrap_or(0).min(written.len());
    let lines = String::from_utf8_lossy(&written[start..]).into_owned();
    let telling: Vec<&str> = lines.lines().filter(|l| l.contains("FATAL") || l.contains("could not")).collect();
    if telling.is_empty() { "it said nothing".to_owned() } else { telling.join("; ") }
}
