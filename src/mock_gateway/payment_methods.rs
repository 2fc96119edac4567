//! The test cards, and what their issuers say.
//!
//! Promise: the names and codes are those of the dialect's own test mode, so what is learnt here holds there.
//! It answers: which payment method makes this payment end how?

use super::{faults, object::RefundStatus};

/// What the issuer answers to a charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Issuer {
    Approves,
    Declines(Decline),
    /// Wants to see the customer first.
    Challenges,
}

/// Why an issuer declines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decline {
    Generic,
    InsufficientFunds,
    LostCard,
    StolenCard,
    ExpiredCard,
    IncorrectCvc,
    ProcessingError,
}

/// `None` is a payment method this gateway has never heard of.
pub(super) fn issuer(payment_method: &str) -> Option<Issuer> {
    if let Some(fault) = payment_method.strip_prefix("pm_mock_") {
        return faults::Asked::parse(fault).map(|_| Issuer::Approves);
    }
    let card = payment_method.strip_prefix("pm_card_")?;
    Some(match card.strip_prefix("visa_").unwrap_or(card) {
        "visa" | "mastercard" | PENDING_REFUND | REFUND_FAIL => Issuer::Approves,
        "authenticationRequired" => Issuer::Challenges,
        "chargeDeclined" => Issuer::Declines(Decline::Generic),
        "chargeDeclinedInsufficientFunds" => Issuer::Declines(Decline::InsufficientFunds),
        "chargeDeclinedLostCard" => Issuer::Declines(Decline::LostCard),
        "chargeDeclinedStolenCard" => Issuer::Declines(Decline::StolenCard),
        "chargeDeclinedExpiredCard" => Issuer::Declines(Decline::ExpiredCard),
        "chargeDeclinedIncorrectCvc" => Issuer::Declines(Decline::IncorrectCvc),
        "chargeDeclinedProcessingError" => Issuer::Declines(Decline::ProcessingError),
        _ => return None,
    })
}

/// The cards whose refunds are not over when they are made.
const PENDING_REFUND: &str = "pendingRefund";
const REFUND_FAIL: &str = "refundFail";

/// How a refund to this payment method begins, and how it ends a little later if that is otherwise.
pub(super) fn refund(payment_method: &str) -> (RefundStatus, Option<RefundStatus>) {
    match payment_method.strip_prefix("pm_card_") {
        Some(PENDING_REFUND) => (RefundStatus::Pending, Some(RefundStatus::Succeeded)),
        Some(REFUND_FAIL) => (RefundStatus::Succeeded, Some(RefundStatus::Failed)),
        _ => (RefundStatus::Succeeded, None),
    }
}

impl Decline {
    pub(super) const ALL: [Self; 7] = [
        Self::Generic,
        Self::InsufficientFunds,
        Self::LostCard,
        Self::StolenCard,
        Self::ExpiredCard,
        Self::IncorrectCvc,
        Self::ProcessingError,
    ];

    pub(super) fn code(self) -> &'static str {
        match self {
            Self::Generic | Self::InsufficientFunds | Self::LostCard | Self::StolenCard => "card_declined",
            Self::ExpiredCard => "expired_card",
            Self::IncorrectCvc => "incorrect_cvc",
            Self::ProcessingError => "processing_error",
        }
    }

    /// Unique among the declines: the books store it.
    pub(super) fn decline_code(self) -> &'static str {
        match self {
            Self::Generic => "generic_decline",
            Self::InsufficientFunds => "insufficient_funds",
            Self::LostCard => "lost_card",
            Self::StolenCard => "stolen_card",
            Self::ExpiredCard => "expired_card",
            Self::IncorrectCvc => "incorrect_cvc",
            Self::ProcessingError => "processing_error",
        }
    }

    pub(super) fn from_decline_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|decline| decline.decline_code() == code)
    }

    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Generic | Self::LostCard | Self::StolenCard => "Your card was declined.",
            Self::InsufficientFunds => "Your card has insufficient funds.",
            Self::ExpiredCard => "Your card has expired.",
            Self::IncorrectCvc => "Your card's security code is incorrect.",
            Self::ProcessingError => "An error occurred while processing your card. Try again in a little bit.",
        }
    }
}
