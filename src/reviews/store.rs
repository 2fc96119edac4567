//! The SQL of reviews.

use sqlx::PgConnection;

use crate::ids::CustomerId;

/// A decision, about to be kept for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewReview {
    pub key_digest: [u8; 32],
    pub customer: CustomerId,
    /// The payment intent that proves the charge, or nothing: it was not charged.
    pub gateway_id: Option<String>,
    pub decided_by: String,
}

pub async fn insert(tx: &mut PgConnection, review: &NewReview) -> sqlx::Result<()> {
    let verdict = if review.gateway_id.is_some() { "charged" } else { "not_charged" };
    sqlx::query!(
        "INSERT INTO reviews (key_digest, customer_id, verdict, gateway_id, decided_by) VALUES ($1, $2, $3, $4, $5)",
        &review.key_digest[..],
        review.customer.0,
        verdict,
        review.gateway_id.as_deref(),
        &review.decided_by,
    )
    .execute(tx)
    .await?;
    Ok(())
}
