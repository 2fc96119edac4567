//! The audit: is every promise kept, by the database and by the gateway's own ledger?
//!
//! It believes neither the api nor its answers. It asks the ledger what was captured, reads one snapshot of the database, and
//! names each contradiction as an [`Anomaly`]. It may run beside a busy checkout: the ledger is asked first, so whatever it
//! lists must be explained by the snapshot taken later, and a charge made after the question is not looked for in it.

mod anomaly;
mod ledger;
mod matching;
mod report;
mod store;
mod verify;

use std::time::Duration;

use anyhow::Context;
use sqlx::PgPool;

pub use self::{
    anomaly::{Among, Anomaly, Kind},
    ledger::{Capture, Ledger},
    report::{Counted, EXAMPLES_MAX, Report},
    verify::{Verdict, VerifyArgs, verify},
};
use self::{matching::Matching, report::Found};

/// What the audit has to allow for.
#[derive(Debug, Clone, Copy)]
pub struct AuditOptions {
    /// How long a retry or recovery may take to pick up a key that is due before it counts as stuck.
    pub grace: Duration,
}

impl Default for AuditOptions {
    /// A minute: recovery looks every second, and a deployment or a restart of the database takes less.
    fn default() -> Self {
        Self { grace: Duration::from_secs(60) }
    }
}

/// Asks the gateway for its ledger, then judges the database by it.
pub async fn run(pool: &PgPool, gateway_url: &str, options: AuditOptions) -> anyhow::Result<Report> {
    let ledger = Ledger::fetch(pool, gateway_url).await?;
    run_over(pool, &ledger, options).await
}

/// Judges the database by a ledger that was asked for before.
pub async fn run_over(pool: &PgPool, ledger: &Ledger, options: AuditOptions) -> anyhow::Result<Report> {
    let mut tx = store::snapshot(pool).await.context("opening a snapshot of the database")?;
    let mut found = Found::default();

    let counts = store::counts(&mut tx).await.context("counting")?;
    found.add(Kind::DuplicateOrder, store::duplicate_orders(&mut tx).await.context("looking for duplicate orders")?);
    found.add(Kind::DuplicateCharge, store::duplicate_charges(&mut tx).await.context("looking for duplicate charges")?);
    found.add(Kind::LostOrder, store::lost_orders(&mut tx).await.context("looking for lost orders")?);
    found.add(Kind::UnchargedOrder, store::uncharged_orders(&mut tx).await.context("looking for uncharged orders")?);
    found.add(Kind::UnrecordedOrder, store::unrecorded_orders(&mut tx).await.context("looking for unrecorded orders")?);
    found.add(Kind::StuckKey, store::stuck_keys(&mut tx, options.grace).await.context("looking for stuck keys")?);
    found.add(Kind::AmountMismatch, store::mismatched_orders(&mut tx).await.context("comparing amounts")?);
    found.add(Kind::MissingEvent, store::missing_events(&mut tx).await.context("looking for missing events")?);
    found.add(
        Kind::EventWithoutOrder,
        store::events_without_order(&mut tx).await.context("looking for events without order")?,
    );

    let mut matching = Matching::new(ledger);
    store::each_succeeded_charge(&mut tx, |charge| matching.charge(&charge, &mut found))
        .await
        .context("reading charges")?;
    let known = store::known_keys(&mut tx, &matching.unexplained_keys()).await.context("reading records")?;
    let pending = matching.finish(&known, &mut found);

    tx.rollback().await.context("closing the snapshot")?;
    Ok(Report::new(found, counts.with_ledger(ledger.captures.len(), pending)))
}
