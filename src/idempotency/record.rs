//! What is remembered under a key, as values.
//!
//! ```text
//!            claim                       settle
//!   (none) ────────▶ in_flight ─────────────────────▶ completed | failed   (final, with the answer)
//!                     │   ▲  ▲
//!             unknown │   │  │ lease ran out: a retry or recovery takes over, fence + 1
//!                     ▼   │  └──
//!                   unknown ───▶ needs_review   (the gateway can no longer tell; a person must)
//! ```

use time::OffsetDateTime;
use uuid::Uuid;

use super::{
    fingerprint::Fingerprint,
    key::{Operation, ScopeDigest},
};
use crate::ids::AttemptId;

/// Where a record stands, as stored in `idempotency_records.state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    InFlight,
    Unknown,
    NeedsReview,
    Completed,
    Failed,
}

impl State {
    pub const ALL: [Self; 5] = [Self::InFlight, Self::Unknown, Self::NeedsReview, Self::Completed, Self::Failed];

    pub fn name(self) -> &'static str {
        match self {
            Self::InFlight => "in_flight",
            Self::Unknown => "unknown",
            Self::NeedsReview => "needs_review",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether the outcome is known and stored.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}

/// An answer as it was first given: the bytes, the status, and the headers a replay may repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    pub status: u16,
    pub content_type: String,
    pub location: Option<String>,
    pub body: Vec<u8>,
}

/// A record as a claim sees it. All times are the database's.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub operation: Operation,
    pub fingerprint: Fingerprint,
    pub holding: Holding,
    pub day: time::Date,
    pub fence: i32,
    pub attempt: AttemptId,
    pub tries: i32,
    pub resource_id: Uuid,
    pub frozen: String,
    pub first_sent_at: Option<OffsetDateTime>,
    pub created_at: OffsetDateTime,
    pub finished_at: Option<OffsetDateTime>,
}

impl Record {
    /// When a final answer stops being replayed: `expiry` after it was given. For all but a few that is seconds after the
    /// claim; but an answer that took a person three days must not be forgotten the moment it exists.
    pub fn expires_at(&self, expiry: std::time::Duration) -> OffsetDateTime {
        self.finished_at.unwrap_or(self.created_at) + expiry
    }
}

/// The state with what belongs to it: a final record without an answer cannot be written down.
#[derive(Debug, Clone, PartialEq)]
pub enum Holding {
    InFlight { lease_until: OffsetDateTime },
    Unknown,
    NeedsReview,
    Completed(StoredResponse),
    Failed(StoredResponse),
}

impl Holding {
    pub fn state(&self) -> State {
        match self {
            Self::InFlight { .. } => State::InFlight,
            Self::Unknown => State::Unknown,
            Self::NeedsReview => State::NeedsReview,
            Self::Completed(_) => State::Completed,
            Self::Failed(_) => State::Failed,
        }
    }
}

/// The right to go on with a record, and all that is needed to do so. Whoever holds it writes only under its fence.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    pub digest: ScopeDigest,
    pub operation: Operation,
    pub day: time::Date,
    pub fence: i32,
    pub attempt: AttemptId,
    /// How often recovery has looked at an unknown outcome.
    pub tries: i32,
    pub resource_id: Uuid,
    /// What was asked for, as the first request froze it.
    pub frozen: String,
    /// Whether an earlier owner may have sent the charge.
    pub maybe_sent: bool,
    /// The moment after which this owner must not send any more, by the database's clock.
    pub lease_until: OffsetDateTime,
    /// Before the first byte was sent, by the database's clock.
    pub first_sent_at: OffsetDateTime,
    /// The database's clock when the claim was made: what the two above are measured against.
    pub now: OffsetDateTime,
}
