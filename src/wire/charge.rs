//! A charge as the contract shows it.

use serde::Serialize;
use time::OffsetDateTime;

use crate::ids::{ChargeId, RequestId};

#[derive(Debug, Serialize)]
pub struct ChargeBody<'a> {
    pub id: ChargeId,
    /// `succeeded` or `declined`.
    pub status: &'a str,
    /// Minor units.
    pub amount: i64,
    /// ISO 4217, in lower case.
    pub currency: &'a str,
    /// The gateway's payment intent. A refusal may come before there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decline_code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_reference: Option<&'a str>,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// The request that made the charge; only in its own answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
}

/// Where a charge is found.
pub fn location(id: ChargeId) -> String {
    format!("/v1/charges/{id}")
}
