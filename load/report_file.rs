//! `load report`: the page of a run that was kept. Question: what did it look like, last week?

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use crate::{found::Compared, page};

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// What `--json` of `load run` or `load compare` wrote.
    found: PathBuf,
    /// Where the page goes.
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    out: PathBuf,
}

pub(crate) fn report(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let text = std::fs::read(&args.found).with_context(|| format!("cannot read {}", args.found.display()))?;
    let found: Compared = serde_json::from_slice(&text)
        .with_context(|| format!("{} is not what load run or load compare writes", args.found.display()))?;
    write_page(&args.out, &found)?;
    println!("{}", args.out.display());
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn write_page(file: &Path, found: &Compared) -> anyhow::Result<()> {
    let page = page::render(found).context("the report")?;
    std::fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))
}

/// What `--json` asks for.
pub(crate) fn write_json(file: &Path, found: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(found)?;
    std::fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))
}
