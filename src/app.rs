//! How a role is put together from its knobs, and how it ends: api and worker. (The console, the mock gateway and the demo
//! have their own rooms.)

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use axum::{Router, http::StatusCode, routing::get};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::{
    checkout::{Checkout, recover::recover_once, shield::Shield},
    config::{ApiArgs, Timing, WorkerArgs},
    credential::Credentials,
    database,
    http::{self, Door, RequestLog},
    idempotency::partitions,
    serve,
    telemetry::one_line,
};

/// How long the end of a process waits for what it has claimed.
const DRAIN: Duration = Duration::from_secs(10);
/// How often the day partitions are looked after. They are made days ahead, so an hour late is nothing.
const PARTITION_PAUSE: Duration = Duration::from_secs(600);

/// `checkout api`, until `stop`. What was claimed by then is finished first.
pub async fn api(args: ApiArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let timing = args.timing.clone().checked()?;
    let credentials = Credentials::new(&args.credentials.secret)?;
    let listener = serve::bind(args.listen).await?;
    let pool = open_database(&args.database, "checkout api", &timing).await?;
    let checkout = Checkout::new(pool, &args.database, &args.gateway, timing)?;
    let shield = Shield::new(args.running_max);
    let door = Door { checkout, shield: shield.clone(), credentials, log: Arc::new(RequestLog::default()) };

    serve::serve(listener, http::routes(door), stop).await?;
    match shield.drain(DRAIN).await {
        0 => tracing::info!("everything that was claimed is finished"),
        left => tracing::warn!(left, "stopped with work under way; recovery will finish it"),
    }
    Ok(())
}

/// `checkout worker`, until `stop`.
pub async fn worker(args: WorkerArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let timing = args.timing.clone().checked()?;
    let listener = serve::bind(args.listen).await?;
    let pool = open_database(&args.database, "checkout worker", &timing).await?;
    let checkout = Checkout::new(pool.clone(), &args.database, &args.gateway, timing.clone())?;

    let recovery = tokio::spawn(recover(checkout, Duration::from_millis(args.recovery_pause_ms), stop.clone()));
    let upkeep = tokio::spawn(keep_partitions(pool.clone(), timing, stop.clone()));
    serve::serve(listener, health(pool), stop).await?;
    // Neither loop is aborted: each ends its round, and with it every transaction it opened.
    recovery.await.context("the recovery loop panicked")?;
    upkeep.await.context("the partition loop panicked")?;
    Ok(())
}

async fn open_database(args: &crate::config::DatabaseArgs, name: &str, timing: &Timing) -> anyhow::Result<PgPool> {
    let pool = database::connect(args, name).await?;
    database::migrate(&pool).await?;
    partitions::maintain(&pool, timing.key_expiry()).await?;
    Ok(pool)
}

async fn recover(checkout: Checkout, pause: Duration, stop: CancellationToken) {
    while !stop.is_cancelled() {
        match recover_once(&checkout).await {
            Ok(round) if round != Default::default() => tracing::info!(?round, "a round of recovery"),
            Ok(_) => {}
            Err(error) => tracing::error!(error = one_line(&error), "a round of recovery failed"),
        }
        rest(pause, &stop).await;
    }
}

async fn keep_partitions(pool: PgPool, timing: Timing, stop: CancellationToken) {
    while !stop.is_cancelled() {
        match partitions::maintain(&pool, timing.key_expiry()).await {
            Ok(done) if done != Default::default() => tracing::info!(?done, "looked after the day partitions"),
            Ok(_) => {}
            Err(error) => tracing::error!(error = one_line(&error), "the day partitions could not be looked after"),
        }
        rest(PARTITION_PAUSE, &stop).await;
    }
}

async fn rest(pause: Duration, stop: &CancellationToken) {
    let _ = tokio::time::timeout(pause, stop.cancelled()).await;
}

fn health(pool: PgPool) -> Router {
    let ready = move || async move {
        match partitions::days_ahead(&pool).await {
            Ok(days) if days > 0 => (StatusCode::OK, "ready\n"),
            _ => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
        }
    };
    Router::new().route("/livez", get(async || "alive\n")).route("/readyz", get(ready))
}
