//! `checkout parked`: the events that wait for a person, and the word that sends them on.

use std::{path::Path, str::FromStr};

use anyhow::{Context, ensure};
use clap::Args;

use crate::{
    config::DatabaseArgs,
    database,
    ids::EventId,
    parking::{self, Waiting},
    place::{DatabasePlaceArgs, Place},
};

/// Events that one listing shows.
const LISTED_MAX: i64 = 100;

/// Without `--redrive`: lists what is parked. With it: has it tried again, each aggregate's events in their order.
#[derive(Debug, Clone, Args)]
pub struct ParkedArgs {
    /// Send this event on, by its id from the listing, or `all`.
    #[arg(long, value_name = "EVENT_ID|all")]
    pub redrive: Option<Which>,
    /// Only at this stage.
    #[arg(long, value_parser = ["relay", "ledger", "receipts"])]
    pub stage: Option<String>,
    #[command(flatten)]
    pub place: DatabasePlaceArgs,
}

/// Which parked events to send on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    All,
    One(EventId),
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            id => id.parse().map(Self::One).map_err(|_| "neither an event id nor `all`".to_owned()),
        }
    }
}

/// Lists or sends on. `find_demo` reads where the demo of a data folder, or of the usual one, is running.
pub async fn parked(
    args: ParkedArgs,
    find_demo: impl FnOnce(Option<&Path>) -> anyhow::Result<Place>,
) -> anyhow::Result<()> {
    let database_url = args.place.database_url(find_demo)?;
    let database = DatabaseArgs { database_url, connections: 1, batch_limit: 1, batch_lanes: 1 };
    let pool = database::connect(&database, "checkout parked").await?;
    let stage = args.stage.as_deref();
    let Some(which) = args.redrive else {
        let mut connection = pool.acquire().await.context("no database connection")?;
        list(&parking::store::waiting(&mut connection, stage, LISTED_MAX).await.context("reading parked events")?);
        return Ok(());
    };
    let event = match which {
        Which::All => None,
        Which::One(event) => Some(event),
    };
    let redriven = parking::redrive(&pool, stage, event).await?;
    ensure!(redriven > 0 || event.is_none(), "no such event is parked; `checkout parked` lists those that are");
    println!("{redriven} sent on; a worker tries them now, and what fails once more is parked again after its tries");
    Ok(())
}

fn list(waiting: &[Waiting]) {
    for Waiting { first, behind } in waiting {
        let event = &first.event;
        println!(
            "{}  at {}  {} {} about {}  since {}  {} failures, {behind} behind it: {}",
            event.id,
            first.stage,
            event.kind,
            event.sequence,
            event.aggregate,
            first.held_since,
            first.attempts,
            printable(first.error.as_deref().unwrap_or_default()),
        );
    }
    match waiting.len() {
        0 => println!("no event is parked"),
        some => println!("{some} parked; repair the cause, then send them on with --redrive EVENT_ID or --redrive all"),
    }
}

/// What another company said may hold anything: no control character of it reaches a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
