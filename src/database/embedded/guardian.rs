//! `checkout guardian`: the parent of an embedded server. Question: who stops the server when its owner was killed?
//!
//! The owner holds a pipe to the guardian's stdin. However the owner ends, the kernel closes that pipe; then the
//! guardian stops the server, removes what was only on loan, and ends too. A server that dies by itself is started again.

use std::{
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::Context;
use clap::Args;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::{account::ServerAccount, folder};
use crate::stop::{Signal, send};

/// The first line the owner reads from the guardian's stdout, once the server accepts connections.
pub(super) const READY: &str = "ready";
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// After a crash the backends of the dead server hold its memory for a moment: starts fail until they are gone.
const RESTART_PAUSE: Duration = Duration::from_millis(500);
const RESTARTS_MAX: u32 = 20;
/// Fast shutdown writes a checkpoint. What takes longer is cut short; the log replays it at the next start.
const FAST: Duration = Duration::from_secs(30);
const IMMEDIATE: Duration = Duration::from_secs(5);

/// The server to look after, as its owner starts it.
#[derive(Debug, Clone, Args)]
pub struct GuardianArgs {
    /// The cluster's folder.
    #[arg(long)]
    pub cluster: PathBuf,
    /// Where the server's messages go.
    #[arg(long)]
    pub log: PathBuf,
    /// A folder to remove when the server has ended.
    #[arg(long)]
    pub remove_afterwards: Option<PathBuf>,
    /// The server program and its arguments.
    #[arg(last = true, required = true)]
    pub server: Vec<String>,
}

/// Runs the server until stdin ends or a signal comes.
pub async fn run(args: GuardianArgs, stop: CancellationToken) -> anyhow::Result<()> {
    crate::stop::cancel_on_stdin_eof(stop.clone());
    match keep_running(&args, &stop).await {
        // The folder is still the owner's, who may try again on another port.
        Ok(Ended::BeforeReady(status)) => anyhow::bail!("the server ended with {status} before it was ready"),
        kept => {
            if let Some(folder) = &args.remove_afterwards {
                remove(folder)?;
            }
            kept.map(drop)
        }
    }
}

/// How the server's life came to its end.
enum Ended {
    AsAsked,
    BeforeReady(ExitStatus),
}

async fn keep_running(args: &GuardianArgs, stop: &CancellationToken) -> anyhow::Result<Ended> {
    let mut ready_once = false;
    let mut restarts = 0;
    loop {
        let mut server = start(args)?;
        let pid = server.id();
        tokio::select! {
            ended = server.wait() => {
                let status = ended.context("cannot wait for the server")?;
                if !ready_once {
                    return Ok(Ended::BeforeReady(status));
                }
                anyhow::ensure!(restarts < RESTARTS_MAX, "the server ended with {status}, {restarts} restarts in a row");
            }
            () = stop.cancelled() => return shut_down(&mut server).await.map(|()| Ended::AsAsked),
            () = until_ready(&args.cluster, pid) => {
                restarts = 0;
                tell_owner(if std::mem::replace(&mut ready_once, true) { "runs again" } else { READY });
                tokio::select! {
                    ended = server.wait() => {
                        let status = ended.context("cannot wait for the server")?;
                        tell_owner(&format!("ended with {status}, starts again"));
                    }
                    () = stop.cancelled() => return shut_down(&mut server).await.map(|()| Ended::AsAsked),
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(RESTART_PAUSE) => restarts += 1,
            () = stop.cancelled() => return Ok(Ended::AsAsked),
        }
    }
}

fn start(args: &GuardianArgs) -> anyhow::Result<Child> {
    let (program, arguments) = args.server.split_first().context("no server named")?;
    let log = folder::open_log(&args.log)?;
    let mut command = ServerAccount::detect()?.command(Path::new(program));
    command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let mut command = Command::from(command);
    // A group of its own: Ctrl-C in a terminal reaches a whole group, and this server stops last.
    command.process_group(0);
    command.spawn().with_context(|| format!("cannot run {program}"))
}

/// PostgreSQL writes its state as the eighth line of `postmaster.pid`. Ends only with `ready` from this very server.
async fn until_ready(cluster: &Path, server: Option<u32>) {
    let pid_file = cluster.join("postmaster.pid");
    let ours = server.map(|pid| pid.to_string());
    loop {
        let written = std::fs::read_to_string(&pid_file).unwrap_or_default();
        let mut lines = written.lines().map(str::trim);
        if lines.next() == ours.as_deref() && lines.nth(6) == Some(READY) {
            return;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// An owner that is gone already does not read it, and its closed pipe will end us soon.
fn tell_owner(line: &str) {
    use std::io::Write;
    let mut stdout = std::io::stdout().lock();
    let _owner_may_be_gone = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

async fn shut_down(server: &mut Child) -> anyhow::Result<()> {
    for (signal, grace) in [(Signal::Interrupt, FAST), (Signal::Quit, IMMEDIATE)] {
        // `id` is `None` once the server was waited for, so this never signals a stranger.
        let Some(pid) = server.id() else { return Ok(()) };
        send(pid, signal);
        if let Ok(ended) = tokio::time::timeout(grace, server.wait()).await {
            ended.context("cannot wait for the server")?;
            return Ok(());
        }
    }
    server.kill().await.context("the server does not end")
}

/// Deletes a whole tree, so it is particular about which: only folders this program made for a short life.
pub(super) fn remove(folder: &Path) -> anyhow::Result<()> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    anyhow::ensure!(name.starts_with(super::EPHEMERAL_PREFIX), "{} is not ours to remove", folder.display());
    std::fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))
}
