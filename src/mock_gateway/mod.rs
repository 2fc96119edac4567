//! Another company: a mock payment gateway in a subset of Stripe's v1 dialect.
//!
//! Promise: a request with an idempotency key executes once within the key's life, its answer is recorded and replayed, and
//! where the money stands is readable at any time in `/_mock/ledger`, however badly the gateway was told to behave.
//! It answers: what does a checkout meet on the other side of the wire, and how would it know what happened there?
//!
//! It shares nothing with the checkout: own dialect, own books, own clock. In scope are payment intents that capture at
//! once, their charges, refunds, and events with their webhooks; whatever else a client asks for is refused in the dialect's
//! own error envelope.

// In reading order, each group on its own. From the wire to a valid request:
mod accept; // the port: connections, and how they end
mod exchange; // one request and its answer, headers and fate included

mod routes; // one page: which request goes where, and credentials

mod form; // request bodies and queries
mod requests; // from a POST to a valid request with its key

// The story, and what it is made of:
mod payments; // fate, key, execution, record, answer

mod engine; // pure: what a payment intent becomes
mod keys; // the idempotency layer: fingerprint, judgement, keys in progress
mod object; // payment intents, charges and refunds, and their JSON
mod payment_methods;
mod refunds; // what goes back: asked for, decided, looked up // pure: the test cards and what their issuers say

// What it remembers and tells:
mod books; // what the gateway knows: in memory or in PostgreSQL
mod clock; // its own time, and names made from it
mod events; // what it tells by itself
mod lookups; // GET: one, list, search
mod paging; // windows of time, cursors, pages
mod reply; // responses and the error envelope

mod webhooks; // to whom it tells it, until they say that they heard

// What it does wrong on request, and for whom:
mod arrivals; // how often a key has come
mod fault_plan; // who draws which fate: by queue or by chance
mod faults; // the catalogue of misbehaviour

mod control; // `/_mock/*`: for whoever runs the experiment
mod ledger; // `/_mock/ledger`: every capture, streamed
mod stats; // counters

use std::{net::SocketAddr, sync::Arc};

use tokio::{net::TcpListener, sync::mpsc, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::faults::Misbehaviour as _;
pub use self::{books::Books, webhooks::Endpoint};
use crate::config::{MockGatewayArgs, WebhookArgs, unless_empty};

/// How the gateway behaves from its start on. The control plane changes it while it runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Seed of the fault draws.
    pub seed: u64,
    /// Execute every request anew, whatever its key.
    pub ignore_idempotency_keys: bool,
    /// Faults with their probability, as `drop_after:0.004`.
    pub faults: Vec<String>,
    /// Keep events although no endpoint wants them.
    pub events: bool,
    /// Who is told of events.
    pub webhook: Option<Endpoint>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { seed: 1, ignore_idempotency_keys: false, faults: Vec::new(), events: false, webhook: None }
    }
}

/// Everything the requests share.
struct Gateway {
    books: Books,
    clock: clock::Clock,
    names: clock::Names,
    faults: fault_plan::FaultPlan,
    arrivals: arrivals::Arrivals,
    in_progress: keys::InProgress,
    stats: stats::Stats,
    webhooks: webhooks::Webhooks,
    stop: CancellationToken,
    /// Executions that outlive their client.
    executions: TaskTracker,
    /// Asks the accept loop to close the port for a while.
    refusals: mpsc::Sender<std::time::Duration>,
}

impl Gateway {
    /// A fault struck: counted for programs, and told to whoever reads the log.
    fn fired(&self, fault: faults::FaultName, key: Option<&str>) {
        self.stats.fired(fault);
        tracing::info!(fault = fault.name(), key = key.unwrap_or("none"), "a fault strikes");
    }

    /// The same, for a fault that strikes an event.
    fn fired_at_event(&self, fault: faults::WebhookFaultName, event: &events::Event) {
        self.stats.fired_at_event(fault);
        tracing::info!(fault = fault.name(), key = event.key.as_deref().unwrap_or("none"), "a fault strikes");
    }
}

/// A gateway that serves, for tests and for whoever embeds it.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl Running {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

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
pub async fn run(args: MockGatewayArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let settings = Settings {
        seed: args.seed,
        ignore_idempotency_keys: args.ignore_idempotency_keys,
        faults: args.faults,
        events: args.events,
        webhook: endpoint(args.webhook)?,
    };
    let listener = crate::serve::bind(args.listen)?;
    let books = match unless_empty(args.database_url) {
        Some(url) if !args.in_memory => Books::open(&url).await?,
        _ => Books::in_memory(),
    };
    let built = build(settings, books, stop)?;
    crate::serve::announce(&listener)?;
    serve(built, listener).await;
    Ok(())
}

/// Both halves or none: an endpoint that cannot check a signature is none.
fn endpoint(args: WebhookArgs) -> anyhow::Result<Option<Endpoint>> {
    match (unless_empty(args.webhook_url), unless_empty(args.webhook_secret)) {
        (Some(url), Some(secret)) => Endpoint::new(&url, &secret).map(Some),
        (None, None) => Ok(None),
        (Some(_), None) => anyhow::bail!("--webhook-url needs --webhook-secret"),
        // A secret may stand ready in the environment of every role.
        (None, Some(_)) => Ok(None),
    }
}

/// Starts a gateway inside this process. Port 0 takes a free port: [`Running::address`] says which.
pub async fn start(listen: SocketAddr, settings: Settings, books: Books) -> anyhow::Result<Running> {
    let listener: TcpListener = crate::serve::bind(listen)?;
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    let serving = tokio::spawn(serve(build(settings, books, stop.clone())?, listener));
    Ok(Running { address, stop, serving })
}

/// A gateway, and the ends of its channels that those who run it need.
struct Built {
    gateway: Arc<Gateway>,
    refusals: mpsc::Receiver<std::time::Duration>,
    sender: webhooks::sender::Sender,
}

async fn serve(Built { gateway, refusals, sender }: Built, listener: TcpListener) {
    let sending = tokio::spawn(sender.run());
    accept::serve(gateway, listener, refusals).await;
    // It stops by the same token; a panic in it has been logged, and ends nothing but the webhooks.
    let _ended = sending.await;
}

fn build(settings: Settings, books: Books, stop: CancellationToken) -> anyhow::Result<Built> {
    let (refusals, asked) = mpsc::channel(1);
    let (webhooks, news) = webhooks::Webhooks::new(settings.events, settings.webhook);
    let gateway = Gateway {
        books,
        clock: clock::Clock::default(),
        names: clock::Names::new(),
        faults: fault_plan::FaultPlan::new(settings.seed, settings.ignore_idempotency_keys, &settings.faults)?,
        arrivals: arrivals::Arrivals::default(),
        in_progress: keys::InProgress::default(),
        stats: stats::Stats::default(),
        webhooks,
        stop,
        executions: TaskTracker::new(),
        refusals,
    };
    let gateway = Arc::new(gateway);
    let sender = webhooks::sender::Sender::new(Arc::clone(&gateway), news)?;
    Ok(Built { gateway, refusals: asked, sender })
}
