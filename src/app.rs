//! How a role is put together from its knobs, and how it ends: api and worker. (The console, the mock gateway and the demo
//! have their own rooms.)

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use axum::{
    Router,
    http::{StatusCode, header::CONTENT_TYPE},
    routing::get,
};
use sqlx::PgPool;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    checkout::{
        Checkout,
        admission::{Admission, Buckets},
        evidence,
        follow::follow_once,
        reconcile::Reconciler,
        recover::recover_once,
        shield::Shield,
        upkeep,
    },
    config::{ApiArgs, ConnectionArgs, Timing, WorkerArgs, unless_empty},
    credential::Credentials,
    database,
    delivery::{
        Next,
        consume::{Consumer, Effect},
        effects::{Bookkeeping, LEDGER, RECEIPTS, Receipting},
        health::Tally,
        relay::Relay,
    },
    http::{self, Answered, Door, RequestLog, WebhookSecret},
    leases::Leases,
    metrics::{self, Consumed, Done, Metrics},
    receipts::MailClient,
    serve::{self, Census},
    telemetry::one_line,
};

/// How long the end of a process waits for what it has claimed.
const DRAIN: Duration = Duration::from_secs(10);
/// How often the days are looked after. They are made days ahead, so an hour late is nothing.
const UPKEEP_PAUSE: Duration = Duration::from_secs(600);
/// After a round that failed, or found the other side out of reach.
const TROUBLE_PAUSE: Duration = Duration::from_secs(1);

/// `checkout api`, until `stop`. What was claimed by then is finished first.
pub async fn api(args: ApiArgs, stop: CancellationToken) -> anyhow::Result<()> {
    api_with(args, http::routes, stop).await
}

/// The same process, whatever is sold behind its door.
pub(crate) async fn api_with(
    args: ApiArgs,
    routes: impl FnOnce(Door) -> Router,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let timing = args.timing.clone().checked()?;
    let credentials = Credentials::new(&args.credentials.secret)?;
    let webhook_secret = unless_empty(args.webhook.webhook_secret).as_deref().map(WebhookSecret::new).transpose()?;
    let listener = serve::bind(args.listen)?;
    let pool = open_database(&args.database, "checkout api", &timing).await?;
    let mut checkout = Checkout::new(pool.clone(), &args.database, &args.gateway, timing)?;
    let shield = Shield::new(args.running_max, args.tasks_max);
    let census = Census::default();
    let reads = args.customer.customer_reads_per_s;
    let admission = Admission::new(shield.clone(), &args.customer, &args.breaker);
    let counting = tokio::spawn(admission.keys.clone().keep(pool, checkout.timing.key_expiry_hours, stop.clone()));
    checkout.gateway.breaker = admission.breaker.clone();
    let door = Door {
        checkout,
        shield: shield.clone(),
        admission,
        reads: Buckets::new(reads, reads.saturating_mul(4)),
        credentials,
        webhook_secret,
        log: Arc::new(RequestLog::default()),
        answered: Arc::new(Answered::default()),
        census: census.clone(),
        stopping: stop.clone(),
    };

    serve::announce(&listener)?;
    let closing = after_delay(stop, Duration::from_millis(args.connection.drain_delay_ms));
    serve::serve_within(limits(&args.connection), &census, listener, routes(door), closing).await;
    match shield.drain(DRAIN).await {
        0 => tracing::info!("everything that was claimed is finished"),
        left => tracing::warn!(left, "stopped with work under way; recovery will finish it"),
    }
    counting.await.context("the count of live keys panicked")
}

/// From the request to stop on, `/readyz` says no; only after the delay nobody is let in any more.
fn after_delay(stop: CancellationToken, delay: Duration) -> CancellationToken {
    let closing = CancellationToken::new();
    let later = closing.clone();
    tokio::spawn(async move {
        stop.cancelled().await;
        tokio::time::sleep(delay).await;
        later.cancel();
    });
    closing
}

fn limits(args: &ConnectionArgs) -> serve::Limits {
    serve::Limits {
        connections: args.connections_max,
        of_address: args.connections_per_address,
        requests: args.requests_per_connection,
        ..serve::Limits::USUAL
    }
}

/// `checkout worker`, until `stop`.
pub async fn worker(args: WorkerArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let timing = args.timing.clone().checked()?;
    let listener = serve::bind(args.listen)?;
    let pool = open_database(&args.database, "checkout worker", &timing).await?;
    let checkout = Checkout::new(pool.clone(), &args.database, &args.gateway, timing.clone())?;
    let send_max = Duration::from_millis(args.mail.mail_timeout_ms);
    let receipting = Receipting::new(pool.clone(), MailClient::new(&args.mail)?, send_max, stop.clone());
    let event_lease = Duration::from_millis(args.event_lease_ms);
    let event_pause = Duration::from_millis(args.event_pause_ms);

    let relay = Relay::new(pool.clone(), event_lease);
    let bookkeeping = Consumer::new(pool.clone(), Bookkeeping, event_lease);
    let receipting = Consumer::new(pool.clone(), receipting, event_lease);
    let consumed = |by, (applied, repeated)| Consumed { by, applied, repeated };
    let done = Done {
        published: relay.published(),
        consumers: vec![consumed(LEDGER, bookkeeping.tallies()), consumed(RECEIPTS, receipting.tallies())],
        ..Done::default()
    };
    let recovered = done.recovered.clone();
    let metrics = Arc::new(Metrics::new(pool.clone(), done));

    let reconciler = Reconciler::new(
        pool.clone(),
        checkout.gateway.clone(),
        Duration::from_millis(args.reconcile.reconcile_grace_ms),
        Some(Leases::new(pool.clone(), "reconcile", event_lease)),
        stop.clone(),
    );

    let loops = [
        tokio::spawn(recover(checkout, Duration::from_millis(args.recovery_pause_ms), recovered, stop.clone())),
        tokio::spawn(reconcile(reconciler, Duration::from_millis(args.reconcile_pause_ms), stop.clone())),
        tokio::spawn(keep_days(pool.clone(), timing, stop.clone())),
        tokio::spawn(run_relay(relay, event_pause, stop.clone())),
        tokio::spawn(consume(bookkeeping, event_pause, stop.clone())),
        tokio::spawn(consume(receipting, event_pause, stop.clone())),
    ];
    serve::serve(listener, health(pool, metrics), stop).await?;
    // No loop is aborted: each ends its round, and with it every transaction it opened.
    for ended in futures_util::future::join_all(loops).await {
        ended.context("a loop of the worker panicked")?;
    }
    Ok(())
}

async fn open_database(args: &crate::config::DatabaseArgs, name: &str, timing: &Timing) -> anyhow::Result<PgPool> {
    let pool = database::connect(args, name).await?;
    database::migrate(&pool).await?;
    upkeep::keep_days(&pool, timing).await?;
    Ok(pool)
}

async fn recover(checkout: Checkout, pause: Duration, recovered: Tally, stop: CancellationToken) {
    while !stop.is_cancelled() {
        // Before recovery, which then finds due what the gateway's news are about.
        match evidence::apply_once(&checkout).await {
            Ok(0) => {}
            Ok(applied) => tracing::info!(applied, "looked at the gateway's events"),
            Err(error) => tracing::error!(error = one_line(&error), "the gateway's events could not be looked at"),
        }
        match recover_once(&checkout).await {
            Ok(round) if round != Default::default() => {
                recovered.add(round.answered);
                tracing::info!(?round, "a round of recovery");
            }
            Ok(_) => {}
            Err(error) => tracing::error!(error = one_line(&error), "a round of recovery failed"),
        }
        // After the events: what they tell of is due by then.
        match follow_once(&checkout).await {
            Ok(round) if round.failed > 0 => tracing::warn!(?round, "refunds that had been given back have failed"),
            Ok(_) => {}
            Err(error) => tracing::error!(error = one_line(&error), "refunds could not be followed"),
        }
        rest(pause, &stop).await;
    }
}

async fn reconcile(mut reconciler: Reconciler, pause: Duration, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let began = Instant::now();
        let ended = reconciler.round().await;
        let unread = matches!(&ended, Ok(Some(round)) if round.more);
        match ended {
            Ok(Some(round)) if round.has_news() => {
                tracing::info!(?round, "a round of reconciliation");
            }
            Ok(_) => {}
            Err(error) => tracing::error!(error = one_line(&error), "a round of reconciliation failed"),
        }
        // A long list is read on at once, at the pace of everything that is paid back.
        rest(if unread { began.elapsed() * 2 } else { pause }, &stop).await;
    }
    released(reconciler.stop().await);
}

async fn keep_days(pool: PgPool, timing: Timing, stop: CancellationToken) {
    while !stop.is_cancelled() {
        match upkeep::keep_days(&pool, &timing).await {
            Ok(tables) => {
                for (table, done) in tables.into_iter().filter(|(_, done)| *done != Default::default()) {
                    tracing::info!(table, ?done, "looked after the days");
                }
            }
            Err(error) => tracing::error!(error = one_line(&error), "the days could not be looked after"),
        }
        match evidence::forget_old(&pool).await {
            Ok(0) => {}
            Ok(forgotten) => tracing::info!(forgotten, "forgot old events of the gateway"),
            Err(error) => tracing::error!(error = one_line(&error), "old events of the gateway could not be forgotten"),
        }
        rest(UPKEEP_PAUSE, &stop).await;
    }
}

async fn run_relay(mut relay: Relay, pause: Duration, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let began = Instant::now();
        let round = relay.round().await;
        after(round, "a round of the relay", began.elapsed(), pause, &stop).await;
    }
    released(relay.stop().await);
}

async fn consume<E: Effect>(mut consumer: Consumer<E>, pause: Duration, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let began = Instant::now();
        let round = consumer.round().await;
        after(round, "a round of a consumer", began.elapsed(), pause, &stop).await;
    }
    released(consumer.stop().await);
}

/// The pause that a round of events calls for. Customers come first: whoever pays back a backlog rests as long as it
/// works, or an outage of what follows the orders would become one of the orders.
async fn after(round: anyhow::Result<Next>, what: &str, took: Duration, pause: Duration, stop: &CancellationToken) {
    match round {
        Ok(Next::GoOn) => rest(took, stop).await,
        Ok(Next::Rest) => rest(pause, stop).await,
        Ok(Next::Wait) => rest(TROUBLE_PAUSE, stop).await,
        Err(error) => {
            tracing::error!(error = one_line(&error), "{what} failed");
            rest(TROUBLE_PAUSE, stop).await;
        }
    }
}

fn released(ended: anyhow::Result<()>) {
    if let Err(error) = ended {
        tracing::warn!(error = one_line(&error), "leases could not be released and will run out");
    }
}

async fn rest(pause: Duration, stop: &CancellationToken) {
    let _ = tokio::time::timeout(pause, stop.cancelled()).await;
}

fn health(pool: PgPool, metrics: Arc<Metrics>) -> Router {
    let ready = move || async move {
        match upkeep::days_ahead(&pool).await {
            Ok(days) if days > 0 => (StatusCode::OK, "ready\n"),
            _ => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
        }
    };
    let scrape = move || async move { ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics.text().await) };
    Router::new().route("/livez", get(async || "alive\n")).route("/readyz", get(ready)).route("/metrics", get(scrape))
}
