//! `checkout verify`: the audit for people and scripts. Exit 0: clean; 1: anomalies; 2: could not look.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::Args;
use sqlx::{ConnectOptions as _, postgres::PgPoolOptions};

use super::{AuditOptions, Report, run};
use crate::config::unless_empty;

/// `checkout verify`: asks the database and the gateway whether every promise was kept.
#[derive(Debug, Clone, Args)]
pub struct VerifyArgs {
    /// Print the report as JSON.
    #[arg(long)]
    pub json: bool,
    /// The data folder of the running demo to judge. Without it and without the two URLs: the demo's usual one.
    #[arg(long, env = "CHECKOUT_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// The checkout's database; goes with --gateway-url.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// The gateway whose ledger is compared; goes with --database-url.
    #[arg(long, env = "CHECKOUT_GATEWAY_URL")]
    pub gateway_url: Option<String>,
    /// How long a key that is due may wait before it counts as stuck, in seconds.
    #[arg(long, default_value_t = 60)]
    pub grace_s: u64,
}

/// Where a checkout is to be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub database_url: String,
    pub gateway_url: String,
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
    let place = Place::find(args.data_dir.as_deref(), &args.database_url, &args.gateway_url, find_demo)?;
    let options = crate::database::probe(&place.database_url).await?;
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(Duration::from_secs(5))
        // Whole tables are read: that a statement takes a second is no news here.
        .connect_with(options.application_name("checkout verify").disable_statement_logging())
        .await
        .context("cannot connect to the database")?;
    let report = run(&pool, &place.gateway_url, AuditOptions { grace: Duration::from_secs(args.grace_s) }).await?;
    let printed = if args.json { serde_json::to_string_pretty(&report)? } else { report.to_string() };
    Ok((report, printed))
}

impl Place {
    /// A data folder that was named wins over the environment. A database URL alone is the running demo's own, or half a pair:
    /// a mistake, not a wish.
    pub fn find(
        data_dir: Option<&Path>,
        database_url: &Option<String>,
        gateway_url: &Option<String>,
        find_demo: impl FnOnce(Option<&Path>) -> anyhow::Result<Self>,
    ) -> anyhow::Result<Self> {
        match (data_dir, unless_empty(database_url.clone()), unless_empty(gateway_url.clone())) {
            (Some(data_dir), ..) => find_demo(Some(data_dir)),
            (None, Some(database_url), Some(gateway_url)) => Ok(Self { database_url, gateway_url }),
            (None, None, None) => find_demo(None),
            (None, Some(database_url), None) => match find_demo(None) {
                Ok(demo) if demo.database_url == database_url => Ok(demo),
                Ok(_) => anyhow::bail!(
                    "a database URL is given (DATABASE_URL, perhaps), and the running demo uses another database: \
                     name the gateway with --gateway-url, or unset DATABASE_URL to judge the demo"
                ),
                Err(error) => Err(error.context(
                    "a database URL is given (DATABASE_URL, perhaps), but no gateway: name it with --gateway-url",
                )),
            },
            (None, None, Some(_)) => anyhow::bail!(
                "a gateway URL is given (CHECKOUT_GATEWAY_URL, perhaps), but no database: name it with --database-url"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(data_dir: Option<&str>, database_url: Option<&str>, gateway_url: Option<&str>) -> VerifyArgs {
        VerifyArgs {
            json: false,
            data_dir: data_dir.map(PathBuf::from),
            database_url: database_url.map(str::to_owned),
            gateway_url: gateway_url.map(str::to_owned),
            grace_s: 60,
        }
    }

    fn demo(data_dir: Option<&Path>) -> anyhow::Result<Place> {
        let name = data_dir.map_or("usual".to_owned(), |dir| dir.display().to_string());
        Ok(Place { database_url: name.clone(), gateway_url: name })
    }

    fn database(args: VerifyArgs) -> Option<String> {
        Place::find(args.data_dir.as_deref(), &args.database_url, &args.gateway_url, demo)
            .ok()
            .map(|place| place.database_url)
    }

    #[test]
    fn a_named_folder_wins_over_urls_and_half_a_pair_of_urls_is_refused_unless_it_is_the_demos() {
        assert_eq!(database(args(None, Some("usual"), None)), Some("usual".to_owned()));
        assert_eq!(database(args(None, Some(""), Some(""))), Some("usual".to_owned()));
        assert_eq!(database(args(Some("/data"), Some("db"), None)), Some("/data".to_owned()));
        assert_eq!(database(args(None, Some("db"), Some("gateway"))), Some("db".to_owned()));
        assert_eq!(database(args(None, None, None)), Some("usual".to_owned()));
        assert_eq!(database(args(None, Some("db"), None)), None);
        assert_eq!(database(args(None, None, Some("gateway"))), None);
    }
}
