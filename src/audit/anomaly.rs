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
    LostCharge,
    LostRefund,
    UnchargedOrder,
    UnrecordedOrder,
    StuckKey,
    UnresolvedPastDeadline,
    AmountMismatch,
    RefundMismatch,
    MissingEvent,
    EventWithoutOrder,
    LostEvent,
    RepeatedEffect,
    OutOfOrder,
    UnbalancedLedger,
    UnsentReceipt,
    Parked,
}

/// What an invariant is checked on: the denominator of its finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Among {
    Orders,
    Charges,
    Refunds,
    Captures,
    Records,
    Events,
    /// Of the ledger.
    Entries,
}

impl Among {
    pub fn name(self) -> &'static str {
        match self {
            Self::Orders => "orders",
            Self::Charges => "charges",
            Self::Refunds => "refunds",
            Self::Captures => "captures",
            Self::Records => "records",
            Self::Events => "events",
            Self::Entries => "ledger entries",
        }
    }
}

impl Kind {
    /// In the order in which they are reported: what costs a customer money comes first.
    pub const ALL: [Self; 22] = [
        Self::DuplicateOrder,
        Self::DuplicateCharge,
        Self::OrphanCharge,
        Self::UncapturedCharge,
        Self::SharedCapture,
        Self::LostOrder,
        Self::LostCharge,
        Self::LostRefund,
        Self::UnchargedOrder,
        Self::UnrecordedOrder,
        Self::StuckKey,
        Self::UnresolvedPastDeadline,
        Self::AmountMismatch,
        Self::RefundMismatch,
        Self::MissingEvent,
        Self::EventWithoutOrder,
        Self::LostEvent,
        Self::RepeatedEffect,
        Self::OutOfOrder,
        Self::UnbalancedLedger,
        Self::UnsentReceipt,
        Self::Parked,
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
            Self::LostCharge => (
                "lost_charge",
                Among::Charges,
                "The customer was told of a charge that is not there, or that failed; or one that stands alone succeeded, and its record does not say so.",
            ),
            Self::LostRefund => (
                "lost_refund",
                Among::Refunds,
                "The customer was told of a refund that is not there, or that was refused; or one was given back, and its record does not say so.",
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
                "Money may have moved and nobody looks: the key is due, and neither a retry nor recovery picked it up in time.",
            ),
            Self::UnresolvedPastDeadline => (
                "unresolved_past_deadline",
                Among::Records,
                "Money may have moved and nobody has found out: the key is still open when nothing may be sent again, or has waited for a person for three days.",
            ),
            Self::AmountMismatch => {
                ("amount_mismatch", Among::Orders, "Order, charge and capture do not agree on amount or currency.")
            }
            Self::RefundMismatch => (
                "refund_mismatch",
                Among::Charges,
                "What went back differs: between the gateway and our refunds, of which one may have failed there, or between an order and its own; or a refund is held back that nobody is at.",
            ),
            Self::MissingEvent => (
                "missing_event",
                Among::Events,
                "An order, a charge that stands alone, a refund or its failure has no event in the outbox, although the outbox still keeps its day.",
            ),
            Self::EventWithoutOrder => (
                "event_without_order",
                Among::Events,
                "The outbox tells of an order, a charge or a refund that is not there.",
            ),
            Self::LostEvent => (
                "lost_event",
                Among::Events,
                "An event got no further in time, and nobody holds it: it is not in the log, or a consumer has not processed it.",
            ),
            Self::RepeatedEffect => (
                "repeated_effect",
                Among::Events,
                "What may happen once happened again: two mails for one event, or an order, a charge or a refund that was booked or confirmed by mail twice.",
            ),
            Self::OutOfOrder => (
                "out_of_order",
                Among::Events,
                "The events of one order or charge were logged or applied in another order than they happened, or stand in two partitions.",
            ),
            Self::UnbalancedLedger => (
                "unbalanced_ledger",
                Among::Entries,
                "The books do not add up: an event's entries do not sum to zero, or the gateway's account differs from the charge, from a refund or from what the gateway took and kept.",
            ),
            Self::UnsentReceipt => (
                "unsent_receipt",
                Among::Events,
                "An order, a charge, a refund or its failure has no receipt although its event is through, or a receipt names a mail that the mail service did not deliver.",
            ),
            Self::Parked => (
                "parked",
                Among::Events,
                "An event was tried often enough and waits until a person sends it on, and the later ones of its order or charge wait behind it.",
            ),
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
