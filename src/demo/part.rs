//! One role as a child process. Question: what happens when a part of the stack dies?
//!
//! It is said in one line, and the part is started again on the same address: a kill is something to watch and to
//! recover from. A part that cannot stay up is left alone after a number of tries.

use std::{
    net::SocketAddr,
    path::PathBuf,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::{
    crash_point,
    database::embedded::open_log,
    stop::{STOP_ON_STDIN_EOF, Signal, send},
};

/// From the start of the process to its line on stdout.
const LISTENING_MAX: Duration = Duration::from_secs(30);
/// A request under way has its answer within 8 s, and what it claimed is finished within another 10.
const DRAIN_MAX: Duration = Duration::from_secs(20);
const TERMINATE_MAX: Duration = Duration::from_secs(3);
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// A part that ran this long had started well: its next death counts as the first again.
const SETTLED: Duration = Duration::from_secs(20);
const DEATHS_MAX: u32 = 10;
/// The pid of a part that is not running just now.
const NONE: u32 = 0;

/// How a part is started, the first time and every other: except that what is armed in us acts once.
#[derive(Debug)]
pub(super) struct PartSpec {
    pub(super) role: &'static str,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(&'static str, String)>,
    pub(super) listen: SocketAddr,
    pub(super) log: PathBuf,
    pub(super) progress: fn(&str),
}

/// A part that died at a crash point would die there again and again: somebody wants to see how it comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    First,
    Again,
}

/// A part that is kept running until it is stopped.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) role: &'static str,
    pub(super) url: String,
    pub(super) log: PathBuf,
    pid: Arc<AtomicU32>,
    stop: CancellationToken,
    keeper: JoinHandle<()>,
}

/// A running child, and the pipe whose end it takes as the request to stop. Waiting for a [`Child`] would close it.
#[derive(Debug)]
struct Running {
    child: Child,
    stdin: ChildStdin,
}

impl Part {
    /// Returns once the part listens. One that dies before is an error, not something to try again.
    pub(super) async fn start(mut spec: PartSpec) -> anyhow::Result<Self> {
        let (running, address) = launch(&spec, Start::First).await?;
        spec.listen = address;
        let (role, log) = (spec.role, spec.log.clone());
        let pid = Arc::new(AtomicU32::new(running.child.id().unwrap_or(NONE)));
        let stop = CancellationToken::new();
        let keeper = tokio::spawn(keep(spec, running, Arc::clone(&pid), stop.clone()));
        Ok(Self { role, url: format!("http://{address}"), log, pid, stop, keeper })
    }

    pub(super) fn pid(&self) -> Option<u32> {
        Some(self.pid.load(Ordering::Relaxed)).filter(|pid| *pid != NONE)
    }

    /// Lets it finish what it does, then insists.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.keeper.await {
            tracing::error!(role = self.role, %error, "the keeper of a part panicked");
        }
    }
}

async fn keep(spec: PartSpec, mut running: Running, pid: Arc<AtomicU32>, stop: CancellationToken) {
    let mut deaths = 0;
    loop {
        let since = Instant::now();
        let mut last_words = tokio::select! {
            ended = running.child.wait() => ended.map_or_else(|error| error.to_string(), |status| format!("ended with {status}")),
            () = stop.cancelled() => return end(running).await,
        };
        pid.store(NONE, Ordering::Relaxed);
        if since.elapsed() > SETTLED {
            deaths = 0;
        }
        running = loop {
            deaths += 1;
            if deaths > DEATHS_MAX {
                (spec.progress)(&format!("{} {last_words}, {deaths} times in a row: left alone", spec.role));
                return;
            }
            let pause = PAUSE_MAX.min(PAUSE_FIRST * 2u32.pow(deaths - 1));
            let log = spec.log.display();
            (spec.progress)(&format!("{} {last_words}, starts again in {pause:?} (log: {log})", spec.role));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => return,
            }
            tokio::select! {
                launched = launch(&spec, Start::Again) => match launched {
                    Ok((again, _)) => break again,
                    Err(error) => last_words = format!("did not start: {error:#}"),
                },
                () = stop.cancelled() => return,
            }
        };
        pid.store(running.child.id().unwrap_or(NONE), Ordering::Relaxed);
        (spec.progress)(&format!("{} runs again", spec.role));
    }
}

async fn launch(spec: &PartSpec, start: Start) -> anyhow::Result<(Running, SocketAddr)> {
    let log = open_log(&spec.log)?;
    let mut command = Command::new(&spec.program);
    command.arg(spec.role).arg("--listen").arg(spec.listen.to_string()).args(&spec.arguments);
    command.envs(spec.environment.iter().map(|(name, value)| (name, value))).env(STOP_ON_STDIN_EOF, "1");
    if start == Start::Again {
        crash_point::disarm(command.as_std_mut());
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
    // A group of its own: Ctrl-C reaches the supervisor alone, which stops the parts in their order.
    command.process_group(0).kill_on_drop(true);
    let mut child = command.spawn().with_context(|| format!("cannot run {}", spec.program.display()))?;
    let stdin = child.stdin.take().context("a child without stdin")?;
    let stdout = child.stdout.take().context("a child without stdout")?;
    match tokio::time::timeout(LISTENING_MAX, announced(stdout)).await {
        Ok(Some(address)) => Ok((Running { child, stdin }, address)),
        Ok(None) => {
            let status = child.wait().await.context("cannot wait for a child")?;
            anyhow::bail!("{} ended with {status} before it listened: {}", spec.role, last_line(spec))
        }
        Err(_) => anyhow::bail!(
            "{} does not listen after {} s (log: {})",
            spec.role,
            LISTENING_MAX.as_secs(),
            spec.log.display()
        ),
    }
}

/// The address a child announced on stdout. Whatever it writes there later is read and dropped: a full pipe would
/// stop it.
async fn announced(stdout: ChildStdout) -> Option<SocketAddr> {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let address = line.strip_prefix("listening on http://").and_then(|address| address.parse().ok());
        if address.is_some() {
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return address;
        }
    }
    None
}

/// The reason is the last thing a role logs.
fn last_line(spec: &PartSpec) -> String {
    let written = std::fs::read(&spec.log).unwrap_or_default();
    let text = String::from_utf8_lossy(&written);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it logged nothing");
    format!("{} (log: {})", last.trim_start_matches("checkout: "), spec.log.display())
}

async fn end(Running { mut child, stdin }: Running) {
    // The end of its stdin is the polite request; SIGTERM the same for one that does not read.
    drop(stdin);
    if tokio::time::timeout(DRAIN_MAX, child.wait()).await.is_ok() {
        return;
    }
    if let Some(pid) = child.id() {
        send(pid, Signal::Terminate);
    }
    if tokio::time::timeout(TERMINATE_MAX, child.wait()).await.is_err() {
        // Stopped by SIGSTOP, perhaps: only this reaches it then.
        let _already_ended = child.kill().await;
    }
}
