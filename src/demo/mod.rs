//! `checkout demo`: the whole stack on this machine. Question: what do I need to see it work? One command.
//!
//! [`Stack`] starts and stops it and serves others too (the check below, the benchmark); this page is the command.

mod check;
mod part;
mod ports;
mod server;
mod stack;
mod state;
mod welcome;

use std::{io::Write, path::PathBuf};

use anyhow::Context;
use clap::{ArgMatches, Args, parser::ValueSource};
use tokio_util::sync::CancellationToken;

pub use self::{
    ports::Ports,
    stack::{Stack, StackOptions},
    state::DemoState,
};
use crate::{
    config::unless_empty,
    database::embedded::{Lifetime, default_data_folder},
};

/// The stack's knobs.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Where the stack listens: api on N, console on N+1, gateway on N+2, mail on N+3, the worker's health on N+4.
    #[arg(long, env = "CHECKOUT_BASE_PORT", default_value_t = 8080, value_parser = clap::value_parser!(u16).range(1..=65531))]
    pub base_port: u16,
    /// Where data, logs and `demo.json` are kept. As root /var/lib/checkout, otherwise ~/.local/share/checkout.
    #[arg(long, env = "CHECKOUT_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Keep nothing: a temporary data folder instead, removed at the end.
    #[arg(long)]
    pub ephemeral: bool,
    /// A database of your own, instead of a PostgreSQL that the demo starts.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// Start on free ports with an empty database of its own, prove the promises over HTTP, print one line per fact, and stop.
    #[arg(long)]
    pub check: bool,
}

impl DemoArgs {
    /// Flags beside which another one has no say: refused, so that nobody takes what they get for what they asked for.
    /// Only on the command line: an environment is set for many commands and wishes for nothing here.
    pub fn contradiction(given: &ArgMatches) -> Option<(&'static str, &'static str)> {
        let typed = |id: &str| given.value_source(id) == Some(ValueSource::CommandLine);
        let pairs = [
            ("check", "base_port", "--check", "--base-port"),
            ("check", "data_dir", "--check", "--data-dir"),
            ("check", "database_url", "--check", "--database-url"),
            ("ephemeral", "data_dir", "--ephemeral", "--data-dir"),
        ];
        pairs.iter().find(|(one, other, ..)| typed(one) && typed(other)).map(|(.., one, other)| (*one, *other))
    }
}

/// Runs the stack until it is asked to stop, or proves it and stops.
pub async fn run(args: DemoArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot tell which program this is")?;
    if args.check {
        return check::run(program, stop).await;
    }
    let mut options = StackOptions::new(program, lifetime(&args)?, Ports::from_base(args.base_port));
    options.database_url = unless_empty(args.database_url);
    options.progress = say;
    let stack = Stack::start(options, &stop).await?;
    let welcomed = welcome::text(&stack).map(|text| say(&text));
    if welcomed.is_ok() {
        stop.cancelled().await;
        say("Stopping.");
    }
    stack.stop().await?;
    welcomed
}

fn lifetime(args: &DemoArgs) -> anyhow::Result<Lifetime> {
    if args.ephemeral {
        return Ok(Lifetime::Ephemeral);
    }
    Ok(Lifetime::Kept(match &args.data_dir {
        Some(folder) => folder.clone(),
        None => default_data_folder()?,
    }))
}

/// To stdout. A reader that went away (`checkout demo | head`) does not end the stack.
fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _reader_may_be_gone = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}
