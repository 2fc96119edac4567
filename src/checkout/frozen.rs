//! The frozen request: all that is needed to finish an order without the client, as the claim committed it.
//!
//! What goes to the gateway is made from the scope's digest and the customer's own body alone. The ids minted here are ours:
//! they name the order and the charge in our books, and never leave in a charge request.

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::{
    gateway::ChargeRequest,
    idempotency::key::ScopeDigest,
    ids::{ChargeId, CustomerId, OrderId, RequestId},
    money::{Currency, Money},
    orders::{catalogue::Priced, request::OrderRequest},
    wire::order::Line,
};

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

    pub fn to_text(&self) -> anyhow::Result<String> {
        serde_json::to_string(self).context("freezing a request")
    }

    pub fn read(frozen: &str) -> anyhow::Result<Self> {
        serde_json::from_str(frozen).context("a frozen request cannot be read")
    }

    pub fn money(&self) -> anyhow::Result<Money> {
        Currency::from_code(&self.currency)
            .and_then(|currency| Money::new(self.total, currency))
            .context("the frozen request of a claim has an impossible amount")
    }

    pub fn charge_request(&self, digest: ScopeDigest) -> anyhow::Result<ChargeRequest> {
        Ok(ChargeRequest {
            key: gateway_key(digest),
            amount: self.money()?,
            payment_method: self.payment_method.clone(),
            reference: self.client_reference.clone(),
        })
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

/// The order that a scope bought, whether or not its record still exists.
pub async fn bought_by(pool: &sqlx::PgPool, digest: ScopeDigest) -> anyhow::Result<Option<OrderId>> {
    let mut connection = pool.acquire().await.context("no database connection")?;
    let bought =
        crate::orders::store::bought(&mut connection, &[digest.0]).await.context("asking what a key bought")?;
    Ok(bought.get(&digest.0).copied().map(OrderId))
}
