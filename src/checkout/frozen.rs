//! The frozen request: all that is needed to finish what was asked for without the client, as the claim committed it.
//!
//! What goes to the gateway is made from the scope's digest and the customer's own request alone. The ids minted here are ours:
//! they name the order, the charge or the refund in our books, and never leave in a request.

use anyhow::Context;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use time::OffsetDateTime;

use crate::{
    charges,
    gateway::{self, Ask},
    idempotency::key::{Operation, ScopeDigest},
    ids::{ChargeId, CustomerId, OrderId, RefundId, RequestId},
    money::{Currency, Money},
    orders::{catalogue::Priced, request::OrderRequest},
    wire::order::Line,
};

/// A request that was claimed, by what is done under its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frozen {
    Order(FrozenOrder),
    Charge(FrozenCharge),
    Refund(FrozenRefund),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenOrder {
    pub order_id: OrderId,
    pub charge_id: ChargeId,
    pub customer_id: CustomerId,
    pub request_id: RequestId,
    pub lines: Vec<Line>,
    pub total: i64,
    pub currency: String,
    pub payment_method: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_reference: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenCharge {
    pub charge_id: ChargeId,
    pub customer_id: CustomerId,
    pub request_id: RequestId,
    pub amount: i64,
    pub currency: String,
    pub payment_method: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_reference: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenRefund {
    pub refund_id: RefundId,
    pub order_id: OrderId,
    pub customer_id: CustomerId,
    pub request_id: RequestId,
    /// The payment intent that took the money.
    pub payment_intent: String,
    /// What is held back for it, in minor units. Where the customer named no amount: what was left at the claim.
    pub amount: i64,
    pub currency: String,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

impl Frozen {
    pub fn read(operation: Operation, frozen: &str) -> anyhow::Result<Self> {
        fn text<T: DeserializeOwned>(frozen: &str) -> anyhow::Result<T> {
            serde_json::from_str(frozen).context("a frozen request cannot be read")
        }
        Ok(match operation {
            Operation::CreateOrder => Self::Order(text(frozen)?),
            Operation::CreateCharge => Self::Charge(text(frozen)?),
            Operation::RefundOrder => Self::Refund(text(frozen)?),
        })
    }

    pub fn to_text(&self) -> serde_json::Result<String> {
        match self {
            Self::Order(order) => serde_json::to_string(order),
            Self::Charge(charge) => serde_json::to_string(charge),
            Self::Refund(refund) => serde_json::to_string(refund),
        }
    }

    pub fn operation(&self) -> Operation {
        match self {
            Self::Order(_) => Operation::CreateOrder,
            Self::Charge(_) => Operation::CreateCharge,
            Self::Refund(_) => Operation::RefundOrder,
        }
    }

    /// The id of what comes of it.
    pub fn resource_id(&self) -> uuid::Uuid {
        match self {
            Self::Order(order) => order.order_id.0,
            Self::Charge(charge) => charge.charge_id.0,
            Self::Refund(refund) => refund.refund_id.0,
        }
    }

    pub fn customer(&self) -> CustomerId {
        match self {
            Self::Order(order) => order.customer_id,
            Self::Charge(charge) => charge.customer_id,
            Self::Refund(refund) => refund.customer_id,
        }
    }

    pub fn request_id(&self) -> RequestId {
        match self {
            Self::Order(order) => order.request_id,
            Self::Charge(charge) => charge.request_id,
            Self::Refund(refund) => refund.request_id,
        }
    }

    /// What the gateway is asked for.
    pub fn ask(&self, digest: ScopeDigest) -> anyhow::Result<Ask> {
        let key = gateway_key(digest);
        Ok(match self {
            Self::Order(FrozenOrder { payment_method, client_reference: reference, .. })
            | Self::Charge(FrozenCharge { payment_method, client_reference: reference, .. }) => {
                Ask::Charge(gateway::ChargeRequest {
                    key,
                    amount: self.money()?,
                    payment_method: payment_method.clone(),
                    reference: reference.clone(),
                })
            }
            Self::Refund(refund) => Ask::Refund(gateway::RefundRequest {
                key,
                gateway_id: refund.payment_intent.clone(),
                amount: self.money()?,
            }),
        })
    }

    pub fn money(&self) -> anyhow::Result<Money> {
        let (amount, currency) = match self {
            Self::Order(order) => (order.total, &order.currency),
            Self::Charge(charge) => (charge.amount, &charge.currency),
            Self::Refund(refund) => (refund.amount, &refund.currency),
        };
        Currency::from_code(currency)
            .and_then(|currency| Money::new(amount, currency))
            .context("the frozen request of a claim has an impossible amount")
    }
}

impl FrozenOrder {
    pub fn new(customer_id: CustomerId, request_id: RequestId, request: &OrderRequest, priced: Priced) -> Self {
        Self {
            order_id: OrderId::mint(),
            charge_id: ChargeId::mint(),
            customer_id,
            request_id,
            lines: priced.lines,
            total: priced.total.amount_minor(),
            currency: priced.total.currency().code().to_owned(),
            payment_method: request.payment_method.clone(),
            client_reference: request.client_reference.clone(),
        }
    }
}

impl FrozenCharge {
    pub fn new(customer_id: CustomerId, request_id: RequestId, request: &charges::request::ChargeRequest) -> Self {
        Self {
            charge_id: ChargeId::mint(),
            customer_id,
            request_id,
            amount: request.amount,
            currency: request.currency.clone(),
            payment_method: request.payment_method.clone(),
            client_reference: request.client_reference.clone(),
        }
    }
}

/// The gateway's key for a scope. The gateway's keys are account-wide, so the scope is in it; it is a digest, so nobody reads
/// a customer or a key out of it; and it can be read back, so a trace at the gateway leads to our record.
pub fn gateway_key(digest: ScopeDigest) -> String {
    format!("chk_{digest}")
}

/// The scope's digest in a gateway key of ours.
pub fn key_digest(gateway_key: &str) -> Option<ScopeDigest> {
    let bytes = hex::decode(gateway_key.strip_prefix("chk_")?).ok()?;
    ScopeDigest::from_slice(&bytes)
}
