//! An event as it travels: from the outbox through the log to whoever consumes it. The same id everywhere, however often.

use serde::{Deserialize, Serialize};
use time::{Date, OffsetDateTime};

use super::order::Line;
use crate::ids::{AggregateId, ChargeId, CustomerId, EventId, OrderId, RefundId};

/// What happened, to what.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// What every later party dedupes by.
    pub id: EventId,
    /// UTC day on which it happened: the partition that remembers it, at every stage.
    pub day: Date,
    pub aggregate: AggregateId,
    /// Position among the events of its aggregate, from 1.
    pub sequence: i32,
    pub kind: String,
    /// JSON text, by `kind`.
    pub payload: String,
    pub occurred_at: OffsetDateTime,
}

/// An order was placed and paid.
pub const ORDER_CREATED: &str = "order.created";

/// The payload of [`ORDER_CREATED`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderCreated {
    pub order_id: OrderId,
    pub customer_id: CustomerId,
    pub charge_id: ChargeId,
    /// The gateway's payment intent.
    pub gateway_id: String,
    pub lines: Vec<Line>,
    /// Minor units.
    pub total: i64,
    pub currency: String,
}

/// Part of an order, or all of it, was given back.
pub const ORDER_REFUNDED: &str = "order.refunded";

/// The payload of [`ORDER_REFUNDED`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderRefunded {
    pub order_id: OrderId,
    pub customer_id: CustomerId,
    pub refund_id: RefundId,
    /// The gateway's own name for the refund.
    pub gateway_id: String,
    /// Minor units.
    pub amount: i64,
    pub currency: String,
}

/// A refund that had been given back failed: its money is the shop's again.
pub const REFUND_FAILED: &str = "refund.failed";

/// The payload of [`REFUND_FAILED`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefundFailed {
    pub order_id: OrderId,
    pub customer_id: CustomerId,
    pub refund_id: RefundId,
    /// The gateway's own name for the refund.
    pub gateway_id: String,
    /// Minor units.
    pub amount: i64,
    pub currency: String,
}

/// A charge without an order was taken.
pub const CHARGE_SUCCEEDED: &str = "charge.succeeded";

/// The payload of [`CHARGE_SUCCEEDED`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChargeSucceeded {
    pub charge_id: ChargeId,
    pub customer_id: CustomerId,
    /// The gateway's payment intent.
    pub gateway_id: String,
    /// Minor units.
    pub amount: i64,
    pub currency: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_reference: Option<String>,
}
