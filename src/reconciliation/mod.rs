//! What the gateway took, or gave back, and our books do not explain: how far have its lists been read, and what was found?

pub mod refund_store;
pub mod store;

use time::OffsetDateTime;

/// What our rows say of money that the gateway holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Another intent bought what its key was for.
    Surplus,
    /// Its customer was told that nothing was charged.
    OrphanRefused,
    /// No row of ours knows its key.
    OrphanUnknown,
    /// It carries no key of ours.
    Foreign,
    /// Its key is still open, so late that the list will not show it again.
    Pending,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Surplus, Self::OrphanRefused, Self::OrphanUnknown, Self::Foreign, Self::Pending];

    pub fn name(self) -> &'static str {
        match self {
            Self::Surplus => "surplus",
            Self::OrphanRefused => "orphan_refused",
            Self::OrphanUnknown => "orphan_unknown",
            Self::Foreign => "foreign",
            Self::Pending => "pending",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// How far we are with a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    Open,
    /// It goes back: decided and committed. Perhaps it was sent already.
    Refunding,
    Refunded,
    /// A row of ours names it after all.
    Explained,
}

impl State {
    const ALL: [Self; 4] = [Self::Open, Self::Refunding, Self::Refunded, Self::Explained];

    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Refunding => "refunding",
            Self::Refunded => "refunded",
            Self::Explained => "explained",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Money that goes back, or has gone, pays for nothing any more.
    pub fn is_given_back(self) -> bool {
        matches!(self, Self::Refunding | Self::Refunded)
    }
}

/// A finding as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub payment_intent: String,
    pub kind: Kind,
    pub gateway_key: Option<String>,
    /// What the gateway still held of it, in its own currency's minor units.
    pub amount_minor: i64,
    pub currency: String,
    /// By the gateway's clock.
    pub created_at: OffsetDateTime,
    pub state: State,
    pub refund_id: Option<String>,
    pub detail: Option<String>,
}

/// Money that the gateway gave back and that no row of ours explains. Nothing undoes that: it is a person's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnexplainedRefund {
    pub refund_id: String,
    pub payment_intent: Option<String>,
    pub kind: Kind,
    /// Our key and its digest, if there is one.
    pub key: Option<(String, [u8; 32])>,
    /// In its own currency's minor units.
    pub amount_minor: i64,
    pub currency: String,
    /// By the gateway's clock.
    pub created_at: OffsetDateTime,
    /// Open, or explained.
    pub state: State,
}

/// The gateway's lists that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    Payments,
    Refunds,
}

impl List {
    fn slot(self) -> i16 {
        match self {
            Self::Payments => 0,
            Self::Refunds => 1,
        }
    }
}

/// The place in one of the gateway's lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// All that was created before it (seconds since 1970, by the gateway's clock) has been looked at.
    pub reached_s: i64,
    pub window: Option<Window>,
}

/// What is being paged through, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    pub until_s: i64,
    /// The last that was seen.
    pub after_id: Option<String>,
}
