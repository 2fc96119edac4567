//! `checkout charge-run FILE.csv`: a list of invoice lines, each charged once, by a client that stores nothing. Question: how does
//! a batch job that can die at any line know what it has charged?
//!
//! It does not: it sends everything again. The key of a line is made of what the line *is* (customer, invoice line, billing
//! period), so a second run says the same to the api, and the api charges nobody twice. The results file is for people; nothing is
//! read from it.

mod file;
mod key;
mod line;
mod progress;
mod results;
mod tally;
mod till;

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::{Args, builder::RangedU64ValueParser};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio_util::sync::CancellationToken;

use self::{file::Contents, line::Line, progress::Progress, results::Results, tally::Tally, till::Till};
use crate::config::unless_empty;

/// So many lines in a row without an outcome, and the api is in no state to go on with.
const UNKNOWN_IN_A_ROW_MAX: u32 = 10;

/// Charges each line of a file once, however often it is run.
#[derive(Clone, Args)]
pub struct ChargeRunArgs {
    /// A CSV file with the header `customer,invoice_line,billing_period,amount,currency,payment_method`: amounts in whole minor
    /// units (4299 is 42.99), periods as 2026-11.
    #[arg(value_name = "FILE.csv")]
    pub file: PathBuf,
    /// Check the file and show every key and the total. Nothing is sent and nothing written.
    #[arg(long)]
    pub dry_run: bool,
    // What the api admits of one customer is less than what it admits in all: more at once only meet 429s.
    /// Lines under way at once.
    #[arg(long, default_value_t = 8, value_parser = RangedU64ValueParser::<usize>::new().range(1..=64))]
    pub at_once: usize,
    /// How long one line is tried before it is called unknown, in seconds.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub patience_s: u64,
    /// The data folder of the running demo that charges.
    #[arg(long, env = "CHECKOUT_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// The api that charges, instead of the running demo's; goes with --secret.
    #[arg(long, env = "CHECKOUT_API_URL")]
    pub api_url: Option<String>,
    /// What signs the customers' bearer tokens; goes with --api-url.
    #[arg(long, env = "CHECKOUT_SECRET", hide_env_values = true)]
    pub secret: Option<String>,
}

impl std::fmt::Debug for ChargeRunArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChargeRunArgs").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Where the charges go, and what speaks for the customers there.
#[derive(Clone)]
pub struct Api {
    pub url: String,
    pub secret: String,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Api {
    /// A data folder that was named wins over the environment. Half a pair is a mistake, not a wish.
    fn find(
        args: &ChargeRunArgs,
        find_demo: impl FnOnce(Option<&Path>) -> anyhow::Result<Self>,
    ) -> anyhow::Result<Self> {
        match (&args.data_dir, unless_empty(args.api_url.clone()), unless_empty(args.secret.clone())) {
            (None, Some(url), Some(secret)) => Ok(Self { url, secret }),
            (None, Some(_), None) => {
                anyhow::bail!("an api URL is given (CHECKOUT_API_URL, perhaps), but no secret: name it with --secret")
            }
            (None, None, Some(_)) => {
                anyhow::bail!("a secret is given (CHECKOUT_SECRET, perhaps), but no api: name it with --api-url")
            }
            (data_dir, ..) => find_demo(data_dir.as_deref()),
        }
    }
}

/// Success only when every line has a final answer and none was rejected.
pub async fn run(
    args: ChargeRunArgs,
    stop: CancellationToken,
    find_demo: impl FnOnce(Option<&Path>) -> anyhow::Result<Api>,
) -> anyhow::Result<ExitCode> {
    let contents = file::read(&args.file)?;
    if args.dry_run {
        return Ok(show(&contents));
    }
    let till = Till::new(&Api::find(&args, find_demo)?, args.patience_s, stop.clone())?;
    if let Some(first) = contents.lines.first() {
        till.ask_whether_open(first).await.context("nothing was sent")?;
    }
    let mut results = Results::create(&args.file).context("nothing was sent")?;
    let mut tally = Tally::default();
    for rejected in &contents.rejected {
        say(&rejected.sentence());
        tally.reject(rejected);
        results.reject(rejected)?;
    }
    let mut kept = charge(&contents.lines, &till, args.at_once, &stop, &mut tally, &mut results).await;
    for repeated in &contents.repeated {
        tally.repeat(&repeated.line);
        kept = kept.and_then(|()| results.repeat(repeated));
    }
    kept = kept.and_then(|()| results.finish());
    // Said in any case: money has moved, and a full disk does not undo it.
    say(&tally.to_string());
    say(&results.places());
    if let Some(advice) = tally.advice() {
        say(advice);
    }
    kept?;
    Ok(if tally.is_settled() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Sends every line, so many at once, until the end of the list or a reason to stop. A line under way is always waited for.
async fn charge(
    lines: &[Line],
    till: &Till,
    at_once: usize,
    stop: &CancellationToken,
    tally: &mut Tally,
    results: &mut Results,
) -> anyhow::Result<()> {
    let mut progress = Progress::new(lines.len());
    let mut left = lines.iter();
    let mut under_way = FuturesUnordered::new();
    let mut unknown_in_a_row = 0;
    let mut kept = Ok(());
    loop {
        while under_way.len() < at_once
            && !stop.is_cancelled()
            && unknown_in_a_row < UNKNOWN_IN_A_ROW_MAX
            && kept.is_ok()
        {
            let Some(line) = left.next() else { break };
            under_way.push(async move { (line, till.charge(line).await) });
        }
        let Some((line, end)) = under_way.next().await else { break };
        unknown_in_a_row = if end.is_unknown() { unknown_in_a_row + 1 } else { 0 };
        tally.count(line, &end);
        // What cannot be written down is still counted, and nothing further is sent.
        kept = kept.and(results.note(line, &end));
        progress.done(line, &end);
    }
    progress.end(stop.is_cancelled(), unknown_in_a_row >= UNKNOWN_IN_A_ROW_MAX);
    for line in left {
        tally.leave(line);
        kept = kept.and_then(|()| results.leave(line));
    }
    kept
}

/// `--dry-run`.
fn show(contents: &Contents) -> ExitCode {
    let mut tally = Tally::default();
    for line in &contents.lines {
        tally.leave(line);
        if !say(&format!("{}  {}  line {}  {line}", line.key(), line.amount, line.number)) {
            // Whoever read along has seen enough.
            return ExitCode::SUCCESS;
        }
    }
    for repeated in &contents.repeated {
        tally.repeat(&repeated.line);
        say(&repeated.sentence());
    }
    for rejected in &contents.rejected {
        tally.reject(rejected);
        say(&rejected.sentence());
    }
    say(&tally.to_string());
    if contents.rejected.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A line on stdout. False when nobody reads any more, which is no reason to stop charging.
fn say(line: &str) -> bool {
    writeln!(std::io::stdout(), "{line}").is_ok()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: ChargeRunArgs,
    }

    fn found(arguments: &[&str]) -> Result<(String, String), String> {
        let given = ["charge-run", "f.csv", "--secret=", "--api-url="];
        // The environment of whoever runs the tests must not decide: the empty ones above stand for it.
        let cli = Cli::command_line(given.iter().chain(arguments).copied());
        let demo = |folder: Option<&Path>| {
            let url = folder.map_or("usual".to_owned(), |folder| folder.display().to_string());
            Ok(Api { url, secret: "the demo's".to_owned() })
        };
        Api::find(&cli.args, demo).map(|api| (api.url, api.secret)).map_err(|error| error.to_string())
    }

    impl Cli {
        fn command_line<'a>(given: impl Iterator<Item = &'a str>) -> Self {
            use clap::{CommandFactory, FromArgMatches};
            let command = Self::command().args_override_self(true);
            Self::from_arg_matches(&command.get_matches_from(given)).unwrap()
        }
    }

    #[test]
    fn an_api_goes_with_its_secret_and_a_named_folder_wins() {
        let pair = |url: &str, secret: &str| Ok((url.to_owned(), secret.to_owned()));
        assert_eq!(found(&["--api-url=http://a", "--secret=s"]), pair("http://a", "s"));
        assert_eq!(found(&["--data-dir=/d", "--api-url=http://a", "--secret=s"]), pair("/d", "the demo's"));
        assert!(found(&["--secret=s"]).unwrap_err().contains("--api-url"));
        assert!(found(&["--api-url=http://a"]).unwrap_err().contains("--secret"));
    }
}
