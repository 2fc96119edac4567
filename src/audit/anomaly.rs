//! Every anomaly the audit can name, as data: which contradictions exist, and what does each mean?

use serde::{Serialize, Serializer};

/// A kind of contradiction. Each has a name for machines and one sentence for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    DuplicateOrder,
    DuplicateCharge,
    OrphanCharge,
    UncapturedCharge,
    SharedCapture,
    LostOrder,
    UnchargedOrder,
    UnrecordedOrder,
    StuckKey,
    AmountMismatch,
    MissingEvent,
    EventWithoutOrder,
}

/// What an invariant is checked on: the denominator of its finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Among {
    Orders,
    Charges,
    Captures,
    Records,
    Events,
}

impl Among {
    pub fn name(self) -> &'static str {
        match self {
            Self::Orders => "orders",
            Self::Charges => "charges",
            Self::Captures => "captures",
            Self::Records => "records",
            Self::Events => "events",
        }
    }
}

impl Kind {
    /// In the order in which they are reported: what costs a customer money comes first.
    pub const ALL: [Self; 12] = [
        Self::DuplicateOrder,
        Self::DuplicateCharge,
        Self::OrphanCharge,
        Self::UncapturedCharge,
        Self::SharedCapture,
        Self::LostOrder,
        Self::UnchargedOrder,
        Self::UnrecordedOrder,
        Self::StuckKey,
        Self::AmountMismatch,
        Self::MissingEvent,
        Self::EventWithoutOrder,
    ];

    pub fn name(self) -> &'static str {
        self.described().0
    }

    pub fn meaning(self) -> &'static str {
        self.described().2
    }

    pub fn among(self) -> Among {
        self.described().1
    }

    fn described(self) -> (&'static str, Among, &'static str) {
        match self {
            Self::DuplicateOrder => (
                "duplicate_order",
                Among::Orders,
                "One intent bought twice: two orders under one idempotency key, or of one customer under one client_reference.",
            ),
            Self::DuplicateCharge => (
                "duplicate_charge",
                Among::Captures,
                "One intent was charged twice: two captures or two succeeded charges under one key, or two captures for one customer's client_reference.",
            ),
            Self::OrphanCharge => (
                "orphan_charge",
                Among::Captures,
                "The gateway captured money that no succeeded charge of ours knows and no open record is still going to settle.",
            ),
            Self::UncapturedCharge => (
                "uncaptured_charge",
                Among::Charges,
                "A charge is booked as succeeded, but the gateway's ledger does not list it.",
            ),
            Self::SharedCapture => {
                ("shared_capture", Among::Captures, "One capture is booked as the charge of two different keys.")
            }
            Self::LostOrder => (
                "lost_order",
                Among::Charges,
                "The customer paid or was promised an order, and it is not there: a succeeded charge or a completed record without its order.",
            ),
            Self::UnchargedOrder => (
                "uncharged_order",
                Among::Orders,
                "An order stands on a charge that is missing, declined or made under another key.",
            ),
            Self::UnrecordedOrder => (
                "unrecorded_order",
                Among::Orders,
                "An order exists while the record of its key, although still kept, does not say completed.",
            ),
            Self::StuckKey => (
                "stuck_key",
                Among::Records,
                "A charge may have happened and nobody ends it: the key is due and not picked up, or still open when no charge may be sent again.",
            ),
            Self::AmountMismatch => {
                ("amount_mismatch", Among::Orders, "Order, charge and capture do not agree on amount or currency.")
            }
            Self::MissingEvent => ("missing_event", Among::Orders, "An order has no first event in the outbox."),
            Self::EventWithoutOrder => {
                ("event_without_order", Among::Events, "The outbox tells of an order that is not there.")
            }
        }
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One contradiction that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Anomaly {
    #[serde(rename = "anomaly")]
    pub kind: Kind,
    /// The scope's digest in hex, where the anomaly belongs to one key.
    pub key: Option<String>,
    /// Orders, charges, events or payment intents, as `detail` says. At most ten.
    pub ids: Vec<String>,
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_kind_has_a_name_of_its_own_and_one_sentence() {
        let names: HashSet<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), Kind::ALL.len());
        for kind in Kind::ALL {
            assert!(kind.name().chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{}", kind.name());
            assert!(kind.meaning().ends_with('.'), "{}", kind.name());
        }
    }
}
