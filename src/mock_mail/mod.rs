//! Another company: a mock mail service in the manner of today's mail APIs (the dialect is a subset of Resend's).
//!
//! Promise: a mail under an idempotency key is delivered once within the key's life, and what was really delivered is readable
//! at any time in `/_mock/mails`, however badly the service was told to behave.
//! It answers: what does a sender of receipts meet on the other side of the wire, and how often did the customer hear from it?
//!
//! It shares nothing with the checkout: own dialect, own books, own clock. No mail leaves the machine: delivered is what the
//! books say.

// In reading order. From the wire to a valid mail:
mod accept; // the port: connections, and how they end
mod email; // pure: a valid mail, and its key
mod exchange; // one request and its answer: routes, credentials, the way back

// The story:
mod deliver; // fate, key, delivery, record, answer

// What it remembers and tells:
mod books; // mails and keys: in memory or in PostgreSQL
mod clock; // its own time, and how long a key is honoured
mod reply; // responses and the error envelope

// What it does wrong on request, and for whom:
mod fault_plan; // who draws which fate
mod faults; // the catalogue of misbehaviour

mod control; // `/_mock/*`: for whoever runs the experiment
mod record; // `/_mock/mails`: every mail delivered, streamed
mod stats; // counters

use std::{collections::HashSet, net::SocketAddr, sync::Arc};

use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::books::Books;
use crate::config::MockMailArgs;

/// How the service behaves from its start on. The control plane changes it while it runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Seed of the fault draws.
    pub seed: u64,
    /// Faults with their probability, as `drop_after:0.004`.
    pub faults: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { seed: 1, faults: Vec::new() }
    }
}

/// Everything the requests share.
struct Service {
    books: Books,
    clock: clock::Clock,
    faults: fault_plan::FaultPlan,
    /// Keys being worked on. One process owns the books, so a kill frees them all by itself.
    in_progress: std::sync::Mutex<HashSet<Arc<str>>>,
    stats: stats::Stats,
    stop: CancellationToken,
    /// Deliveries that outlive their client.
    deliveries: TaskTracker,
}

impl Service {
    /// A fault struck: counted for programs, and told to whoever reads the log.
    fn fired(&self, fault: faults::FaultName, key: Option<&str>) {
        self.stats.fired(fault);
        tracing::info!(fault = fault.name(), key = key.unwrap_or("none"), "a fault strikes");
    }
}

/// A service that serves, for tests and for whoever embeds it.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl Running {
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops accepting, answers what is under way, and returns when nothing runs any more.
    pub async fn stop(self) {
        self.stop.cancel();
        // The serving task only ends by itself or with its runtime; either way nothing serves any more.
        let _ended = self.serving.await;
    }
}

/// The role: binds, says where, and serves until `stop`.
pub async fn run(args: MockMailArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let settings = Settings { seed: args.seed, faults: args.faults };
    let listener = crate::serve::bind(args.listen)?;
    let books = match crate::config::unless_empty(args.database_url) {
        Some(url) if !args.in_memory => Books::open(&url).await?,
        _ => Books::in_memory(),
    };
    let service = build(settings, books, stop)?;
    crate::serve::announce(&listener)?;
    accept::serve(service, listener).await;
    Ok(())
}

/// Starts a service inside this process. Port 0 takes a free port: [`Running::url`] says which.
pub async fn start(listen: SocketAddr, settings: Settings, books: Books) -> anyhow::Result<Running> {
    let listener: TcpListener = crate::serve::bind(listen)?;
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    let service = build(settings, books, stop.clone())?;
    let serving = tokio::spawn(accept::serve(service, listener));
    Ok(Running { address, stop, serving })
}

fn build(settings: Settings, books: Books, stop: CancellationToken) -> anyhow::Result<Arc<Service>> {
    Ok(Arc::new(Service {
        books,
        clock: clock::Clock::default(),
        faults: fault_plan::FaultPlan::new(settings.seed, &settings.faults)?,
        in_progress: std::sync::Mutex::default(),
        stats: stats::Stats::default(),
        stop,
        deliveries: TaskTracker::new(),
    }))
}
