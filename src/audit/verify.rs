//! `checkout verify`: the audit for people and scripts. Exit 0: clean; 1: anomalies; 2: could not look.

use std::{path::Path, process::ExitCode, time::Duration};

use anyhow::Context;
use clap::Args;
use sqlx::{ConnectOptions as _, postgres::PgPoolOptions};

use super::{AuditOptions, Report, run};
use crate::place::{Place, PlaceArgs};

/// `checkout verify`: asks the database, the gateway and the mail service whether every promise was kept.
#[derive(Debug, Clone, Args)]
pub struct VerifyArgs {
    /// Print the report as JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub place: PlaceArgs,
    /// How long a key that is due may wait before it counts as stuck, and an event be on its way before it counts as lost, in
    /// seconds.
    #[arg(long, default_value_t = 60)]
    pub grace_s: u64,
}

/// How the audit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Clean,
    Anomalies,
    /// Nothing was proved either way.
    CouldNotLook,
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        Self::from(match verdict {
            Verdict::Clean => 0,
            Verdict::Anomalies => 1,
            Verdict::CouldNotLook => 2,
        })
    }
}

/// Runs the audit and prints its report to stdout. `find_demo` reads where the demo of a data folder (or of the usual one)
/// is running.
pub async fn verify(args: VerifyArgs, find_demo: impl FnOnce(Option<&Path>) -> anyhow::Result<Place>) -> Verdict {
    match look(&args, find_demo).await {
        Ok((report, printed)) => {
            println!("{printed}");
            if report.is_clean() { Verdict::Clean } else { Verdict::Anomalies }
        }
        Err(error) => {
            eprintln!("checkout verify: could not look: {}", crate::telemetry::one_line(&error));
            Verdict::CouldNotLook
        }
    }
}

async fn look(
    args: &VerifyArgs,
    find_demo: impl FnOnce(Option<&Path>) -> anyhow::Result<Place>,
) -> anyhow::Result<(Report, String)> {
    let place = Place::find(&args.place, find_demo)?;
    let options = crate::database::probe(&place.database_url).await?;
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(Duration::from_secs(5))
        // Whole tables are read: that a statement takes a second is no news here.
        .connect_with(options.application_name("checkout verify").disable_statement_logging())
        .await
        .context("cannot connect to the database")?;
    let grace = Duration::from_secs(args.grace_s);
    let options = AuditOptions { grace, event_grace: grace };
    let report = run(&pool, &place.gateway_url, place.mail_url.as_deref(), options).await?;
    let printed = if args.json { serde_json::to_string_pretty(&report)? } else { report.to_string() };
    Ok((report, printed))
}
