//! How the claims of this process came out, counted. Question: how many of the requests are retries, and of what?

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::claim::{ClaimOutcome, NoClaim};

/// Every way a claim comes out, as the metrics name it.
pub const OUTCOMES: [&str; 11] = [
    "execute",
    "resume",
    "replay",
    "in_flight",
    "mismatch",
    "expired",
    "needs_review",
    "not_admitted",
    "exceeds_balance",
    "overloaded",
    "database_failed",
];

/// Clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct Claimed(Arc<[AtomicU64; OUTCOMES.len()]>);

impl Claimed {
    pub(super) fn count(&self, outcome: &Result<ClaimOutcome, NoClaim>) {
        let place = match outcome {
            Ok(ClaimOutcome::Execute(_)) => 0,
            Ok(ClaimOutcome::Resume(_)) => 1,
            Ok(ClaimOutcome::Replay(_)) => 2,
            Ok(ClaimOutcome::InFlight { .. }) => 3,
            Ok(ClaimOutcome::Mismatch) => 4,
            Ok(ClaimOutcome::Expired { .. }) => 5,
            Ok(ClaimOutcome::NeedsReview) => 6,
            Ok(ClaimOutcome::NotAdmitted) => 7,
            Ok(ClaimOutcome::TooMuch(_)) => 8,
            Err(NoClaim::Overloaded) => 9,
            Err(NoClaim::NeverMade(_) | NoClaim::Doubtful(_)) => 10,
        };
        if let Some(count) = self.0.get(place) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// By outcome, all of them.
    pub fn totals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        OUTCOMES.iter().zip(self.0.iter()).map(|(name, count)| (*name, count.load(Ordering::Relaxed)))
    }
}
