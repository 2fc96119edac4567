//! What an earlier start left behind. Question: its owner was killed, so is that server still running, or only its
//! `postmaster.pid`?
//!
//! A process id proves nothing: ids are used again. A server's processes work *in* their cluster's folder, so that is
//! what is asked. Without `/proc` the question goes to `pg_ctl`.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Context;

use super::{account::ServerAccount, programs::Programs};
use crate::stop::{Signal, send};

/// A fast shutdown ends transactions and writes a checkpoint; what takes longer is cut short.
const FAST: Duration = Duration::from_secs(30);
const IMMEDIATE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Leaves no process of this cluster and no misleading `postmaster.pid`. The caller holds the folder's lock.
pub(super) async fn end(cluster: &Path, programs: &Programs, account: &ServerAccount) -> anyhow::Result<()> {
    if !Path::new("/proc/self").exists() {
        return end_by_asking(cluster, programs, account);
    }
    let pid_file = cluster.join("postmaster.pid");
    if !processes_in(cluster).is_empty() {
        tracing::info!(cluster = %cluster.display(), "an earlier server is still running here: stopping it");
        stop_all(cluster, postmaster_in(&pid_file)).await?;
    }
    // Only now: removed under living backends, a second server could start on the same files.
    match std::fs::remove_file(&pid_file) {
        Ok(()) => tracing::info!("a server ended here without saying goodbye: PostgreSQL recovers from its log"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot remove {}", pid_file.display())),
    }
    Ok(())
}

async fn stop_all(cluster: &Path, postmaster: Option<u32>) -> anyhow::Result<()> {
    for (signal, grace) in [(Signal::Interrupt, FAST), (Signal::Quit, IMMEDIATE), (Signal::Kill, IMMEDIATE)] {
        let running = processes_in(cluster);
        match postmaster.filter(|pid| running.contains(pid)) {
            // It passes the request on to its backends, in the right order.
            Some(pid) if signal != Signal::Kill => send_all(&[pid], signal),
            // Backends without a postmaster notice on their own, but not while they wait for a client.
            _ => send_all(&running, signal),
        }
        if all_gone(cluster, grace).await {
            return Ok(());
        }
    }
    anyhow::bail!("an earlier server in {} does not end: {:?}", cluster.display(), processes_in(cluster))
}

fn send_all(pids: &[u32], signal: Signal) {
    for pid in pids {
        // One that has ended in the meantime is what we want.
        let _still_there = send(*pid, signal);
    }
}

async fn all_gone(cluster: &Path, grace: Duration) -> bool {
    let asked = Instant::now();
    while asked.elapsed() < grace {
        if processes_in(cluster).is_empty() {
            return true;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    false
}

/// Every process whose working directory is the cluster: the postmaster and its backends, and nobody else's.
fn processes_in(cluster: &Path) -> Vec<u32> {
    let is_there = |pid: &u32| {
        std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|folder| folder == cluster)
            && std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|program| is_postgres(&program))
    };
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(is_there)
        .collect()
}

/// A shell that somebody left in that folder is no server. A program replaced by an upgrade reads `postgres (deleted)`.
fn is_postgres(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("postgres"))
}

/// The first line of `postmaster.pid`.
pub(super) fn postmaster_in(pid_file: &Path) -> Option<u32> {
    std::fs::read_to_string(pid_file).ok()?.lines().next()?.trim().parse().ok()
}

fn end_by_asking(cluster: &Path, programs: &Programs, account: &ServerAccount) -> anyhow::Result<()> {
    let pg_ctl = |arguments: &[&str]| {
        programs.command(account, "pg_ctl").arg("-D").arg(cluster).args(arguments).output().context("cannot run pg_ctl")
    };
    if pg_ctl(&["status"])?.status.success() {
        let stopped = pg_ctl(&["stop", "-m", "fast", "-w", "-t", "30"])?;
        anyhow::ensure!(stopped.status.success(), "an earlier server in {} does not end", cluster.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[tokio::test]
    async fn a_stranger_who_works_in_the_clusters_folder_is_left_alone() {
        let cluster = tempfile::tempdir().unwrap();
        let mut stranger =
            Command::new("sleep").arg("600").current_dir(cluster.path()).stdin(Stdio::null()).spawn().unwrap();
        let pid_file = cluster.path().join("postmaster.pid");
        std::fs::write(&pid_file, format!("{}\n/elsewhere\n", stranger.id())).unwrap();
        assert_eq!(postmaster_in(&pid_file), Some(stranger.id()));

        let programs = Programs::find(None).await.unwrap();
        end(&cluster.path().canonicalize().unwrap(), &programs, &ServerAccount::Ourselves).await.unwrap();
        assert!(stranger.try_wait().unwrap().is_none(), "a stranger was ended");
        assert!(!pid_file.exists());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}
