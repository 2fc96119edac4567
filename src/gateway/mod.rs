//! The room of the payment gateway, as we see it: what may be asked of it, and what its answers mean.
//!
//! The dialect (Stripe's v1) stays inside: [`client`] speaks it, [`classify`] reads it, and the callers see [`Outcome`].

pub mod classify;
pub mod client;

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

/// What became of a charge. Anything that is not certain is [`Unknown`](Self::Unknown), never a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The money was taken.
    Approved { gateway_id: String },
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
