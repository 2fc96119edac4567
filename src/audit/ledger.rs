//! The gateway's ledger: what was captured, in the words of the one who has the money?

use anyhow::Context;
use serde::Deserialize;
use sqlx::PgPool;
use time::OffsetDateTime;

use super::listing;
use crate::database;

/// Our gateway key is this and the scope's digest in hex.
const KEY_PREFIX: &str = "chk_";

/// One payment that took money.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Capture {
    pub payment_intent: String,
    pub idempotency_key: Option<String>,
    /// The customer's client_reference, when there was one.
    pub reference: Option<String>,
    /// In minor units.
    pub amount: i64,
    pub currency: String,
    /// How much of it went back, in minor units.
    pub amount_refunded: i64,
}

impl Capture {
    /// Whether the customer has all of it back.
    pub fn is_undone(&self) -> bool {
        self.amount_refunded >= self.amount
    }

    /// The digest of the scope that asked for this payment, if it was sent under a gateway key of ours.
    pub fn key_digest(&self) -> Option<[u8; 32]> {
        let mut digest = [0; 32];
        let hex = self.idempotency_key.as_deref()?.strip_prefix(KEY_PREFIX)?;
        hex::decode_to_slice(hex, &mut digest).ok()?;
        Some(digest)
    }
}

/// All captures, as they stood some time after `asked_at`.
#[derive(Debug, Clone)]
pub struct Ledger {
    /// The database's clock before the question. A charge booked later may be missing here without being wrong; one booked
    /// earlier was captured before it was booked, and must be here.
    pub asked_at: OffsetDateTime,
    pub captures: Vec<Capture>,
}

#[derive(Debug, Deserialize)]
struct Listing {
    captures: Vec<Capture>,
    count: usize,
    amount: i64,
}

impl Ledger {
    /// Reads the database's clock, then the whole ledger. A TLS provider must be installed, as for every HTTP client here.
    pub async fn fetch(pool: &PgPool, gateway_url: &str) -> anyhow::Result<Self> {
        let asked_at = database::clock(pool).await.context("reading the database's clock")?;
        let url = format!("{}/_mock/ledger", gateway_url.trim_end_matches('/'));
        let listing: Listing =
            listing::read(&url).await.with_context(|| format!("cannot read the gateway's ledger at {url}"))?;
        let amount: i64 = listing.captures.iter().map(|capture| capture.amount).sum();
        anyhow::ensure!(
            listing.count == listing.captures.len() && listing.amount == amount,
            "the gateway's ledger contradicts itself: it lists {} captures of {amount} and announces {} of {}",
            listing.captures.len(),
            listing.count,
            listing.amount,
        );
        Ok(Self { asked_at, captures: listing.captures })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_gateway_key_of_ours_names_a_digest() {
        let under = |key: Option<&str>| Capture {
            payment_intent: "pi_1".to_owned(),
            idempotency_key: key.map(str::to_owned),
            reference: None,
            amount: 1,
            currency: "eur".to_owned(),
            amount_refunded: 0,
        };
        assert_eq!(under(Some(&format!("chk_{}", "0f".repeat(32)))).key_digest(), Some([0x0f; 32]));
        for other in [None, Some("chk_"), Some("chk_0f"), Some("random"), Some(&format!("chk_{}", "0f".repeat(33)))] {
            assert_eq!(under(other).key_digest(), None, "{other:?}");
        }
    }
}
