//! `load run`: one client, one network, one stack. Question: what did its customers get, and what did they pay?

use std::{path::PathBuf, process::ExitCode};

use checkout::phone::Mode;
use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::{
    found::{Compared, ModeFound},
    report_file, tale,
    trial::{self, TrialArgs},
    verdict::Verdict,
};

pub(crate) const RUN_HELP: &str = "\
The network between a phone and the api is a pure function of the seed, so the number of orders that a client will make is known
before the run; what the books say afterwards must be the same, purchase by purchase.

Modes: none (no keys, against a checkout that knows none), per-attempt (the bug that shipped: a new key with every retry),
per-tap, per-intent (right), never-retry, sticky.

Examples:
  load run --rate 500 --seconds 20
  load run --mode per-attempt --rate 500 --seconds 20 --time-scale 10
  load run --profile stress --rate 200 --seconds 20 --time-scale 10

Exit code: 0 every promise held, 1 the audit found something, 2 --expect-p99-ms missed, 3 the figures mean nothing.";

#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    trial: TrialArgs,
    /// How the client keeps its keys.
    #[arg(long, default_value_t = Mode::PerIntent)]
    mode: Mode,
    #[command(flatten)]
    outcome: OutcomeArgs,
}

/// Where the findings go, and what is expected of them.
#[derive(Debug, Clone, Args)]
pub(crate) struct OutcomeArgs {
    /// Also write everything that was found to this file; `load schema` describes it.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also make a page of it: one HTML file that needs no network.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Exit with 2 when the 99th percentile of first attempts takes longer than this.
    #[arg(long, value_name = "MS")]
    expect_p99_ms: Option<f64>,
}

pub(crate) async fn run(args: RunArgs, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    let mut compared = args.trial.compared();
    let tried = trial::run(&args.trial, args.mode, &stop).await?;
    print!("{}\n{}", tale::setting(&compared), tale::mode(&tried.found));
    compared.modes.push(tried.found);
    args.outcome.publish(&compared)
}

impl OutcomeArgs {
    /// Writes the files, says the last line, and turns it into an exit code.
    pub(crate) fn publish(&self, compared: &Compared) -> anyhow::Result<ExitCode> {
        if let Some(file) = &self.json {
            report_file::write_json(file, compared)?;
        }
        if let Some(file) = &self.report {
            report_file::write_page(file, compared)?;
        }
        let verdict = verdict(compared, self.expect_p99_ms);
        println!("{verdict}");
        Ok(verdict.exit_code())
    }
}

fn verdict(compared: &Compared, expect_p99_ms: Option<f64>) -> Verdict {
    let each = |of: fn(&ModeFound) -> &Vec<String>| -> Vec<String> {
        let modes = compared.modes.iter();
        modes.flat_map(|found| of(found).iter().map(|reason| format!("{}: {reason}", found.mode))).collect()
    };
    let mut broken = each(|found| &found.broken_promises);
    if compared.none_doubles_as_per_attempt == Some(false) {
        broken.push("none and per-attempt doubled different purchases in the same network".to_owned());
    }
    let slow =
        compared.modes.iter().filter(|found| expect_p99_ms.is_some_and(|most| found.first_attempt_ms_p99 > most));
    let missed = slow.map(|found| format!("{}: first attempts p99 {:.1} ms", found.mode, found.first_attempt_ms_p99));
    Verdict::weigh(each(|found| &found.invalid_because), broken, missed.collect())
}
