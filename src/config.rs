//! The knobs of every role: one field each, with its environment variable, its default and the reason for it.
//!
//! Knobs that contradict each other refuse to start: [`Timing::checked`].

mod edges;
mod redacted;

use std::{net::SocketAddr, time::Duration};

use clap::{
    Args,
    builder::{NonEmptyStringValueParser, RangedU64ValueParser},
};

pub use self::edges::{BreakerArgs, ConnectionArgs, CustomerArgs};

/// What a lease must leave, beyond the gateway's budget, to settle in, in milliseconds. No charge is sent with less.
pub const SETTLE_RESERVE_MS: u64 = 2_000;

/// An hour. Nothing that a request waits for may be set to more.
const WAIT_MAX_MS: u64 = 3_600_000;

/// `checkout api`: the checkout over HTTP.
#[derive(Debug, Clone, Args)]
pub struct ApiArgs {
    /// Where to listen. Port 0 takes a free one; the line `listening on http://…` on stdout says which.
    #[arg(long, env = "CHECKOUT_LISTEN", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    #[command(flatten)]
    pub database: DatabaseArgs,
    #[command(flatten)]
    pub gateway: GatewayClientArgs,
    #[command(flatten)]
    pub credentials: SecretArgs,
    #[command(flatten)]
    pub timing: Timing,
    #[command(flatten)]
    pub webhook: WebhookSecretArgs,
    #[command(flatten)]
    pub customer: CustomerArgs,
    #[command(flatten)]
    pub breaker: BreakerArgs,
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Most requests that run the protocol at once; one more is answered 503 before it claims anything.
    #[arg(long, env = "CHECKOUT_RUNNING_MAX", default_value_t = 4096,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=65_536))]
    pub running_max: usize,
    // Retries are cheap, and a storm of them is when answers matter most: much more room than for purchases.
    /// Most requests, retries included, that are worked on at once; one more is answered 503 at once.
    #[arg(long, env = "CHECKOUT_TASKS_MAX", default_value_t = 16_384,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    pub tasks_max: usize,
}

/// What the gateway's webhooks are believed by.
#[derive(Clone, Default, Args)]
pub struct WebhookSecretArgs {
    /// What the gateway signs its webhooks with, as `whsec_…`. Without it nobody listens to them.
    #[arg(long, env = "CHECKOUT_WEBHOOK_SECRET", hide_env_values = true)]
    pub webhook_secret: Option<String>,
}

impl std::fmt::Debug for WebhookSecretArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookSecretArgs(…)")
    }
}

/// `checkout worker`: everything that happens without a customer.
#[derive(Debug, Clone, Args)]
pub struct WorkerArgs {
    /// Where `/livez`, `/readyz` and `/metrics` are served. Port 0 takes a free one; the line `listening on http://…` on stdout says which.
    #[arg(long, env = "CHECKOUT_LISTEN", default_value = "127.0.0.1:8084")]
    pub listen: SocketAddr,
    #[command(flatten)]
    pub database: DatabaseArgs,
    #[command(flatten)]
    pub gateway: GatewayClientArgs,
    #[command(flatten)]
    pub mail: MailClientArgs,
    #[command(flatten)]
    pub timing: Timing,
    /// Pause between two looks for work left behind, in milliseconds.
    #[arg(long, env = "CHECKOUT_RECOVERY_PAUSE_MS", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(10..=WAIT_MAX_MS))]
    pub recovery_pause_ms: u64,
    // Every pause is a batch: at 3,000 orders a second 50 ms are 150 events in one transaction.
    /// Pause between two looks for events, when the last one found none, in milliseconds.
    #[arg(long, env = "CHECKOUT_EVENT_PAUSE_MS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=WAIT_MAX_MS))]
    pub event_pause_ms: u64,
    /// A lane of the outbox or a partition of the log is its worker's for this long, in milliseconds, and renewed long before.
    /// What a dead worker held waits for its end.
    #[arg(long, env = "CHECKOUT_EVENT_LEASE_MS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=WAIT_MAX_MS))]
    pub event_lease_ms: u64,
    /// Pause between two comparisons of our books with the gateway's, in milliseconds.
    #[arg(long, env = "CHECKOUT_RECONCILE_PAUSE_MS", default_value_t = 60_000,
          value_parser = clap::value_parser!(u64).range(10..=WAIT_MAX_MS))]
    pub reconcile_pause_ms: u64,
    #[command(flatten)]
    pub reconcile: ReconcileKnobs,
}

/// How the books are compared.
#[derive(Debug, Clone, Args)]
pub struct ReconcileKnobs {
    // The answer takes 8 s at most, a lease 15 s, and a first look of recovery a second more.
    /// What the gateway created less than this ago is not compared yet, in milliseconds: it may still be settling.
    #[arg(long, env = "CHECKOUT_RECONCILE_GRACE_MS", default_value_t = 120_000,
          value_parser = clap::value_parser!(u64).range(1..=WAIT_MAX_MS))]
    pub reconcile_grace_ms: u64,
}

/// `checkout console`: the pages.
#[derive(Clone, Args)]
pub struct ConsoleArgs {
    /// Where to listen. Port 0 takes a free one; the line `listening on http://…` on stdout says which.
    #[arg(long, env = "CHECKOUT_LISTEN", default_value = "127.0.0.1:8081")]
    pub listen: SocketAddr,
    /// The checkout's database, which is only read, as `postgres://user:password@host:port/database`.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_parser = NonEmptyStringValueParser::new())]
    pub database_url: String,
    /// Base URL of the api, whose request log the first page shows.
    #[arg(long, env = "CHECKOUT_API_URL", default_value = "http://127.0.0.1:8080")]
    pub api_url: String,
    #[command(flatten)]
    pub credentials: SecretArgs,
}

/// `checkout gateway`: the mock payment gateway, another company.
#[derive(Clone, Args)]
pub struct MockGatewayArgs {
    /// Where to listen. Port 0 takes a free one; the line `listening on http://…` on stdout says which.
    #[arg(long, env = "CHECKOUT_LISTEN", default_value = "127.0.0.1:8082")]
    pub listen: SocketAddr,
    /// The gateway's own books. Without it, and with --in-memory, they last as long as the process.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// Keep the books in memory: for load, where the mock must not be what is measured.
    #[arg(long, env = "CHECKOUT_GATEWAY_IN_MEMORY")]
    pub in_memory: bool,
    /// Execute every request anew, whatever its key: the gateway that a checkout must not trust.
    #[arg(long)]
    pub ignore_idempotency_keys: bool,
    /// A fault with its probability, as `drop_after:0.004` or `latency_after:0.01:800`. May be repeated.
    #[arg(long = "fault", value_name = "NAME:PROBABILITY[:LATENCY_MS]")]
    pub faults: Vec<String>,
    /// Seed of the fault draws. The same seed, key and attempt draw the same fate.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Keep events for `GET /v1/events` although no webhook wants them. In memory the latest 200,000 are kept.
    #[arg(long)]
    pub events: bool,
    #[command(flatten)]
    pub webhook: WebhookArgs,
}

/// Whom the gateway tells what happened.
#[derive(Clone, Default, Args)]
pub struct WebhookArgs {
    /// Where events are sent to. Needs --webhook-secret.
    #[arg(long, env = "CHECKOUT_WEBHOOK_URL", hide_env_values = true)]
    pub webhook_url: Option<String>,
    /// What signs them, as `whsec_…`.
    #[arg(long, env = "CHECKOUT_WEBHOOK_SECRET", hide_env_values = true)]
    pub webhook_secret: Option<String>,
}

impl std::fmt::Debug for WebhookArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookArgs").field("webhook_url", &self.webhook_url).finish_non_exhaustive()
    }
}

/// `checkout mail`: the mock mail service, another company.
#[derive(Clone, Args)]
pub struct MockMailArgs {
    /// Where to listen. Port 0 takes a free one; the line `listening on http://…` on stdout says which.
    #[arg(long, env = "CHECKOUT_LISTEN", default_value = "127.0.0.1:8083")]
    pub listen: SocketAddr,
    /// The service's own books. Without it, and with --in-memory, they last as long as the process.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// Keep the books in memory: for load, where the mock must not be what is measured.
    #[arg(long, env = "CHECKOUT_MAIL_IN_MEMORY")]
    pub in_memory: bool,
    /// A fault with its probability, as `drop_after:0.004` or `latency_after:0.01:800`. May be repeated.
    #[arg(long = "fault", value_name = "NAME:PROBABILITY[:LATENCY_MS]")]
    pub faults: Vec<String>,
    /// Seed of the fault draws. The same seed, key and attempt draw the same fate.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The database that holds orders, records and the outbox.
#[derive(Clone, Args)]
pub struct DatabaseArgs {
    /// PostgreSQL 15 or later, as `postgres://user:password@host:port/database`.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_parser = NonEmptyStringValueParser::new())]
    pub database_url: String,
    /// Connections this process keeps. Sized for two cores: more of them only queue inside PostgreSQL.
    #[arg(long, env = "CHECKOUT_CONNECTIONS", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub connections: u32,
    // At most 256: each request of a claim holds an advisory lock until the commit, and PostgreSQL's lock table is of a
    // fixed size (`max_locks_per_transaction`).
    /// Most requests that one claim or settle transaction carries. 1 is one transaction pair per order.
    #[arg(long, env = "CHECKOUT_BATCH_LIMIT", default_value_t = 256,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=256))]
    pub batch_limit: usize,
    // On two cores one of each is best: what would be a second transaction joins the next batch. Measured, orders/s and CPU
    // per order at the knee: 1 lane 5,165 and 0.28 ms, 2 lanes 5,038 and 0.36 ms, 3 lanes 4,434 and 0.42 ms.
    /// Claim transactions that may run at once, and as many settle transactions.
    #[arg(long, env = "CHECKOUT_BATCH_LANES", default_value_t = 1,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=32))]
    pub batch_lanes: usize,
}

/// An empty variable is one that is not set: `DATABASE_URL= checkout demo` is how a shell takes it away for one command.
pub fn unless_empty(value: Option<String>) -> Option<String> {
    value.filter(|value| !value.is_empty())
}

/// How the payment gateway is reached.
#[derive(Clone, Args)]
pub struct GatewayClientArgs {
    /// Base URL of the payment gateway.
    #[arg(long, env = "CHECKOUT_GATEWAY_URL", default_value = "http://127.0.0.1:8082")]
    pub gateway_url: String,
    /// The secret key the gateway knows us by.
    #[arg(long, env = "CHECKOUT_GATEWAY_KEY", default_value = "sk_test_checkout", hide_env_values = true)]
    pub gateway_key: String,
}

/// How the mail service is reached.
#[derive(Clone, Args)]
pub struct MailClientArgs {
    /// Base URL of the mail service.
    #[arg(long, env = "CHECKOUT_MAIL_URL", default_value = "http://127.0.0.1:8083")]
    pub mail_url: String,
    /// The secret key the mail service knows us by.
    #[arg(long, env = "CHECKOUT_MAIL_KEY", default_value = "re_checkout", hide_env_values = true)]
    pub mail_key: String,
    // Nobody waits for a receipt, and a slow answer is worth waiting for: the mail that was given up is sent again.
    /// One mail is waited for this long, in milliseconds.
    #[arg(long, env = "CHECKOUT_MAIL_TIMEOUT_MS", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(100..=WAIT_MAX_MS))]
    pub mail_timeout_ms: u64,
}

impl std::fmt::Debug for MailClientArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MailClientArgs")
            .field("mail_url", &self.mail_url)
            .field("mail_timeout_ms", &self.mail_timeout_ms)
            .finish_non_exhaustive()
    }
}

/// What signs and checks the customers' bearer tokens.
#[derive(Clone, Args)]
pub struct SecretArgs {
    /// Shared secret of the bearer tokens (HS256), at least 32 characters.
    #[arg(long = "secret", env = "CHECKOUT_SECRET", hide_env_values = true)]
    pub secret: String,
}

impl std::fmt::Debug for SecretArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretArgs(…)")
    }
}

/// How long things may take. The database clock judges the lease and the expiry, ours only the budgets.
#[derive(Debug, Clone, Args)]
pub struct Timing {
    /// A claim is its owner's for this long, in milliseconds; afterwards a retry or recovery takes it over.
    #[arg(long, env = "CHECKOUT_LEASE_MS", default_value_t = 15_000,
          value_parser = clap::value_parser!(u64).range(100..=WAIT_MAX_MS))]
    pub lease_ms: u64,
    /// The client has its answer within this, in milliseconds. Phones give up at 10 s.
    #[arg(long, env = "CHECKOUT_ANSWER_MS", default_value_t = 8_000,
          value_parser = clap::value_parser!(u64).range(100..=WAIT_MAX_MS))]
    pub answer_ms: u64,
    /// All attempts at the gateway of one request together, in milliseconds.
    #[arg(long, env = "CHECKOUT_GATEWAY_BUDGET_MS", default_value_t = 6_000,
          value_parser = clap::value_parser!(u64).range(100..=WAIT_MAX_MS))]
    pub gateway_budget_ms: u64,
    /// How long a final answer is replayed, in hours: the default outlasts a weekend, the largest a week.
    #[arg(long, env = "CHECKOUT_KEY_EXPIRY_HOURS", default_value_t = 72, value_parser = clap::value_parser!(u32).range(24..=168))]
    pub key_expiry_hours: u32,
    /// How long after its first send a charge may be sent again under the same gateway key, in hours.
    /// The gateway forgets keys after 24.
    #[arg(long, env = "CHECKOUT_RESEND_HOURS", default_value_t = 23, value_parser = clap::value_parser!(u32).range(1..=23))]
    pub resend_hours: u32,
    /// How long events and what remembers them are kept after their day, in days. Longer than anybody may want to look back
    /// to, and to send an event once more.
    #[arg(long, env = "CHECKOUT_EVENTS_KEPT_DAYS", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=90))]
    pub events_kept_days: u32,
}

impl Timing {
    /// Refuses knobs that contradict each other, naming both.
    pub fn checked(self) -> anyhow::Result<Self> {
        anyhow::ensure!(
            self.gateway_budget_ms >= 100 && self.gateway_budget_ms < self.answer_ms,
            "the gateway budget ({} ms) must be at least 100 ms and less than the answer time ({} ms): settling takes time too",
            self.gateway_budget_ms,
            self.answer_ms,
        );
        anyhow::ensure!(
            self.lease_ms >= self.answer_ms + self.gateway_budget_ms,
            "the lease ({} ms) must outlast the answer time and the gateway budget together ({} ms), or a slow owner is taken over while it charges",
            self.lease_ms,
            self.answer_ms + self.gateway_budget_ms,
        );
        anyhow::ensure!(
            self.lease_ms >= self.gateway_budget_ms + SETTLE_RESERVE_MS,
            "the lease ({} ms) must leave {SETTLE_RESERVE_MS} ms to settle in after the gateway budget ({} ms), or no charge would ever be sent",
            self.lease_ms,
            self.gateway_budget_ms,
        );
        Ok(self)
    }

    pub fn key_expiry(&self) -> Duration {
        Duration::from_secs(u64::from(self.key_expiry_hours) * 3600)
    }

    pub fn gateway_budget(&self) -> Duration {
        Duration::from_millis(self.gateway_budget_ms)
    }
}

#[cfg(test)]
mod tests;
