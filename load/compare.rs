//! `load compare`: several clients in the same network. Question: what does it cost to keep a key badly?
//!
//! Every client gets a stack of its own and meets the same network, fate by fate: what differs in the books is the client's doing.

use std::{collections::BTreeMap, process::ExitCode};

use checkout::phone::Mode;
use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::{
    found::{Compared, ModeFound},
    run::OutcomeArgs,
    tale,
    trial::{self, TrialArgs},
};

pub(crate) const COMPARE_HELP: &str = "\
Clients without keys and clients with a new key for every attempt double the very same purchases: the header changed nothing.

Examples:
  load compare --rate 3000 --seconds 60
  load compare --rate 500 --seconds 20 --time-scale 10 --json compare.json
  load compare --modes per-tap,per-intent,sticky --profile stress --rate 200 --seconds 20 --time-scale 10

Exit code: 0 every promise held, 1 the audit found something, 2 --expect-p99-ms missed, 3 the figures mean nothing.";

#[derive(Debug, Clone, Args)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    trial: TrialArgs,
    /// The clients, in this order.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "none,per-attempt,per-intent,never-retry",
        value_name = "MODE,…"
    )]
    modes: Vec<Mode>,
    #[command(flatten)]
    outcome: OutcomeArgs,
}

/// The runs so far, with what is not published of them.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    modes: Vec<ModeFound>,
    /// By client: every intent with more than one order, and how many.
    duplicates: BTreeMap<&'static str, BTreeMap<u64, u64>>,
}

impl Comparison {
    /// One client more.
    pub(crate) async fn run(
        &mut self,
        trial: &TrialArgs,
        mode: Mode,
        stop: &CancellationToken,
    ) -> anyhow::Result<&ModeFound> {
        let tried = trial::run(trial, mode, stop).await?;
        self.duplicates.insert(mode.name(), tried.duplicates);
        self.modes.push(tried.found);
        Ok(&self.modes[self.modes.len() - 1])
    }

    /// Adds what was found, and what only shows when clients are laid beside each other.
    pub(crate) fn end(self, compared: &mut Compared) {
        let [none, per_attempt] = [Mode::None, Mode::PerAttempt].map(|mode| self.duplicates.get(mode.name()));
        compared.none_doubles_as_per_attempt = none.zip(per_attempt).map(|(none, per_attempt)| none == per_attempt);
        compared.modes = self.modes;
    }
}

pub(crate) async fn compare(args: CompareArgs, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    let mut compared = args.trial.compared();
    print!("{}", tale::setting(&compared));
    let mut comparison = Comparison::default();
    for mode in args.modes {
        eprintln!("  a stack for {mode}:");
        // A run of many minutes shows what it has.
        print!("\n{}", tale::mode(comparison.run(&args.trial, mode, &stop).await?));
    }
    comparison.end(&mut compared);
    print!("\n{}\n", tale::side_by_side(&compared));
    args.outcome.publish(&compared)
}
