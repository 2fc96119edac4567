//! The audit: is every promise kept, by the database and by the gateway's own ledger?
//!
//! It believes neither the api nor its answers, nor the worker. It asks the gateway what was captured and the mail service what
//! was delivered, reads one snapshot of the database, and names each contradiction as an [`Anomaly`].
//!
//! It may run beside a busy checkout. The other companies are asked first, so whatever they list must be explained by the
//! snapshot taken later, and what we booked after the question is not looked for in their lists ([`Ledger`], [`Mails`]). An
//! event on its way is judged when it has had time to arrive ([`AuditOptions`]).

mod anomaly;
mod balance;
mod ledger;
mod listing;
mod mails;
mod matching;
mod report;
mod store;
mod verify;

use std::time::Duration;

use anyhow::Context;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

pub use self::{
    anomaly::{Among, Anomaly, Kind},
    ledger::{Capture, Ledger},
    mails::{Mail, Mails},
    report::{Counted, EXAMPLES_MAX, Report},
    verify::{Verdict, VerifyArgs, verify},
};
use self::{
    mails::{Mailbox, name_confirmed_twice},
    matching::Matching,
    report::{Found, Leftover},
};

/// What the audit has to allow for.
#[derive(Debug, Clone, Copy)]
pub struct AuditOptions {
    /// How long a retry or recovery may take to pick up a key that is due before it counts as stuck, and reconciliation to send
    /// a refund again before its money counts as nobody's.
    pub grace: Duration,
    /// How long an event may take to each of its next stations before it counts as lost.
    pub event_grace: Duration,
}

impl Default for AuditOptions {
    /// A minute: recovery looks every second, events travel in less, and a deployment or a restart of the database takes less.
    fn default() -> Self {
        Self { grace: Duration::from_secs(60), event_grace: Duration::from_secs(60) }
    }
}

/// Asks the gateway for its ledger and the mail service for its list, then judges the database by them. Without a mail service
/// no mail is judged, and the report says so.
pub async fn run(
    pool: &PgPool,
    gateway_url: &str,
    mail_url: Option<&str>,
    options: AuditOptions,
) -> anyhow::Result<Report> {
    let ledger = Ledger::fetch(pool, gateway_url).await?;
    let mails = match mail_url {
        Some(mail_url) => Some(Mails::fetch(pool, mail_url).await?),
        None => None,
    };
    run_over(pool, &ledger, mails.as_ref(), options).await
}

/// Judges the database by lists that were asked for before.
pub async fn run_over(
    pool: &PgPool,
    ledger: &Ledger,
    mails: Option<&Mails>,
    options: AuditOptions,
) -> anyhow::Result<Report> {
    let mut tx = store::snapshot(pool).await.context("opening a snapshot of the database")?;
    let mut found = Found::default();
    let mut counted = store::counts(&mut tx).await.context("counting")?;
    counted.mails = mails.map(|mails| mails.mails.len() as u64);
    judge_purchases(&mut tx, options, &mut found).await?;
    let leftover = judge_captures(&mut tx, ledger, options, &mut found).await?;
    judge_events(&mut tx, mails.is_some(), options, &mut found).await?;
    if let Some(mails) = mails {
        judge_mails(&mut tx, mails, &mut found).await?;
    }
    tx.rollback().await.context("closing the snapshot")?;
    Ok(Report::new(found, counted.with_ledger(ledger.captures.len(), leftover)))
}

/// Orders, charges, refunds and records among themselves.
async fn judge_purchases(tx: &mut PgConnection, options: AuditOptions, found: &mut Found) -> anyhow::Result<()> {
    use store::{charges, keys, orders, refunds};
    let AuditOptions { grace, .. } = options;
    found.add(Kind::DuplicateOrder, orders::duplicate_orders(tx).await.context("looking for duplicate orders")?);
    found.add(Kind::DuplicateCharge, charges::duplicate_charges(tx).await.context("looking for duplicate charges")?);
    found.add(Kind::LostOrder, orders::lost_orders(tx).await.context("looking for lost orders")?);
    found.add(Kind::LostCharge, charges::lost_charges(tx).await.context("looking for lost charges")?);
    found.add(Kind::LostRefund, refunds::lost_refunds(tx).await.context("looking for lost refunds")?);
    found.add(Kind::UnchargedOrder, orders::uncharged_orders(tx).await.context("looking for uncharged orders")?);
    found.add(Kind::UnrecordedOrder, orders::unrecorded_orders(tx).await.context("looking for unrecorded orders")?);
    found.add(Kind::StuckKey, keys::stuck_keys(tx, grace).await.context("looking for stuck keys")?);
    let late = keys::unresolved_past_deadline(tx, grace).await.context("looking for keys past their deadline")?;
    found.add(Kind::UnresolvedPastDeadline, late);
    found.add(Kind::AmountMismatch, orders::mismatched_orders(tx).await.context("comparing amounts")?);
    found.add(Kind::RefundMismatch, refunds::mismatched_refunds(tx).await.context("comparing refunds")?);
    Ok(())
}

/// Our charges, what went back of them, and our ledger against the gateway's.
async fn judge_captures(
    tx: &mut PgConnection,
    ledger: &Ledger,
    options: AuditOptions,
    found: &mut Found,
) -> anyhow::Result<Leftover> {
    let going_back = store::findings::going_back(tx, options.grace, ledger.asked_at);
    let mut matching = Matching::new(ledger, going_back.await.context("reading findings")?);
    store::charges::each_succeeded_charge(tx, ledger.asked_at, |charge| matching.charge(&charge, found))
        .await
        .context("reading charges")?;
    for nobody in store::effects::entries_of_nobody(tx).await.context("looking for entries of nobody")? {
        matching.balance.add_of_nobody(&nobody.currency, nobody.booked_minor, nobody.aggregates);
    }
    std::mem::take(&mut matching.balance).judge(found);
    let known = store::keys::known_keys(tx, &matching.unexplained_keys()).await.context("reading records")?;
    Ok(matching.finish(&known, found))
}

/// What followed from orders, charges that stand alone, and refunds.
async fn judge_events(
    tx: &mut PgConnection,
    mails_are_read: bool,
    options: AuditOptions,
    found: &mut Found,
) -> anyhow::Result<()> {
    use store::{effects, events};
    let AuditOptions { event_grace: grace, .. } = options;
    let kept = store::kept(tx).await.context("looking which days are kept")?;
    found.add(Kind::MissingEvent, events::missing_events(tx, &kept).await.context("looking for missing events")?);
    found.add(
        Kind::EventWithoutOrder,
        events::events_without_order(tx).await.context("looking for events of what is not there")?,
    );
    found.add(Kind::LostEvent, events::lost_events(tx, grace, &kept).await.context("looking for lost events")?);
    let repeated = effects::repeated_effects(tx, mails_are_read).await.context("looking for repeated effects")?;
    found.add(Kind::RepeatedEffect, repeated);
    found.add(Kind::OutOfOrder, events::out_of_order(tx).await.context("looking at the order of events")?);
    found.add(Kind::UnbalancedLedger, effects::unbalanced_entries(tx).await.context("adding up the ledger")?);
    let unsent = effects::unsent_receipts(tx, grace, &kept).await.context("looking for unsent receipts")?;
    found.add(Kind::UnsentReceipt, unsent);
    found.add(Kind::Parked, events::parked_events(tx).await.context("looking for parked events")?);
    Ok(())
}

/// Our receipts against the mail service's list.
async fn judge_mails(tx: &mut PgConnection, mails: &Mails, found: &mut Found) -> anyhow::Result<()> {
    let mailbox = Mailbox::new(mails);
    store::effects::each_receipt(tx, |receipt| mailbox.receipt(&receipt, found)).await.context("reading receipts")?;
    mailbox.name_repeated(found);
    let several = mailbox.with_several();
    let events: Vec<Uuid> = several.values().flatten().copied().collect();
    let once = store::events::only_once(tx, &events).await.context("asking what events were about")?;
    name_confirmed_twice(&several, &once, found);
    Ok(())
}
