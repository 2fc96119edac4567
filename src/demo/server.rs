//! The stack's PostgreSQL. Question: whose server is it, and who notices when it, or its guardian, dies?
//!
//! A dead server is its guardian's affair, a dead guardian is ours: the server is stopped and both are started again.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::stack::StackOptions;
use crate::{
    database::embedded::{Cluster, DataFolder},
    telemetry::one_line,
};

const DATABASE: &str = "checkout";
const DEATHS_MAX: u32 = 10;
/// A guardian that lived this long had started well: its death counts as the first again.
const SETTLED: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) enum Server {
    Ours(Kept),
    /// Somebody else runs it; the folder holds our logs and state.
    Given(Arc<DataFolder>),
}

/// A cluster in the hands of a task that watches it. Dropped, the task stops it.
#[derive(Debug)]
pub(super) struct Kept {
    folder: Arc<DataFolder>,
    stop: DropGuard,
    keeper: JoinHandle<anyhow::Result<()>>,
}

impl Server {
    /// The server and the URL of the stack's database on it.
    pub(super) async fn start(folder: DataFolder, options: &StackOptions) -> anyhow::Result<(Self, String)> {
        if let Some(url) = &options.database_url {
            (options.progress)("using the database of DATABASE_URL");
            crate::database::probe(url).await?;
            return Ok((Self::Given(Arc::new(folder)), url.clone()));
        }
        (options.progress)(&match folder.is_ephemeral() {
            false => format!("starting PostgreSQL in {}", folder.path().display()),
            true => "starting PostgreSQL in a temporary folder".to_owned(),
        });
        let cluster = Cluster::start_in(folder, options.program.clone()).await?;
        cluster.create_database(DATABASE).await?;
        let (url, folder) = (cluster.url(DATABASE), Arc::clone(cluster.folder()));
        let stop = CancellationToken::new();
        let keeper = tokio::spawn(keep(cluster, options.progress, stop.clone()));
        Ok((Self::Ours(Kept { folder, stop: stop.drop_guard(), keeper }), url))
    }

    pub(super) fn folder(&self) -> &DataFolder {
        match self {
            Self::Ours(kept) => &kept.folder,
            Self::Given(folder) => folder,
        }
    }

    /// Of a server of our own, the first process.
    pub(super) fn pid(&self) -> Option<u32> {
        match self {
            Self::Ours(kept) => kept.folder.server_pid(),
            Self::Given(_) => None,
        }
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        match self {
            Self::Ours(Kept { folder, stop, keeper }) => {
                drop(stop);
                let stopped = keeper.await.context("the keeper of PostgreSQL panicked")?;
                drop(folder);
                stopped
            }
            Self::Given(_) => Ok(()),
        }
    }
}

async fn keep(mut cluster: Cluster, progress: fn(&str), stop: CancellationToken) -> anyhow::Result<()> {
    let log = cluster.folder().log_of("postgres").display().to_string();
    let (mut deaths, mut since) = (0, Instant::now());
    loop {
        let news = tokio::select! {
            biased;
            () = stop.cancelled() => return cluster.stop().await,
            news = cluster.news() => news,
        };
        if let Some(line) = news {
            progress(&format!("postgres {line} (log: {log})"));
            continue;
        }
        deaths = if since.elapsed() > SETTLED { 1 } else { deaths + 1 };
        if deaths > DEATHS_MAX {
            progress(&format!("the guardian of postgres died {deaths} times in a row: left alone (log: {log})"));
            stop.cancelled().await;
            return cluster.stop().await;
        }
        progress(&format!("the guardian of postgres died: stopping the server, starting both again (log: {log})"));
        let revived = tokio::select! {
            revived = cluster.revive() => revived,
            () = stop.cancelled() => continue,
        };
        since = Instant::now();
        match revived {
            Ok(()) => progress("postgres runs again, with another guardian"),
            Err(error) => {
                progress(&format!("postgres did not start: {}", one_line(&error)));
                let _ = tokio::time::timeout(PAUSE, stop.cancelled()).await;
            }
        }
    }
}
