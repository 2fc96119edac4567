//! The other list: what did the gateway give back that our books do not explain?
//!
//! What went back cannot be undone, so nothing is done about it here but what is certain to be right: a key that is still open is
//! woken, since recovery finishes it with this very refund; a refund of ours that has ended otherwise is looked at again; and
//! the rest is named, once, for a person. Its client may still come back with its key, and is answered by it: then it is explained.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, bail};
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::{
    Judged, OVERLAP_S, PAGE_TIME_MAX, PAGES_MAX, PENDING_MAX_S, Reconciled, Reconciler, next_page, our_digest,
};
use crate::{
    charges, database,
    gateway::{RefundStatus, RefundsListed, ShownRefund},
    idempotency::{
        claim_store, decide,
        key::ScopeDigest,
        record::State as RecordState,
        store::{self, Newest},
    },
    reconciliation::{self, Kind, List, Progress, State, UnexplainedRefund, refund_store as findings},
    refunds::store::{self as refunds, Known},
};

/// Findings that one round looks at again.
const LOOKED_AT_MAX: i64 = 200;

impl Reconciler {
    /// Reads on in the gateway's list of refunds, as in that of its payments.
    pub(super) async fn read_refunds(&mut self, round: &mut Reconciled) -> anyhow::Result<()> {
        let mut progress = self.begin_window(List::Refunds).await?;
        for _ in 0..PAGES_MAX {
            let Some(window) = progress.window.clone() else { break };
            if !self.is_our_turn().await? {
                break;
            }
            let since_s = (progress.reached_s - OVERLAP_S).max(0);
            let after = window.after_id.as_deref();
            let (page, has_more) = match self.gateway.list_refunds(since_s, window.until_s, after, PAGE_TIME_MAX).await
            {
                RefundsListed::Page { refunds, has_more } => (refunds, has_more),
                RefundsListed::Unreachable { why } => bail!("the gateway's list of refunds cannot be read: {why}"),
            };
            round.refunds_listed += page.len();
            let next = next_page(&progress, &window, page.last().map(|refund| refund.gateway_id.clone()), has_more);
            match self.note_refunds(&page, &progress, &next).await? {
                Some(new_findings) => round.new_refund_findings += new_findings,
                // Another reconciler reads on from here.
                None => break,
            }
            progress = next;
        }
        round.more |= progress.window.is_some();
        Ok(())
    }

    /// Judges a page, and in one transaction writes down what was found and how far we are. `None`: somebody else was here.
    async fn note_refunds(
        &self,
        page: &[ShownRefund],
        from: &Progress,
        to: &Progress,
    ) -> anyhow::Result<Option<usize>> {
        let mut tx = database::begin(&self.pool).await?;
        let books = Books::of(&mut tx, page).await.context("reading our books")?;
        let (mut found, mut ended) = (Vec::new(), Vec::new());
        for refund in page {
            if books.has_ended_otherwise(refund) {
                ended.push(&*refund.gateway_id);
            }
            let late = books.newest.now.unix_timestamp() - refund.created_s > PENDING_MAX_S;
            match books.judge_shown(refund) {
                Judged::Explained => {}
                Judged::Pending if !late => {}
                Judged::Pending => found.push(finding(refund, Kind::Pending)?),
                Judged::Unexplained(kind) => found.push(finding(refund, kind)?),
            }
        }
        if !ended.is_empty() {
            refunds::look_now_at(&mut tx, &ended).await.context("waking the look at refunds")?;
        }
        let new = if found.is_empty() {
            HashSet::new()
        } else {
            findings::insert(&mut tx, &found).await.context("writing findings down")?
        };
        found.retain(|finding| new.contains(&finding.refund_id));
        wake(&mut tx, &books, &found).await?;
        if !reconciliation::store::advance(&mut tx, List::Refunds, from, to).await? {
            tx.rollback().await?;
            return Ok(None);
        }
        tx.commit().await?;
        found.iter().for_each(announce);
        Ok(Some(new.len()))
    }

    /// Looks again at what was found: a client that came back, or a person, may have explained it.
    pub(super) async fn settle_refund_findings(&mut self, round: &mut Reconciled) -> anyhow::Result<()> {
        let mut connection = self.pool.acquire().await.context("no database connection")?;
        let open = findings::to_do(&mut connection, LOOKED_AT_MAX).await.context("reading findings")?;
        drop(connection);
        for mut finding in open {
            let Some((_, digest)) = &finding.key else { continue };
            let digest = ScopeDigest(*digest);
            let mut tx = database::begin(&self.pool).await?;
            let intents: Vec<&str> = finding.payment_intent.as_deref().into_iter().collect();
            let books = Books::read(&mut tx, &[&finding.refund_id], &[digest], &intents).await?;
            match books.judge(&finding.refund_id, Some(digest)) {
                Judged::Explained => finding.state = State::Explained,
                Judged::Unexplained(kind) => finding.kind = kind,
                Judged::Pending => {}
            }
            findings::update(&mut tx, &finding).await.context("writing down how a finding stands")?;
            tx.commit().await?;
            if finding.state == State::Explained {
                round.refunds_explained += 1;
                tracing::info!(refund = finding.refund_id, "a row of ours explains this refund after all");
            }
        }
        Ok(())
    }
}

/// Our rows about some refunds of the gateway's, as of one moment.
struct Books {
    newest: Newest,
    /// By the gateway's name.
    named: HashMap<String, Known>,
    by_key: HashMap<[u8; 32], Known>,
    /// Payments that are a charge of ours.
    charged: HashSet<String>,
    /// Payments that reconciliation gives back.
    given_back: HashSet<String>,
}

impl Books {
    async fn of(tx: &mut PgConnection, page: &[ShownRefund]) -> sqlx::Result<Self> {
        let ids: Vec<&str> = page.iter().map(|refund| &*refund.gateway_id).collect();
        let digests: Vec<ScopeDigest> = page.iter().filter_map(|r| our_digest(r.checkout_key.as_deref())).collect();
        let intents: Vec<&str> = page.iter().filter_map(|refund| refund.payment_intent.as_deref()).collect();
        Self::read(tx, &ids, &digests, &intents).await
    }

    async fn read(
        tx: &mut PgConnection,
        ids: &[&str],
        digests: &[ScopeDigest],
        intents: &[&str],
    ) -> sqlx::Result<Self> {
        let raw: Vec<[u8; 32]> = digests.iter().map(|digest| digest.0).collect();
        // The records first: a refund that is settled in between is then seen with its record open, or with itself.
        let newest = store::newest(&mut *tx, digests).await?;
        let by_key = refunds::known_by_key(&mut *tx, &raw).await?;
        let named = refunds::known_by_name(&mut *tx, ids).await?;
        let charged = charges::store::naming(&mut *tx, intents).await?;
        let given_back = findings::given_back(tx, intents).await?;
        Ok(Self { newest, named, by_key, charged, given_back })
    }

    /// Is a refund of ours no longer what we believe it to be?
    fn has_ended_otherwise(&self, refund: &ShownRefund) -> bool {
        match (self.named.get(&refund.gateway_id), refund.status) {
            (Some(Known::GivenBack { pending }), RefundStatus::Succeeded) => *pending,
            (Some(Known::GivenBack { .. }), RefundStatus::Failed) => true,
            _ => false,
        }
    }

    fn judge_shown(&self, refund: &ShownRefund) -> Judged {
        // Nothing went back by it, and nothing will by itself.
        if !refund.status.gives_back() {
            return Judged::Explained;
        }
        let intent = refund.payment_intent.as_deref().unwrap_or_default();
        if is_of_reconciliation(refund) && (self.given_back.contains(intent) || !self.charged.contains(intent)) {
            return Judged::Explained;
        }
        self.judge(&refund.gateway_id, our_digest(refund.checkout_key.as_deref()))
    }

    fn judge(&self, refund_id: &str, digest: Option<ScopeDigest>) -> Judged {
        if self.named.contains_key(refund_id) {
            return Judged::Explained;
        }
        let Some(digest) = digest else { return Judged::Unexplained(Kind::Foreign) };
        let known = self.by_key.get(&digest.0);
        if matches!(known, Some(Known::GivenBack { .. } | Known::Failed)) {
            return Judged::Unexplained(Kind::Surplus);
        }
        match self.newest.records.get(&digest) {
            // Given back unsent, says the record; the gateway knows better. Nobody is at work on it.
            Some(record) if decide::is_released(record, self.newest.now) => {}
            Some(record) => match record.holding.state() {
                RecordState::InFlight | RecordState::Unknown | RecordState::NeedsReview | RecordState::Completed => {
                    return Judged::Pending;
                }
                RecordState::Failed => return Judged::Unexplained(Kind::OrphanRefused),
            },
            None => {}
        }
        // A refusal outlives its record.
        let refused = matches!(known, Some(Known::Refused));
        Judged::Unexplained(if refused { Kind::OrphanRefused } else { Kind::OrphanUnknown })
    }
}

/// Made to give back a payment that no row of ours explained.
fn is_of_reconciliation(refund: &ShownRefund) -> bool {
    let paid_back = refund.checkout_key.as_deref().and_then(|key| key.strip_prefix("chr_"));
    paid_back.is_some() && paid_back == refund.payment_intent.as_deref()
}

fn finding(refund: &ShownRefund, kind: Kind) -> anyhow::Result<UnexplainedRefund> {
    // A foreign refund may carry a key that is none of ours.
    let digest = our_digest(refund.checkout_key.as_deref());
    Ok(UnexplainedRefund {
        refund_id: refund.gateway_id.clone(),
        payment_intent: refund.payment_intent.clone(),
        kind,
        key: refund.checkout_key.clone().zip(digest.map(|digest| digest.0)),
        amount_minor: refund.amount,
        currency: refund.currency.clone(),
        created_at: OffsetDateTime::from_unix_timestamp(refund.created_s).context("an impossible date")?,
        state: State::Open,
    })
}

/// A key that is still open so late, and money that went back under it: recovery asks for that by its key.
async fn wake(tx: &mut PgConnection, books: &Books, new: &[UnexplainedRefund]) -> anyhow::Result<()> {
    let pending = new.iter().filter(|finding| finding.kind == Kind::Pending);
    let mut digests: Vec<ScopeDigest> = pending.filter_map(|found| Some(ScopeDigest(found.key.as_ref()?.1))).collect();
    digests.sort_unstable();
    digests.dedup();
    let seen: Vec<_> = digests.iter().filter_map(|digest| Some((*digest, books.newest.records.get(digest)?))).collect();
    if !seen.is_empty() {
        claim_store::wake(tx, &seen).await.context("waking recovery")?;
    }
    Ok(())
}

fn announce(finding: &UnexplainedRefund) {
    let UnexplainedRefund { refund_id, amount_minor, currency, .. } = finding;
    let (kind, gateway_key) = (finding.kind.name(), finding.key.as_ref().map_or("none of ours", |(key, _)| key));
    if finding.kind == Kind::Pending {
        tracing::warn!(refund_id, gateway_key, "a refund at the gateway is pending for long");
    } else {
        tracing::error!(
            refund_id,
            kind,
            gateway_key,
            amount_minor,
            currency,
            "ALARM: the gateway gave money back that our books do not explain"
        );
    }
}
