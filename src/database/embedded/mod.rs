//! A PostgreSQL of our own. Question: what if this machine has no database yet?
//!
//! A private, durable cluster in a data folder, on a free port of the loopback interface. It does not outlive its owner,
//! however that ends ([`guardian`]), and comes back with everything it had acknowledged.

mod account;
mod folder;
pub mod guardian;
mod leftover;
mod programs;
mod settings;

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::Context;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

pub use self::folder::{DataFolder, Lifetime, default_data_folder, open_log, random_secret, write_private};
use self::{account::ServerAccount, programs::Programs};

/// Names the short-lived folders: the guardian removes no other.
const EPHEMERAL_PREFIX: &str = "checkout-";
const SUPERUSER: &str = "checkout";
/// A free port can be taken between our look and the server's.
const PORTS_TRIED_MAX: u32 = 5;
/// Recovery after a crash replays up to `max_wal_size`.
const START_MAX: Duration = Duration::from_secs(180);
/// Longer than the guardian's own patience with the server.
const STOP_MAX: Duration = Duration::from_secs(60);

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
    folder: DataFolder,
    port: u16,
    password: String,
    guardian: Child,
}

impl Cluster {
    /// Starts the cluster, creating it where it is new.
    pub async fn start(options: ClusterOptions) -> anyhow::Result<Self> {
        let account = ServerAccount::detect()?;
        let mut folder = DataFolder::open(&options.lifetime)?;
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
            let mut guardian = spawn_guardian(&options.program, &folder, &programs, arguments)?;
            if until_ready(&mut guardian).await? {
                folder.hand_over();
                return Ok(Self { folder, port, password, guardian });
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

    /// Stops the server and waits until it is gone.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.guardian.stdin.take());
        let guardian = self.guardian;
        let waiting = tokio::task::spawn_blocking(move || { guardian }.wait());
        match tokio::time::timeout(STOP_MAX, waiting).await {
            Ok(ended) => {
                let status = ended.context("waiting for the guardian")?.context("waiting for the guardian")?;
                anyhow::ensure!(status.success(), "the guardian of PostgreSQL ended with {status}");
                Ok(())
            }
            Err(_) => anyhow::bail!("PostgreSQL did not stop within {} s", STOP_MAX.as_secs()),
        }
    }

    pub fn folder(&self) -> &DataFolder {
        &self.folder
    }

    pub fn guardian_pid(&self) -> u32 {
        self.guardian.id()
    }

    /// The server's first process; its backends are its children.
    pub fn server_pid(&self) -> Option<u32> {
        leftover::postmaster_in(&self.folder.cluster().join("postmaster.pid"))
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
    server_arguments: Vec<String>,
) -> anyhow::Result<Child> {
    let mut command = Command::new(program);
    command.arg("guardian").arg("--cluster").arg(folder.cluster()).arg("--log").arg(log_of_server(folder));
    if folder.is_ephemeral() {
        command.arg("--remove-afterwards").arg(folder.path());
    }
    command.arg("--").arg(programs.program("postgres")).args(server_arguments);
    // A group of its own, so that Ctrl-C reaches us and not it: the roles stop first.
    command.process_group(0).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
    // What it has to say belongs beside the server's own words.
    command.stderr(open_log(&log_of_server(folder))?);
    command.spawn().with_context(|| format!("cannot run {}", program.display()))
}

/// Waits for the guardian's word. False: the server ended first, and its guardian with it.
async fn until_ready(guardian: &mut Child) -> anyhow::Result<bool> {
    let stdout = guardian.stdout.take().context("the guardian has no stdout")?;
    let reading = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).map(|_| line.trim() == guardian::READY)
    });
    match tokio::time::timeout(START_MAX, reading).await {
        Ok(read) => {
            let ready = read.context("reading from the guardian")?.context("reading from the guardian")?;
            if !ready {
                guardian.wait().context("waiting for the guardian")?;
            }
            Ok(ready)
        }
        Err(_) => anyhow::bail!("PostgreSQL was not ready within {} s", START_MAX.as_secs()),
    }
}

/// What the server said last that explains its end, in one line.
fn complaint_after(log: &Path, length: u64) -> String {
    let written = std::fs::read(log).unwrap_or_default();
    let start = usize::try_from(length).unwrap_or(0).min(written.len());
    let lines = String::from_utf8_lossy(&written[start..]).into_owned();
    let telling: Vec<&str> = lines.lines().filter(|l| l.contains("FATAL") || l.contains("could not")).collect();
    if telling.is_empty() { "it said nothing".to_owned() } else { telling.join("; ") }
}
