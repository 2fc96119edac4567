//! `checkout demo`: the whole stack on this machine. Question: what do I need to see it work? One command.

use std::path::PathBuf;

use clap::Args;
use tokio_util::sync::CancellationToken;

/// The stack's knobs.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Where the stack listens: api on N, console on N+1, gateway on N+2, mail on N+3, the worker's health on N+4.
    #[arg(long, env = "CHECKOUT_BASE_PORT", default_value_t = 8080)]
    pub base_port: u16,
    /// Where data, logs and `demo.json` are kept. As root /var/lib/checkout, otherwise ~/.local/share/checkout.
    #[arg(long, env = "CHECKOUT_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Keep nothing: a temporary data folder, removed at the end.
    #[arg(long, conflicts_with = "data_dir")]
    pub ephemeral: bool,
    /// Start on free ports with no data, prove the promises over HTTP, print one line per fact, and stop.
    #[arg(long)]
    pub check: bool,
}

pub async fn run(_args: DemoArgs, _stop: CancellationToken) -> anyhow::Result<()> {
    anyhow::bail!("not yet")
}
