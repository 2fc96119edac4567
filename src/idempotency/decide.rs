//! What to do with a request under a key: pure, total, and read from top to bottom.
//!
//! Unresolved beats expired: while an outcome is open the key cannot be free. A different request is told so before
//! anything else, so that no answer ever reaches a request it was not made for. What the moment forbids (a changed price, an
//! open circuit) may refuse only what would be new: a retry of something that happened gets its answer.

use std::time::Duration;

use time::OffsetDateTime;

use super::{
    fingerprint::Fingerprints,
    record::{Holding, Record, StoredResponse},
};
use crate::ids::AttemptId;

/// What the request brings.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub fingerprints: &'a Fingerprints,
    pub attempt: AttemptId,
    /// Whether the checks that depend on the moment would let a new purchase through.
    pub admit_new: bool,
}

/// What the database knows at one moment of its clock.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    pub now: OffsetDateTime,
    /// How long a final answer is replayed.
    pub expiry: Duration,
    /// The newest record under the scope.
    pub record: Option<&'a Record>,
    /// Where it is found what the scope bought, from the business tables that never expire.
    pub bought: Option<&'a str>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Nothing is known under this key: claim it.
    Insert,
    /// The record is this very attempt's: its COMMIT was acknowledged to nobody. Go on as its owner.
    Own,
    /// The owner is gone or the outcome is open: take over, one fence higher.
    TakeOver,
    /// Answer what was answered.
    Replay(StoredResponse),
    /// Somebody else runs it. Come back in a while.
    InFlight { retry_after: Duration },
    /// The key belongs to another request.
    Mismatch,
    /// The key is past its expiry and bought this.
    Expired { location: String },
    /// Only a person can find out.
    NeedsReview,
    /// It would be new, and the moment forbids it.
    NotAdmitted,
}

pub fn decide(asked: Asked<'_>, known: Known<'_>) -> Decision {
    let new = match known.bought {
        Some(location) => Decision::Expired { location: location.to_owned() },
        None if asked.admit_new => Decision::Insert,
        None => Decision::NotAdmitted,
    };
    let Some(record) = known.record else { return new };

    let expired = known.now >= record.expires_at(known.expiry);
    if expired && (record.holding.state().is_final() || is_released(record, known.now)) {
        return new;
    }
    if !asked.fingerprints.matches(record.fingerprint) {
        return Decision::Mismatch;
    }
    match &record.holding {
        Holding::Completed(response) | Holding::Failed(response) => Decision::Replay(response.clone()),
        Holding::NeedsReview => Decision::NeedsReview,
        Holding::Unknown => Decision::TakeOver,
        Holding::InFlight { .. } if record.attempt == asked.attempt => Decision::Own,
        Holding::InFlight { lease_until } if *lease_until <= known.now => Decision::TakeOver,
        Holding::InFlight { lease_until } => {
            Decision::InFlight { retry_after: retry_after((*lease_until - known.now).unsigned_abs()) }
        }
    }
}

/// Nobody owns it and nothing was ever sent under it: there is no outcome to wait for.
pub fn is_released(record: &Record, now: OffsetDateTime) -> bool {
    let owned = matches!(record.holding, Holding::InFlight { lease_until } if lease_until > now);
    record.first_sent_at.is_none() && !owned
}

/// Most owners answer within a second, so that is when to ask again; nobody need ask after the lease is over.
fn retry_after(lease_left: Duration) -> Duration {
    Duration::from_secs(1).min(lease_left)
}

#[cfg(test)]
mod tests;
