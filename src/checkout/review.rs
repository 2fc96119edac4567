//! The end of what no program can find out: a person looks at the gateway's own pages and decides. Was the customer charged?
//!
//! The decision is kept for good, and then the record is finished by the same settle as every other. A charge is believed only
//! if the gateway confirms it under that id, for this key, amount and currency.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use time::OffsetDateTime;

use super::{
    Checkout,
    charge::Charged,
    finish::conclude,
    frozen::{FrozenOrder, gateway_key as key_at_gateway, key_digest},
    settle::{Settled, settle},
};
use crate::{
    database,
    gateway::{ChargeRequest, Lookup, Outcome},
    idempotency::{
        claim_store,
        key::ScopeDigest,
        record::{Claim, State},
        store,
    },
    reviews::{self, store::NewReview},
};

/// How long the gateway may take to confirm a charge.
const CONFIRM_MAX: Duration = Duration::from_secs(5);

/// Why a key ends without a charge, as its stored 402 says.
const NOT_CHARGED: &str = "not_charged";

/// A key that waits for a person.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// How the gateway knows it.
    pub gateway_key: String,
    pub order: FrozenOrder,
    pub since: OffsetDateTime,
}

/// The verdict of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// This payment intent at the gateway took the money.
    Charged { gateway_id: String },
    /// Nothing at the gateway did.
    NotCharged,
}

/// The oldest keys that wait, at most `most`.
pub async fn waiting(checkout: &Checkout, most: i64) -> anyhow::Result<Vec<Waiting>> {
    let mut connection = checkout.pool.acquire().await.context("no database connection")?;
    let rows = claim_store::needing_review(&mut connection, most).await.context("looking for keys under review")?;
    rows.into_iter()
        .map(|row| {
            let order = FrozenOrder::read(&row.frozen)?;
            Ok(Waiting { gateway_key: key_at_gateway(row.digest), order, since: row.created_at })
        })
        .collect()
}

/// Ends the review of one key: an order with its charge, or a stored refusal after which a new key may be used.
pub async fn decide(checkout: &Checkout, gateway_key: &str, verdict: &Verdict, decided_by: &str) -> anyhow::Result<()> {
    ensure!(!decided_by.trim().is_empty(), "a decision needs the name of who took it");
    let digest = key_digest(gateway_key).with_context(|| format!("{gateway_key} is no gateway key of ours"))?;
    let frozen = under_review(checkout, digest).await?;
    if let Verdict::Charged { gateway_id } = verdict {
        confirm(checkout, gateway_id, &frozen.charge_request(digest)?).await?;
    }
    let claim = take_over(checkout, digest, &frozen, verdict, decided_by).await?;

    let outcome = match verdict {
        Verdict::Charged { gateway_id } => Outcome::Approved { gateway_id: gateway_id.clone() },
        Verdict::NotCharged => Outcome::Declined {
            gateway_id: None,
            decline_code: NOT_CHARGED.to_owned(),
            message: "The payment was not made, and will not be. A new attempt needs a new key.".to_owned(),
        },
    };
    let (settlement, _) = conclude(claim, &frozen, Charged::Known(outcome))?;
    match settle(checkout, &settlement).await? {
        Settled::Done => Ok(()),
        Settled::Fenced => bail!("the key was taken over meanwhile; look again"),
    }
}

async fn under_review(checkout: &Checkout, digest: ScopeDigest) -> anyhow::Result<FrozenOrder> {
    let mut connection = checkout.pool.acquire().await.context("no database connection")?;
    let newest = store::newest(&mut connection, &[digest]).await.context("reading the record")?;
    match newest.records.get(&digest) {
        Some(record) if record.holding.state() == State::NeedsReview => FrozenOrder::read(&record.frozen),
        Some(record) => bail!("this key is not under review: it is {}", record.holding.state().name()),
        None => bail!("there is no record of this key"),
    }
}

/// A charge is believed only if the gateway says so itself.
async fn confirm(checkout: &Checkout, gateway_id: &str, request: &ChargeRequest) -> anyhow::Result<()> {
    match checkout.gateway.retrieve(gateway_id, request, CONFIRM_MAX).await {
        Lookup::Found(Outcome::Approved { .. }) => Ok(()),
        Lookup::Found(_) => bail!("the gateway says that {gateway_id} did not take {}", request.amount),
        Lookup::NothingFound => bail!("the gateway has no {gateway_id} that was made for this key"),
        Lookup::Unreachable { why } => bail!("the gateway cannot confirm it: {why}"),
    }
}

/// Keeps the decision and takes the record over, both or neither.
async fn take_over(
    checkout: &Checkout,
    digest: ScopeDigest,
    frozen: &FrozenOrder,
    verdict: &Verdict,
    decided_by: &str,
) -> anyhow::Result<Claim> {
    let lease = Duration::from_millis(checkout.timing.lease_ms);
    let gateway_id = match verdict {
        Verdict::Charged { gateway_id } => Some(gateway_id.as_str()),
        Verdict::NotCharged => None,
    };
    let review = NewReview { key_digest: digest.0, customer: frozen.customer_id, gateway_id, decided_by };

    let mut tx = database::begin(&checkout.pool).await?;
    let claim = claim_store::take_over_reviewed(&mut tx, digest, lease).await?;
    let claim = claim.context("the key was decided by somebody else meanwhile")?;
    reviews::store::insert(&mut tx, review).await?;
    tx.commit().await?;
    Ok(claim)
}
