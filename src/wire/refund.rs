//! A refund as the contract shows it.

use serde::Serialize;
use time::OffsetDateTime;

use crate::ids::{OrderId, RefundId, RequestId};

#[derive(Debug, Serialize)]
pub struct RefundBody<'a> {
    pub id: RefundId,
    pub order_id: OrderId,
    /// `succeeded` or `pending` (its outcome is open, or the customer's bank has not confirmed it); later perhaps `failed`, of which
    /// nothing went back in the end; in lists also `refused`.
    pub status: &'a str,
    /// Minor units.
    pub amount: i64,
    /// ISO 4217, in lower case.
    pub currency: &'a str,
    /// The gateway's own name for it, once it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_id: Option<&'a str>,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// The request that asked for it; only in its own answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
}

/// Where the refunds of an order are found, and asked for.
pub fn list_location(order: OrderId) -> String {
    format!("/v1/orders/{order}/refunds")
}

/// Where a refund is found.
pub fn location(order: OrderId, id: RefundId) -> String {
    format!("{}/{id}", list_location(order))
}
