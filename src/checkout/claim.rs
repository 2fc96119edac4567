//! Step 3, the claim: one transaction, committed before any byte goes to the gateway. Who may execute?

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::{
    Checkout, bought, evidence,
    frozen::Frozen,
    refund::{self, Reservation, Reserving, TooMuch, WantedRefund},
};
use crate::{
    config::Timing,
    crash_point::crash_point,
    database::{
        self,
        group_commit::{Batch, NoVerdict},
    },
    idempotency::{
        claim_store::{self, NewRecord, TakeOver},
        decide::{Asked, Decision, Known, decide},
        fingerprint::Fingerprints,
        key::{Operation, Scope, ScopeDigest},
        record::{Claim, Record, StoredResponse},
        store::{self, Newest},
    },
    ids::AttemptId,
};

/// One request at the claim.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    pub scope: Scope,
    pub digest: ScopeDigest,
    pub fingerprints: Fingerprints,
    pub attempt: AttemptId,
    /// What to freeze if this is new; absent when the checks of the moment forbid anything new.
    pub new: Option<New>,
}

/// What would be claimed.
#[derive(Debug, Clone)]
pub enum New {
    /// All of it is known.
    Ready { resource_id: Uuid, frozen: String },
    /// How much it is, and whether it may be at all, is decided under the order's lock.
    Refund(WantedRefund),
}

/// What the story must handle after the claim.
#[derive(Debug, Clone, PartialEq)]
pub enum ClaimOutcome {
    /// Ours, and nobody sent anything under it before.
    Execute(Claim),
    /// Ours now; an earlier owner may have sent.
    Resume(Claim),
    Replay(StoredResponse),
    InFlight {
        retry_after: Duration,
    },
    Mismatch,
    Expired {
        location: String,
    },
    NeedsReview,
    NotAdmitted,
    /// A new refund, of more than is left.
    TooMuch(TooMuch),
}

/// Why there is no outcome of a claim.
#[derive(Debug, thiserror::Error)]
pub enum NoClaim {
    #[error("too many claims are waiting")]
    Overloaded,
    /// No transaction of ours can have been committed.
    #[error("no claim was made: {0}")]
    NeverMade(NoVerdict),
    /// A transaction may have been committed unheard, and then recovery will go on with it.
    #[error("a claim may have been made: {0}")]
    Doubtful(NoVerdict),
}

/// Asks for the claim. A database failure is asked again with the same attempt token, which recognises a claim whose COMMIT
/// went through and whose acknowledgement was lost.
pub async fn claim(checkout: &Checkout, request: &ClaimRequest) -> Result<ClaimOutcome, NoClaim> {
    // Shorter than after a charge: nothing is lost by giving up, and the client is better told soon.
    const PAUSES_MS: [u64; 2] = [50, 200];
    let doubt = AtomicBool::new(false);
    let step = || async {
        let verdict = checkout.claims.submit(request.clone()).await;
        if let Err(NoVerdict::Database(error)) = &verdict
            && may_be_committed(error)
        {
            doubt.store(true, Ordering::Relaxed);
        }
        verdict
    };
    let verdict = super::settle::persist(&PAUSES_MS, step).await;
    let doubtful = doubt.load(Ordering::Relaxed);
    let outcome = verdict.map_err(|reason| match reason {
        reason if doubtful => NoClaim::Doubtful(reason),
        NoVerdict::Overloaded | NoVerdict::Closed => NoClaim::Overloaded,
        NoVerdict::Database(_) => NoClaim::NeverMade(reason),
    });
    checkout.claimed.count(&outcome);
    outcome
}

/// Whether a transaction that failed like this may have been committed all the same. A connection that was never had began
/// nothing; a statement that the server refused was rolled back. A server that is shutting down (class 57) may have
/// committed and then fallen silent, as may a connection that broke.
fn may_be_committed(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => false,
        sqlx::Error::Database(refused) => refused.code().is_none_or(|code| code.starts_with("57P")),
        _ => true,
    }
}

/// The claim transaction over a batch.
#[derive(Debug)]
pub struct Claims {
    pool: PgPool,
    lease: Duration,
    expiry: Duration,
}

impl Claims {
    pub fn new(pool: PgPool, timing: &Timing) -> Self {
        Self { pool, lease: Duration::from_millis(timing.lease_ms), expiry: timing.key_expiry() }
    }
}

impl Batch for Claims {
    type Item = ClaimRequest;
    type Verdict = ClaimOutcome;

    async fn run(&self, requests: &[ClaimRequest]) -> sqlx::Result<Vec<ClaimOutcome>> {
        let mut asked: Vec<(ScopeDigest, Operation)> =
            requests.iter().map(|request| (request.digest, request.scope.operation)).collect();
        asked.sort_unstable_by_key(|(digest, _)| *digest);
        asked.dedup();
        let digests: Vec<ScopeDigest> = asked.iter().map(|(digest, _)| *digest).collect();

        let mut tx = database::begin(&self.pool).await?;
        store::lock(&mut tx, &digests).await?;
        let newest = store::newest(&mut tx, &digests).await?;
        let bought = bought::by_keys(&mut tx, &asked).await?;
        let foreshadowed = evidence::foreshadowed(&mut tx, &digests).await?;

        let mut leaders = HashMap::new();
        let decisions: Vec<Decision> = requests
            .iter()
            .map(|request| {
                let known = Known {
                    now: newest.now,
                    expiry: self.expiry,
                    record: newest.records.get(&request.digest),
                    bought: bought.get(&request.digest).map(String::as_str),
                };
                decide_in_batch(request, known, &mut leaders)
            })
            .collect();

        // Orders before records, as settle locks them.
        let reservations = self.reserve(&mut tx, requests, &decisions, &newest).await?;
        let mut claimed = self.write(&mut tx, requests, &decisions, &newest, &reservations).await?;
        for (digest, reservation) in &reservations {
            if let (Ok(frozen), false) = (reservation, claimed.contains_key(digest)) {
                refund::release(&mut tx, frozen).await?;
            }
        }
        crash_point!(ClaimBeforeCommit);
        tx.commit().await?;
        // Somebody who used this key before us may have sent, although we remember nobody.
        for claim in claimed.values_mut() {
            claim.maybe_sent |= foreshadowed.contains(&claim.digest);
        }

        let outcomes = requests.iter().zip(decisions).map(|(request, decision)| match decision {
            Decision::Insert | Decision::TakeOver => match reservations.get(&request.digest) {
                Some(Err(too_much)) => ClaimOutcome::TooMuch(*too_much),
                Some(Ok(_)) | None => claimed.remove(&request.digest).map_or(MOVED, resume_or_execute),
            },
            Decision::Own => match newest.records.get(&request.digest) {
                Some(record) => own(request.digest, record, newest.now).map_or(MOVED, |mut claim| {
                    claim.maybe_sent |= foreshadowed.contains(&claim.digest);
                    resume_or_execute(claim)
                }),
                None => MOVED,
            },
            Decision::Replay(response) => ClaimOutcome::Replay(response),
            Decision::InFlight { retry_after } => ClaimOutcome::InFlight { retry_after },
            Decision::Mismatch => ClaimOutcome::Mismatch,
            Decision::Expired { location } => ClaimOutcome::Expired { location },
            Decision::NeedsReview => ClaimOutcome::NeedsReview,
            Decision::NotAdmitted => ClaimOutcome::NotAdmitted,
        });
        Ok(outcomes.collect())
    }
}

impl Claims {
    /// Holds back what the refunds among them need: new ones, and those that were given up unsent and begin anew.
    async fn reserve(
        &self,
        tx: &mut PgConnection,
        requests: &[ClaimRequest],
        decisions: &[Decision],
        newest: &Newest,
    ) -> sqlx::Result<HashMap<ScopeDigest, Reservation>> {
        // Each with what its client asks for now, which is what it asked for then.
        let mut unsent = Vec::new();
        for (request, decision) in requests.iter().zip(decisions) {
            if let (Decision::TakeOver, Operation::RefundOrder, Some(record)) =
                (decision, request.scope.operation, newest.records.get(&request.digest))
                && record.first_sent_at.is_none()
                && let Frozen::Refund(frozen) = read_frozen(record)?
            {
                let all_that_is_left =
                    matches!(&request.new, Some(New::Refund(wanted)) if wanted.amount_minor.is_none());
                unsent.push((request.digest, frozen, all_that_is_left));
            }
        }
        let again = unsent.iter().map(|(digest, frozen, all_that_is_left)| {
            (*digest, Reserving::Again { frozen, all_that_is_left: *all_that_is_left })
        });
        let new = requests.iter().zip(decisions).filter_map(|(request, decision)| match (decision, &request.new) {
            (Decision::Insert, Some(New::Refund(wanted))) => Some((request.digest, Reserving::New(wanted))),
            _ => None,
        });
        refund::reserve(tx, again.chain(new).collect()).await
    }

    /// Writes the records of all that may go on. What is not in the answer moved meanwhile, or may not.
    async fn write(
        &self,
        tx: &mut PgConnection,
        requests: &[ClaimRequest],
        decisions: &[Decision],
        newest: &Newest,
        reservations: &HashMap<ScopeDigest, Reservation>,
    ) -> sqlx::Result<HashMap<ScopeDigest, Claim>> {
        let mut inserts: Vec<(&ClaimRequest, Uuid, Cow<'_, str>)> = Vec::new();
        let mut take_overs: Vec<TakeOver<'_>> = Vec::new();
        for (request, decision) in requests.iter().zip(decisions) {
            let reservation = reservations.get(&request.digest);
            match (decision, &request.new, newest.records.get(&request.digest)) {
                (Decision::Insert | Decision::TakeOver, ..) if matches!(reservation, Some(Err(_))) => {}
                (Decision::Insert, Some(New::Ready { resource_id, frozen }), _) => {
                    inserts.push((request, *resource_id, Cow::Borrowed(frozen)));
                }
                (Decision::Insert, Some(New::Refund(_)), _) => {
                    if let Some(Ok(frozen)) = reservation {
                        inserts.push((request, frozen.refund_id.0, Cow::Owned(refund::to_text(frozen)?)));
                    }
                }
                (Decision::TakeOver, _, Some(seen)) => take_overs.push(TakeOver {
                    digest: request.digest,
                    seen,
                    attempt: request.attempt,
                    frozen_anew: reservation.and_then(|kept| kept.as_ref().ok()).map(refund::to_text).transpose()?,
                }),
                _ => {}
            }
        }
        let inserts: Vec<NewRecord<'_>> = inserts.iter().map(new_record).collect();
        let mut claimed = HashMap::new();
        if !inserts.is_empty() {
            claimed.extend(claim_store::insert(&mut *tx, &inserts, self.lease).await?);
        }
        if !take_overs.is_empty() {
            // Rows are locked in the order of the array, and settle locks them in the order of the digests.
            take_overs.sort_unstable_by_key(|record| record.digest);
            claimed.extend(claim_store::take_over(tx, &take_overs, self.lease).await?);
        }
        Ok(claimed)
    }
}

fn new_record<'a>((request, resource_id, frozen): &'a (&'a ClaimRequest, Uuid, Cow<'a, str>)) -> NewRecord<'a> {
    NewRecord {
        scope: &request.scope,
        digest: request.digest,
        fingerprint: request.fingerprints.current,
        attempt: request.attempt,
        resource_id: *resource_id,
        frozen,
    }
}

fn read_frozen(record: &Record) -> sqlx::Result<Frozen> {
    Frozen::read(record.operation, &record.frozen).map_err(|error| sqlx::Error::Decode(error.into()))
}

/// The record moved between our look and our write: somebody is at work on it this very moment.
const MOVED: ClaimOutcome = ClaimOutcome::InFlight { retry_after: Duration::from_secs(1) };

/// Two requests under one key in one batch: the first that may execute leads, and the others see it in flight, as they would
/// a moment later.
fn decide_in_batch<'a>(
    request: &'a ClaimRequest,
    known: Known<'_>,
    leaders: &mut HashMap<ScopeDigest, &'a Fingerprints>,
) -> Decision {
    if let Some(leader) = leaders.get(&request.digest) {
        return if request.fingerprints.matches(leader.current) {
            Decision::InFlight { retry_after: Duration::from_secs(1) }
        } else {
            Decision::Mismatch
        };
    }
    let asked =
        Asked { fingerprints: &request.fingerprints, attempt: request.attempt, admit_new: request.new.is_some() };
    let decision = decide(asked, known);
    if matches!(decision, Decision::Insert | Decision::TakeOver | Decision::Own) {
        leaders.insert(request.digest, &request.fingerprints);
    }
    decision
}

fn resume_or_execute(claim: Claim) -> ClaimOutcome {
    if claim.maybe_sent { ClaimOutcome::Resume(claim) } else { ClaimOutcome::Execute(claim) }
}

/// A claim this attempt made before, read back. Its own first send has not happened: it never learned that it had claimed.
fn own(digest: ScopeDigest, record: &Record, now: time::OffsetDateTime) -> Option<Claim> {
    let crate::idempotency::record::Holding::InFlight { lease_until } = record.holding else { return None };
    Some(Claim {
        digest,
        operation: record.operation,
        day: record.day,
        fence: record.fence,
        attempt: record.attempt,
        tries: record.tries,
        resource_id: record.resource_id,
        frozen: record.frozen.clone(),
        // Behind a take-over there may have been a sender before us.
        maybe_sent: record.fence > 1,
        lease_until,
        first_sent_at: record.first_sent_at.unwrap_or(now),
        now,
    })
}
