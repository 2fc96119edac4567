//! An order as the contract shows it. The first answer's bytes are stored and replayed; a later GET shows the same fields.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::ids::{ChargeId, OrderId, RequestId};

/// One line of an order, with the price of one piece in minor units as it was when the order was placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    pub sku: String,
    pub quantity: i64,
    pub unit_price: i64,
}

#[derive(Debug, Serialize)]
pub struct OrderBody<'a> {
    pub id: OrderId,
    pub status: &'a str,
    pub items: &'a [Line],
    /// Minor units.
    pub total: i64,
    /// Refunded so far, in minor units.
    pub refunded: i64,
    /// ISO 4217, in lower case.
    pub currency: &'a str,
    pub charge: ChargeOfOrder<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_reference: Option<&'a str>,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// The request that placed the order; only in its own answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
}

/// The charge that paid an order.
#[derive(Debug, Serialize)]
pub struct ChargeOfOrder<'a> {
    pub id: ChargeId,
    pub status: &'a str,
    pub gateway_id: &'a str,
}

/// Where an order is found.
pub fn location(id: OrderId) -> String {
    format!("/v1/orders/{id}")
}
