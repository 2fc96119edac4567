//! What becomes of a finding: explained after all, given back, or left for a person?
//!
//! A refund is decided and committed under the lock of its key, after one more look at our books, and only then sent. A claim
//! takes the same lock first: either it was here before, and then the key is open and nothing is given back, or it comes later,
//! and finds that this charge pays for nothing any more. Who dies between two of these steps is followed by somebody who sends
//! the same refund under the same key.

use std::time::Duration;

use anyhow::Context;

use super::{Books, Judged, Reconciled, Reconciler, our_digest};
use crate::{
    crash_point::crash_point,
    database,
    gateway::{ALREADY_REFUNDED, Outcome, RefundRequest},
    idempotency::store,
    money::{Currency, Money},
    reconciliation::{self, Finding, Kind, State},
};

/// Findings that one round looks at.
const LOOKED_AT_MAX: i64 = 200;
/// Longest wait for one refund.
const REFUND_TIME_MAX: Duration = Duration::from_secs(6);

/// How long after its creation a charge that no row of ours knows is left alone.
///
/// Its client may still come back with its key. While the gateway remembers that key (24 hours) it answers the repetition with
/// this very charge, and the order is rebuilt around it: giving the money back meanwhile would leave an order unpaid. Afterwards
/// the gateway would charge anew, so nobody can be waiting for this one. The hour more than a day is for two clocks that differ:
/// `created` is the gateway's, now is the database's.
const FORGOTTEN_AFTER: time::Duration = time::Duration::hours(25);

/// What to do with a finding, once our books were read again.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Refund(RefundRequest),
    Leave,
    Explained,
}

impl Reconciler {
    pub(super) async fn settle_findings(&mut self, round: &mut Reconciled) -> anyhow::Result<()> {
        let mut connection = self.pool.acquire().await.context("no database connection")?;
        let findings =
            reconciliation::store::to_do(&mut connection, LOOKED_AT_MAX).await.context("reading findings")?;
        drop(connection);
        for finding in findings {
            if !self.is_our_turn().await? {
                break;
            }
            match self.decide(&finding.payment_intent).await? {
                Step::Refund(request) => round.refunded += usize::from(self.refund(&request).await?),
                Step::Explained => round.explained += 1,
                Step::Leave => {}
            }
        }
        Ok(())
    }

    /// Looks at our books again, under the key's lock, and commits what is to be done before it is done.
    async fn decide(&self, payment_intent: &str) -> anyhow::Result<Step> {
        let mut tx = database::begin(&self.pool).await?;
        // Without the lock first: only the key's name is needed, and that never changes.
        let key = reconciliation::store::key_of(&mut tx, payment_intent).await?;
        let Some(digest) = our_digest(key.as_deref()) else {
            tx.rollback().await?;
            return Ok(Step::Leave);
        };
        store::lock(&mut tx, &[digest]).await?;
        let Some(mut finding) = reconciliation::store::take(&mut tx, payment_intent).await? else {
            tx.rollback().await?;
            return Ok(Step::Leave);
        };
        let books = Books::read(&mut tx, &[(payment_intent, Some(digest))]).await?;
        let step = next_step(&mut finding, &books, books.judge(payment_intent, Some(digest)));
        reconciliation::store::update(&mut tx, &finding).await.context("writing down what becomes of a finding")?;
        tx.commit().await?;
        if step == Step::Explained {
            tracing::info!(payment_intent, "a row of ours explains this charge after all");
        }
        Ok(step)
    }

    /// Sends what was decided, and writes down what came of it. Whether the money is back is the answer.
    async fn refund(&self, request: &RefundRequest) -> anyhow::Result<bool> {
        crash_point!(ReconcileBeforeRefund);
        let outcome = self.gateway.refund(request, REFUND_TIME_MAX).await;
        crash_point!(ReconcileRefunded);
        let mut tx = database::begin(&self.pool).await?;
        let taken = reconciliation::store::take(&mut tx, &request.gateway_id).await?;
        // Another reconciler may have written it down before us.
        let Some(mut finding) = taken.filter(|finding| finding.state == State::Refunding) else {
            tx.rollback().await?;
            return Ok(false);
        };
        match outcome {
            Outcome::Approved { gateway_id } | Outcome::Pending { gateway_id } => {
                (finding.state, finding.refund_id, finding.detail) = (State::Refunded, Some(gateway_id), None);
            }
            Outcome::Declined { decline_code, .. } if decline_code == ALREADY_REFUNDED => {
                finding.state = State::Refunded;
                finding.detail = Some("the gateway had given all of it back before".to_owned());
            }
            // Nothing went back, and nothing will by itself: it is a person's again.
            Outcome::Declined { message, .. } => (finding.state, finding.detail) = (State::Open, Some(message)),
            Outcome::Misconfigured { why } => {
                tracing::error!(why, payment_intent = request.gateway_id, "ALARM: the gateway does not accept us");
                finding.detail = Some(why);
            }
            Outcome::NotSent { why, .. } | Outcome::Unknown { why, .. } => finding.detail = Some(why),
        }
        reconciliation::store::update(&mut tx, &finding).await.context("writing down a refund")?;
        tx.commit().await?;
        let (payment_intent, state, detail) = (&finding.payment_intent, finding.state.name(), &finding.detail);
        tracing::warn!(payment_intent, state, detail, amount = %request.amount, "an unexplained charge is given back");
        Ok(finding.state == State::Refunded)
    }
}

/// What the rules say, and how the finding stands by them.
fn next_step(finding: &mut Finding, books: &Books, judged: Judged) -> Step {
    match (finding.state, judged) {
        // It was promised, and claims since then count on it.
        (State::Refunding, _) => {}
        (State::Refunded | State::Explained, _) => return Step::Leave,
        (State::Open, Judged::Explained) => {
            finding.state = State::Explained;
            return Step::Explained;
        }
        (State::Open, Judged::Pending) => return Step::Leave,
        (State::Open, Judged::Unexplained(kind)) => {
            if finding.kind != kind {
                let (payment_intent, kind) = (&finding.payment_intent, kind.name());
                tracing::error!(
                    payment_intent,
                    kind,
                    "ALARM: a charge that our books do not explain has become another kind"
                );
            }
            finding.kind = kind;
            let wait = kind == Kind::OrphanUnknown && finding.created_at + FORGOTTEN_AFTER >= books.now;
            if wait || kind == Kind::Foreign {
                return Step::Leave;
            }
        }
    }
    let money = Currency::from_code(&finding.currency).and_then(|currency| Money::new(finding.amount_minor, currency));
    let Some(amount) = money else {
        finding.detail = Some(format!("{} {} is no amount of ours", finding.amount_minor, finding.currency));
        return Step::Leave;
    };
    finding.state = State::Refunding;
    Step::Refund(RefundRequest {
        // The gateway's keys are shared by everything we ask of it, so a refund's has a name of its own.
        key: format!("chr_{}", finding.payment_intent),
        gateway_id: finding.payment_intent.clone(),
        amount,
    })
}
