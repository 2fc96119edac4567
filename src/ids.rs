//! Identifiers: who is meant, never how many. Each kind is a type of its own, so that a charge cannot be looked up as an order.
//!
//! Everything minted here is a UUID version 7: rows born together lie together in the index.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::{Uuid, fmt::Hyphenated};

macro_rules! minted {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            pub fn mint() -> Self {
                Self(Uuid::now_v7())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            /// As we give it out, in capitals too (RFC 9562). Not without its dashes, in braces or as a URN: an id that
            /// has many spellings is one thing for us and many for whoever compares, counts or blocks by the text.
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(|id: Hyphenated| Self(id.into_uuid()))
            }
        }
    };
}

minted! {
    /// One order, as the customer sees it.
    OrderId
}
minted! {
    /// One charge in our own books. The gateway's name for it is its payment intent.
    ChargeId
}
minted! {
    /// One refund in our own books.
    RefundId
}
/// What events are about, and by what they are ordered: an order, or a charge that stands alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AggregateId(pub Uuid);

impl From<OrderId> for AggregateId {
    fn from(order: OrderId) -> Self {
        Self(order.0)
    }
}

impl From<ChargeId> for AggregateId {
    fn from(charge: ChargeId) -> Self {
        Self(charge.0)
    }
}

impl fmt::Display for AggregateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

minted! {
    /// One event. The same id is what every later party dedupes by.
    EventId
}
minted! {
    /// One run of the claim by one request: how a claim whose COMMIT acknowledgement was lost recognises itself.
    AttemptId
}
minted! {
    /// One HTTP request, for the log and for the customer who asks about it.
    RequestId
}

/// The customer, as named by the credential. Never taken from a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CustomerId(pub i64);

impl fmt::Display for CustomerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
