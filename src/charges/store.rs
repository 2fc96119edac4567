//! The SQL of charges.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::{
    ids::{ChargeId, CustomerId},
    money::Money,
};

/// A charge whose outcome is known. Its row is dated when it is written: by then the gateway's books have it too.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCharge {
    pub id: ChargeId,
    pub customer: CustomerId,
    pub key_digest: [u8; 32],
    pub amount: Money,
    pub result: ChargeResult,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChargeResult {
    Succeeded { gateway_id: String },
    Declined { gateway_id: Option<String>, decline_code: String },
}

impl ChargeResult {
    fn status(&self) -> &'static str {
        match self {
            Self::Succeeded { .. } => "succeeded",
            Self::Declined { .. } => "declined",
        }
    }

    fn gateway_id(&self) -> Option<&str> {
        match self {
            Self::Succeeded { gateway_id } => Some(gateway_id),
            Self::Declined { gateway_id, .. } => gateway_id.as_deref(),
        }
    }

    fn decline_code(&self) -> Option<&str> {
        match self {
            Self::Succeeded { .. } => None,
            Self::Declined { decline_code, .. } => Some(decline_code),
        }
    }
}

pub async fn insert(tx: &mut PgConnection, charges: &[&NewCharge]) -> sqlx::Result<()> {
    let ids: Vec<Uuid> = charges.iter().map(|charge| charge.id.0).collect();
    let customers: Vec<i64> = charges.iter().map(|charge| charge.customer.0).collect();
    let digests: Vec<&[u8]> = charges.iter().map(|charge| &charge.key_digest[..]).collect();
    let amounts: Vec<i64> = charges.iter().map(|charge| charge.amount.amount_minor()).collect();
    let currencies: Vec<&str> = charges.iter().map(|charge| charge.amount.currency().code()).collect();
    let statuses: Vec<&str> = charges.iter().map(|charge| charge.result.status()).collect();
    let gateway_ids: Vec<Option<&str>> = charges.iter().map(|charge| charge.result.gateway_id()).collect();
    let decline_codes: Vec<Option<&str>> = charges.iter().map(|charge| charge.result.decline_code()).collect();
    sqlx::query!(
        "INSERT INTO charges (id, customer_id, key_digest, amount_minor, currency, status, gateway_id, decline_code)
         SELECT id, customer_id, key_digest, amount_minor, currency, status, gateway_id, decline_code
         FROM unnest($1::uuid[], $2::bigint[], $3::bytea[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[])
             AS n(id, customer_id, key_digest, amount_minor, currency, status, gateway_id, decline_code)",
        &ids,
        &customers,
        &digests as &[&[u8]],
        &amounts,
        &currencies as &[&str],
        &statuses as &[&str],
        &gateway_ids as &[Option<&str>],
        &decline_codes as &[Option<&str>],
    )
    .execute(tx)
    .await?;
    Ok(())
}
