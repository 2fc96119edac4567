//! The SQL of charges.

use std::collections::{HashMap, HashSet};

use anyhow::Context;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use super::Purpose;
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
    pub purpose: Purpose,
    /// Of a charge that stands alone.
    pub client_reference: Option<String>,
    /// What its customer is shown.
    pub claimed_at: OffsetDateTime,
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
    let purposes: Vec<&str> = charges.iter().map(|charge| charge.purpose.name()).collect();
    let references: Vec<Option<&str>> = charges.iter().map(|charge| charge.client_reference.as_deref()).collect();
    let claimed: Vec<OffsetDateTime> = charges.iter().map(|charge| charge.claimed_at).collect();
    sqlx::query!(
        "INSERT INTO charges (id, customer_id, key_digest, amount_minor, currency, status, gateway_id, decline_code, operation, client_reference, claimed_at)
         SELECT id, customer_id, key_digest, amount_minor, currency, status, gateway_id, decline_code, operation, client_reference, claimed_at
         FROM unnest($1::uuid[], $2::bigint[], $3::bytea[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::timestamptz[])
             AS n(id, customer_id, key_digest, amount_minor, currency, status, gateway_id, decline_code, operation, client_reference, claimed_at)",
        &ids,
        &customers,
        &digests as &[&[u8]],
        &amounts,
        &currencies as &[&str],
        &statuses as &[&str],
        &gateway_ids as &[Option<&str>],
        &decline_codes as &[Option<&str>],
        &purposes as &[&str],
        &references as &[Option<&str>],
        &claimed,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Which of the gateway's payment intents a charge of ours names.
pub async fn naming(connection: &mut PgConnection, gateway_ids: &[&str]) -> sqlx::Result<HashSet<String>> {
    let rows = sqlx::query_scalar!(
        r#"SELECT c.gateway_id AS "gateway_id!"
           FROM unnest($1::text[]) AS wanted(gateway_id)
           CROSS JOIN LATERAL (
               SELECT gateway_id FROM charges WHERE charges.gateway_id = wanted.gateway_id AND status = 'succeeded' LIMIT 1
           ) AS c"#,
        gateway_ids as &[&str],
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().collect())
}

/// What our books say of a key, for good.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Booked {
    pub succeeded: bool,
    /// At least once its customer was told that it was not charged.
    pub declined: bool,
}

/// What was booked under these keys. One that is not in the answer never came to an outcome.
pub async fn booked(connection: &mut PgConnection, digests: &[[u8; 32]]) -> sqlx::Result<HashMap<[u8; 32], Booked>> {
    let digests: Vec<&[u8]> = digests.iter().map(|digest| &digest[..]).collect();
    let rows = sqlx::query!(
        r#"SELECT wanted.digest AS "digest!",
                  EXISTS (SELECT FROM charges AS c WHERE c.key_digest = wanted.digest AND c.status = 'succeeded') AS "succeeded!",
                  EXISTS (SELECT FROM charges AS c WHERE c.key_digest = wanted.digest AND c.status = 'declined') AS "declined!"
           FROM unnest($1::bytea[]) AS wanted(digest)"#,
        &digests as &[&[u8]],
    )
    .fetch_all(connection)
    .await?;
    let booked = rows.into_iter().filter(|row| row.succeeded || row.declined);
    Ok(booked
        .filter_map(|row| {
            let digest = row.digest.try_into().ok()?;
            Some((digest, Booked { succeeded: row.succeeded, declined: row.declined }))
        })
        .collect())
}

/// What these scopes took, ever. Asked inside the claim, before anything is sent.
pub async fn taken(tx: &mut PgConnection, digests: &[[u8; 32]]) -> sqlx::Result<HashMap<[u8; 32], ChargeId>> {
    let digests: Vec<&[u8]> = digests.iter().map(|digest| &digest[..]).collect();
    let rows = sqlx::query!(
        r#"SELECT c.key_digest AS "key_digest!", c.id AS "id!"
           FROM unnest($1::bytea[]) AS wanted(digest)
           CROSS JOIN LATERAL (
               SELECT key_digest, id FROM charges WHERE charges.key_digest = wanted.digest AND status = 'succeeded' LIMIT 1
           ) AS c"#,
        &digests as &[&[u8]],
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().filter_map(|row| Some((row.key_digest.try_into().ok()?, ChargeId(row.id)))).collect())
}

/// A charge as its customer sees it.
#[derive(Debug)]
pub struct StoredCharge {
    pub id: Uuid,
    pub status: String,
    pub amount_minor: i64,
    pub currency: String,
    pub gateway_id: Option<String>,
    pub decline_code: Option<String>,
    pub client_reference: Option<String>,
    pub created_at: OffsetDateTime,
}

/// One charge of this customer, an order's or one that stands alone. Somebody else's is not found.
pub async fn find(pool: &PgPool, customer: CustomerId, id: ChargeId) -> anyhow::Result<Option<StoredCharge>> {
    sqlx::query_as!(
        StoredCharge,
        r#"SELECT id, status, amount_minor, currency, gateway_id, decline_code, client_reference,
                  COALESCE(claimed_at, created_at) AS "created_at!"
           FROM charges WHERE id = $1 AND customer_id = $2"#,
        id.0,
        customer.0,
    )
    .fetch_optional(pool)
    .await
    .context("reading a charge")
}

/// The succeeded charges of this customer that stand alone, newest first, from behind `after`.
pub async fn list(
    pool: &PgPool,
    customer: CustomerId,
    after: Option<ChargeId>,
    most: i64,
) -> anyhow::Result<Vec<StoredCharge>> {
    sqlx::query_as!(
        StoredCharge,
        r#"SELECT id, status, amount_minor, currency, gateway_id, decline_code, client_reference,
                  COALESCE(claimed_at, created_at) AS "created_at!"
           FROM charges
           WHERE customer_id = $1 AND operation = 'charges.create' AND status = 'succeeded' AND ($2::uuid IS NULL OR id < $2)
           ORDER BY id DESC LIMIT $3"#,
        customer.0,
        after.map(|id| id.0),
        most,
    )
    .fetch_all(pool)
    .await
    .context("reading charges")
}
