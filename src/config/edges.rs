//! The knobs of the api's edges: how much of it one customer, one address and one bad day of the gateway may take.
//!
//! None of them ever stands between a customer and the answer to what happened already: they judge new purchases.

use std::time::Duration;

use clap::{Args, builder::RangedU64ValueParser};

/// What one customer may ask for.
#[derive(Debug, Clone, Args)]
pub struct CustomerArgs {
    // A person taps a few times a minute; a shop that orders for its own customers, a few times a second.
    /// New purchases of one customer per second, in the long run. 0 sets no limit.
    #[arg(long, env = "CHECKOUT_CUSTOMER_RATE_PER_S", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub customer_rate_per_s: u32,
    /// New purchases of one customer at once, after a quiet while.
    #[arg(long, env = "CHECKOUT_CUSTOMER_BURST", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub customer_burst: u32,
    // 72 hours of it are a few hundred megabytes.
    /// Keys of one customer that have not expired, counted by the day and every few seconds. 0 sets no limit.
    #[arg(long, env = "CHECKOUT_CUSTOMER_KEYS_MAX", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000_000))]
    pub customer_keys_max: u64,
    // A read costs a tenth of a purchase.
    /// Reads of one customer per second, in the long run, and four times as many at once. 0 sets no limit.
    #[arg(long, env = "CHECKOUT_CUSTOMER_READS_PER_S", default_value_t = 500, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub customer_reads_per_s: u32,
}

/// What connections may do, and how they are ended.
#[derive(Debug, Clone, Args)]
pub struct ConnectionArgs {
    /// Connections at once; more wait until one is closed.
    #[arg(long, env = "CHECKOUT_CONNECTIONS_MAX", default_value_t = 4096,
          value_parser = RangedU64ValueParser::<usize>::new().range(8..=1_000_000))]
    pub connections_max: usize,
    // Off, because behind a proxy, and on one machine, everybody has the same address.
    /// Connections at once of one address; one more is closed. 0 sets no limit.
    #[arg(long, env = "CHECKOUT_CONNECTIONS_PER_ADDRESS", default_value_t = 0,
          value_parser = RangedU64ValueParser::<usize>::new().range(0..=1_000_000))]
    pub connections_per_address: usize,
    /// Requests of one connection before it is closed. 0 sets no limit.
    #[arg(long, env = "CHECKOUT_REQUESTS_PER_CONNECTION", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    pub requests_per_connection: u64,
    // A load balancer needs a moment to notice, and sends requests meanwhile.
    /// Asked to stop, how long to go on taking requests while /readyz says 503, in milliseconds. At 0 the end begins at once.
    #[arg(long, env = "CHECKOUT_DRAIN_DELAY_MS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub drain_delay_ms: u64,
}

/// When the gateway is left alone.
#[derive(Debug, Clone, Args)]
pub struct BreakerArgs {
    // An order sends twice: ten orders in a row, then. Two or three happen on a good day.
    /// After so many charges in a row without an answer of the gateway no purchase is begun for a while. 0 never stops.
    #[arg(long, env = "CHECKOUT_GATEWAY_FAILURES_MAX", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub gateway_failures_max: u32,
    /// How long at first, in milliseconds; then one purchase tries, and in vain it is twice as long, up to 10 s.
    #[arg(long, env = "CHECKOUT_GATEWAY_PAUSE_MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(10..=10_000))]
    pub gateway_pause_ms: u64,
}

impl BreakerArgs {
    pub fn pause(&self) -> Duration {
        Duration::from_millis(self.gateway_pause_ms)
    }
}
