//! The room of the payment gateway, as we see it: what may be asked of it, and what its answers mean.
//!
//! The dialect (Stripe's v1) stays inside: [`client`] speaks it, [`classify`] reads it, and the callers see [`Outcome`].

pub mod breaker;
pub mod classify;
pub mod client;
pub mod event;

use std::time::Duration;

use crate::money::Money;

/// What is sent. A pure function of the customer's scope and body: no minted id, no serial, no time, so that the gateway
/// recognises it even after we were restored from a backup that had never heard of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChargeRequest {
    /// The gateway's idempotency key.
    pub key: String,
    pub amount: Money,
    pub payment_method: String,
    /// The customer's own name for the purchase, passed on for whoever audits.
    pub reference: Option<String>,
}

/// What became of a charge, or of a refund. Anything that is not certain is [`Unknown`](Self::Unknown), never a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The money was taken, or given back.
    Approved { gateway_id: String },
    /// A refund that the gateway has taken on and counts as given back, and that the customer's bank has not confirmed.
    Pending { gateway_id: String },
    /// The gateway refused for good: sending it again brings the same answer.
    Declined { gateway_id: Option<String>, decline_code: String, message: String },
    /// Certainly not executed.
    NotSent { why: String, retry_after: Option<Duration> },
    /// It may have been executed. `frozen`: the gateway recorded an answer that says nothing, so sending again cannot help.
    Unknown { why: String, frozen: bool },
    /// The gateway does not accept us, or not this kind of request: our fault, an alarm, and certainly not executed.
    Misconfigured { why: String },
}

impl Outcome {
    /// What is known once an earlier send may have reached the gateway: a later one that certainly did not proves nothing
    /// about the earlier.
    pub fn sticky(self, maybe_sent_before: bool) -> Self {
        match self {
            Self::NotSent { why, .. } | Self::Misconfigured { why } if maybe_sent_before => {
                Self::Unknown { why: format!("an earlier send may have arrived; now {why}"), frozen: false }
            }
            other => other,
        }
    }
}

/// Money to give back: all or part of one charge. Like a charge, a pure function of what the customer asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefundRequest {
    /// The gateway's idempotency key, a refund's own: the gateway's keys are shared by everything we ask of it.
    pub key: String,
    /// The payment intent that took the money.
    pub gateway_id: String,
    pub amount: Money,
}

/// The `decline_code` of a refund for which nothing is left: another one, perhaps an earlier send of this one, gave it all.
pub const ALREADY_REFUNDED: &str = "charge_already_refunded";

/// A refund as the gateway shows it: whoever asked for it, for whatever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownRefund {
    pub gateway_id: String,
    pub status: RefundStatus,
    /// In minor units of a currency that need not be one of ours.
    pub amount: i64,
    pub currency: String,
    /// Whose money it is. A refund of a bare charge has none.
    pub payment_intent: Option<String>,
    /// The key it was made under, if its maker was us.
    pub checkout_key: Option<String>,
    /// Seconds since 1970, by the gateway's clock.
    pub created_s: i64,
}

impl ShownRefund {
    /// Was it made for this: under this key, of this payment, in this currency? The amount is another question.
    pub fn is_of(&self, request: &RefundRequest) -> bool {
        self.checkout_key.as_deref() == Some(&*request.key)
            && self.payment_intent.as_deref() == Some(&*request.gateway_id)
            && self.currency == request.amount.currency().code()
    }
}

/// Where a refund's money is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefundStatus {
    /// The gateway has taken it on, and the customer's bank has not confirmed it.
    Pending,
    Succeeded,
    /// Turned down or called off, perhaps long after it had succeeded: the money is the shop's again.
    Failed,
    /// The customer is to do something first, or a word we do not know.
    Open,
}

impl RefundStatus {
    /// Does the gateway count its money as given back?
    pub fn gives_back(self) -> bool {
        matches!(self, Self::Pending | Self::Succeeded)
    }
}

/// What the gateway says of one refund, asked by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefundFound {
    Shown(ShownRefund),
    NotThere,
    Unreachable { why: String },
}

/// One page of the gateway's own list of refunds, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefundsListed {
    Page { refunds: Vec<ShownRefund>, has_more: bool },
    Unreachable { why: String },
}

/// What is asked of the gateway under one of our keys. Whatever it is, the same discipline holds: once, or not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    Charge(ChargeRequest),
    Refund(RefundRequest),
}

impl Ask {
    pub fn amount(&self) -> Money {
        match self {
            Self::Charge(request) => request.amount,
            Self::Refund(request) => request.amount,
        }
    }
}

/// One page of the gateway's own list of payment intents, newest first: whoever made them, for whatever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    Page { intents: Vec<ListedIntent>, has_more: bool },
    Unreachable { why: String },
}

/// A payment intent as the gateway lists it. The amount is in minor units of a currency that need not be one of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedIntent {
    pub gateway_id: String,
    /// In the gateway's words; `succeeded` is the one that took the money.
    pub status: String,
    pub amount: i64,
    pub currency: String,
    /// Seconds since 1970, by the gateway's clock.
    pub created_s: i64,
    /// The key it was made under, if its maker was us.
    pub checkout_key: Option<String>,
    /// What went back to the customer.
    pub amount_refunded: i64,
}

/// All that the gateway shows under our key, for a person who is to close it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// Nothing, or what took no money and never will.
    NoMoney,
    /// This one took what was asked for.
    Charged {
        gateway_id: String,
    },
    /// These took another amount, and nothing took what was asked for.
    OtherAmounts {
        gateway_ids: Vec<String>,
    },
    /// Something may still take money.
    Unsettled {
        why: String,
    },
    Unreachable {
        why: String,
    },
}

/// What the gateway knows under our key when asked, without sending a charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    Found(Outcome),
    /// It shows nothing, which proves nothing: its search lags behind its books.
    NothingFound,
    Unreachable {
        why: String,
    },
}
