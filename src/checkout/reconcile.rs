//! Reconciliation: what does the gateway hold that our books do not explain, and may it go back?
//!
//! Its list is read from where the last round stopped; each payment that holds money is looked up in our rows, in batches. What
//! no row explains is a finding: named once, looked at again every round, and given back where that is certain to be right.
//! Recovery looks from our records to the gateway; this looks the other way, and so it also sees what a restored backup forgot.

mod give_back;
mod refunds;

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use anyhow::{Context, bail};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::frozen::key_digest;
use crate::{
    charges::{self, store::Booked},
    database,
    gateway::{Listed, ListedIntent, client::GatewayClient},
    idempotency::{
        claim_store, decide,
        key::ScopeDigest,
        record::State as RecordState,
        store::{self, Newest},
    },
    leases::Leases,
    reconciliation::{self, Finding, Kind, List, Progress, UnexplainedRefund, Window, store::NewFinding},
};

/// How far each window reaches back into the one before, for a gateway's clock that is behind ours. Not more than that: it is
/// read again every time, and at thousands of payments a second an hour of it would be millions.
const OVERLAP_S: i64 = 120;
/// What is still pending at this age is written down: the next window may not show it again.
const PENDING_MAX_S: i64 = OVERLAP_S / 2;
/// Pages of one round, of 100 payments each. The rest is the next round's, which follows at once.
const PAGES_MAX: usize = 200;
/// Longest wait for one page.
const PAGE_TIME_MAX: Duration = Duration::from_secs(10);

/// What one round came to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Reconciled {
    /// Payments of the gateway's list that were looked at.
    pub listed: usize,
    pub new_findings: usize,
    pub refunded: usize,
    pub explained: usize,
    /// Refunds of the gateway's list that were looked at.
    pub refunds_listed: usize,
    pub new_refund_findings: usize,
    pub refunds_explained: usize,
    /// More pages are waiting than one round reads.
    pub more: bool,
}

impl Reconciled {
    /// Was anything found, given back or explained?
    pub fn has_news(self) -> bool {
        self.new_findings + self.refunded + self.explained + self.new_refund_findings + self.refunds_explained > 0
    }
}

/// Compares the books.
#[derive(Debug)]
pub struct Reconciler {
    pub(super) pool: PgPool,
    pub(super) gateway: GatewayClient,
    /// What is younger may still be settling.
    grace: Duration,
    /// Without any: a round on demand. Two rounds at once repeat work, and nothing else.
    leases: Option<Leases>,
    /// Nothing more is asked of the gateway after it: at one that hangs, a round takes many times the longest wait.
    stop: CancellationToken,
}

impl Reconciler {
    pub fn new(
        pool: PgPool,
        gateway: GatewayClient,
        grace: Duration,
        leases: Option<Leases>,
        stop: CancellationToken,
    ) -> Self {
        Self { pool, gateway, grace, leases, stop }
    }

    /// Reads on in the gateway's list, then looks at every finding that needs somebody. `None`: it is another one's turn, or we are to stop.
    pub async fn round(&mut self) -> anyhow::Result<Option<Reconciled>> {
        let mut round = Reconciled::default();
        if !self.is_our_turn().await? {
            return Ok(None);
        }
        // A gateway that does not answer must not keep us from what was found before.
        let read = self.read_list(&mut round).await;
        self.settle_findings(&mut round).await?;
        let refunds_read = self.read_refunds(&mut round).await;
        self.settle_refund_findings(&mut round).await?;
        read?;
        refunds_read?;
        Ok(Some(round))
    }

    pub async fn stop(&mut self) -> anyhow::Result<()> {
        match &mut self.leases {
            Some(leases) => leases.release().await,
            None => Ok(()),
        }
    }

    pub(super) async fn is_our_turn(&mut self) -> anyhow::Result<bool> {
        match &mut self.leases {
            _ if self.stop.is_cancelled() => Ok(false),
            Some(leases) => Ok(!leases.current().await?.is_empty()),
            None => Ok(true),
        }
    }

    async fn read_list(&mut self, round: &mut Reconciled) -> anyhow::Result<()> {
        let mut progress = self.begin_window(List::Payments).await?;
        for _ in 0..PAGES_MAX {
            let Some(window) = progress.window.clone() else { break };
            if !self.is_our_turn().await? {
                break;
            }
            let since_s = (progress.reached_s - OVERLAP_S).max(0);
            let page = self.gateway.list(since_s, window.until_s, window.after_id.as_deref(), PAGE_TIME_MAX).await;
            let (intents, has_more) = match page {
                Listed::Page { intents, has_more } => (intents, has_more),
                Listed::Unreachable { why } => bail!("the gateway's list cannot be read: {why}"),
            };
            round.listed += intents.len();
            let next = next_page(&progress, &window, intents.last().map(|intent| intent.gateway_id.clone()), has_more);
            match self.note(&intents, &progress, &next).await? {
                Some(new_findings) => round.new_findings += new_findings,
                // Another reconciler reads on from here.
                None => break,
            }
            progress = next;
        }
        round.more |= progress.window.is_some();
        Ok(())
    }

    /// The window that was left half way, or the next one.
    async fn begin_window(&self, list: List) -> anyhow::Result<Progress> {
        let mut tx = database::begin(&self.pool).await?;
        let mut progress = reconciliation::store::progress(&mut tx, list).await.context("reading the progress")?;
        tx.rollback().await?;
        if progress.window.is_none() {
            let now = database::clock(&self.pool).await?;
            let until_s = now.unix_timestamp() - i64::try_from(self.grace.as_secs())?;
            // A clock that was set back: nothing is missed by waiting for it.
            if until_s > progress.reached_s {
                let begun = Progress { window: Some(Window { until_s, after_id: None }), ..progress.clone() };
                let mut tx = database::begin(&self.pool).await?;
                let moved = reconciliation::store::advance(&mut tx, list, &progress, &begun).await?;
                tx.commit().await?;
                if moved {
                    progress = begun;
                }
            }
        }
        Ok(progress)
    }

    /// Judges a page, and in one transaction writes down what was found and how far we are. `None`: somebody else was here.
    async fn note(&self, intents: &[ListedIntent], from: &Progress, to: &Progress) -> anyhow::Result<Option<usize>> {
        let holding: Vec<&ListedIntent> = intents.iter().filter(|intent| holds_money(intent)).collect();
        let mut tx = database::begin(&self.pool).await?;
        let asked: Vec<(&str, Option<ScopeDigest>)> =
            holding.iter().map(|intent| (&*intent.gateway_id, our_digest(intent.checkout_key.as_deref()))).collect();
        let books = Books::read(&mut tx, &asked).await.context("reading our books")?;
        let mut found = Vec::new();
        for intent in &holding {
            let digest = our_digest(intent.checkout_key.as_deref());
            let created_at = OffsetDateTime::from_unix_timestamp(intent.created_s).context("an impossible date")?;
            let late = books.now.unix_timestamp() - intent.created_s > PENDING_MAX_S;
            let kind = match books.judge(&intent.gateway_id, digest) {
                Judged::Explained => continue,
                Judged::Pending if !late => continue,
                Judged::Pending => Kind::Pending,
                Judged::Unexplained(kind) => kind,
            };
            found.push(NewFinding {
                payment_intent: &intent.gateway_id,
                kind,
                key: intent.checkout_key.as_deref().zip(digest.map(|digest| digest.0)),
                amount_minor: intent.amount - intent.amount_refunded,
                currency: &intent.currency,
                created_at,
            });
        }
        // A foreign charge may carry a key that is none of ours.
        let new = if found.is_empty() {
            HashSet::new()
        } else {
            reconciliation::store::insert(&mut tx, &found).await.context("writing findings down")?
        };
        wake(&mut tx, &books, &found, &new).await?;
        if !reconciliation::store::advance(&mut tx, List::Payments, from, to).await? {
            tx.rollback().await?;
            return Ok(None);
        }
        tx.commit().await?;
        for finding in found.iter().filter(|finding| new.contains(finding.payment_intent)) {
            announce(finding);
        }
        Ok(Some(new.len()))
    }
}

/// Where the list is read on: behind the last of this page, or at the end of its window.
fn next_page(progress: &Progress, window: &Window, last: Option<String>, has_more: bool) -> Progress {
    match last.filter(|_| has_more) {
        Some(after_id) => Progress {
            reached_s: progress.reached_s,
            window: Some(Window { until_s: window.until_s, after_id: Some(after_id) }),
        },
        None => Progress { reached_s: window.until_s, window: None },
    }
}

/// A key that is still open so late, and money under it: recovery can ask for that by name now, and perhaps spare a person.
async fn wake(
    tx: &mut PgConnection,
    books: &Books,
    found: &[NewFinding<'_>],
    new: &HashSet<String>,
) -> anyhow::Result<()> {
    let pending = found.iter().filter(|finding| finding.kind == Kind::Pending && new.contains(finding.payment_intent));
    let mut digests: Vec<ScopeDigest> = pending.filter_map(|finding| Some(ScopeDigest(finding.key?.1))).collect();
    digests.sort_unstable();
    digests.dedup();
    let seen: Vec<_> = digests.iter().filter_map(|digest| Some((*digest, books.newest.records.get(digest)?))).collect();
    if !seen.is_empty() {
        claim_store::wake(tx, &seen).await.context("waking recovery")?;
    }
    Ok(())
}

fn announce(finding: &NewFinding<'_>) {
    let NewFinding { payment_intent, amount_minor, currency, .. } = *finding;
    let (kind, gateway_key) = (finding.kind.name(), finding.key.map_or("none of ours", |(key, _)| key));
    if finding.kind == Kind::Pending {
        tracing::warn!(payment_intent, gateway_key, "a charge at the gateway is pending for long");
    } else {
        tracing::error!(
            payment_intent,
            kind,
            gateway_key,
            amount_minor,
            currency,
            "ALARM: the gateway holds money that our books do not explain"
        );
    }
}

/// What was found, the newest first.
pub async fn findings(pool: &PgPool, most: i64) -> anyhow::Result<Vec<Finding>> {
    let mut connection = pool.acquire().await.context("no database connection")?;
    reconciliation::store::newest(&mut connection, most).await.context("reading findings")
}

/// What went back and is not explained, the newest first.
pub async fn refund_findings(pool: &PgPool, most: i64) -> anyhow::Result<Vec<UnexplainedRefund>> {
    let mut connection = pool.acquire().await.context("no database connection")?;
    reconciliation::refund_store::newest(&mut connection, most).await.context("reading findings")
}

/// Did it take money that is not all back?
fn holds_money(intent: &ListedIntent) -> bool {
    intent.status == "succeeded" && intent.amount_refunded < intent.amount
}

pub(super) fn our_digest(checkout_key: Option<&str>) -> Option<ScopeDigest> {
    checkout_key.and_then(key_digest)
}

/// What our rows say of a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judged {
    /// A succeeded charge of ours names it.
    Explained,
    /// Its key is open: whoever finishes that finds it.
    Pending,
    Unexplained(Kind),
}

/// Our rows about some payments, as of one moment.
#[derive(Debug)]
pub(super) struct Books {
    pub(super) now: OffsetDateTime,
    naming: HashSet<String>,
    booked: HashMap<[u8; 32], Booked>,
    newest: Newest,
}

impl Books {
    pub(super) async fn read(tx: &mut PgConnection, asked: &[(&str, Option<ScopeDigest>)]) -> sqlx::Result<Self> {
        let intents: Vec<&str> = asked.iter().map(|(intent, _)| *intent).collect();
        let digests: Vec<ScopeDigest> = asked.iter().filter_map(|(_, digest)| *digest).collect();
        let raw: Vec<[u8; 32]> = digests.iter().map(|digest| digest.0).collect();
        // The records first: a charge that is settled in between is then seen with its record open, or with itself.
        let newest = store::newest(tx, &digests).await?;
        let booked = charges::store::booked(tx, &raw).await?;
        let naming = charges::store::naming(tx, &intents).await?;
        Ok(Self { now: newest.now, naming, booked, newest })
    }

    pub(super) fn judge(&self, payment_intent: &str, digest: Option<ScopeDigest>) -> Judged {
        if self.naming.contains(payment_intent) {
            return Judged::Explained;
        }
        let Some(digest) = digest else { return Judged::Unexplained(Kind::Foreign) };
        let booked = self.booked.get(&digest.0).copied().unwrap_or_default();
        if booked.succeeded {
            return Judged::Unexplained(Kind::Surplus);
        }
        match self.newest.records.get(&digest) {
            // Released unsent, says the record; the gateway knows better. Nobody is at work on it.
            Some(record) if decide::is_released(record, self.newest.now) => {}
            Some(record) => match record.holding.state() {
                RecordState::InFlight | RecordState::Unknown | RecordState::NeedsReview => return Judged::Pending,
                // Settled in the moment between two of our looks, or an order without its charge: not to be touched.
                RecordState::Completed => return Judged::Pending,
                RecordState::Failed => return Judged::Unexplained(Kind::OrphanRefused),
            },
            None => {}
        }
        // A refusal outlives its record as a failed charge.
        Judged::Unexplained(if booked.declined { Kind::OrphanRefused } else { Kind::OrphanUnknown })
    }
}
