//! The end of what no program can find out: a person looks at the gateway's own pages and decides. Was the customer charged?
//!
//! The decision is kept for good, and then the record is finished by the same settle as every other. A charge is believed only
//! if the gateway confirms it under that id, for this key, amount and currency. A refund is believed with whatever amount the
//! gateway gave: it cannot be undone, so our books have to follow.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use time::OffsetDateTime;

use super::{
    Checkout,
    charge::Charged,
    finish::conclude,
    frozen::{Frozen, FrozenRefund, gateway_key as key_at_gateway, key_digest},
    settle::{Settled, settle},
};
use crate::{
    database,
    gateway::{Ask, Lookup, Outcome, RefundFound, RefundRequest, RefundStatus, Shown, ShownRefund},
    idempotency::{
        claim_store,
        key::ScopeDigest,
        record::{Claim, State},
        store,
    },
    money::Money,
    orders::refund_store as balance,
    reviews::store::NewReview,
};

/// How long the gateway may take to confirm a charge.
const CONFIRM_MAX: Duration = Duration::from_secs(5);

/// Why a key ends without a charge, as its stored 402 says.
const NOT_CHARGED: &str = "not_charged";

/// A key that waits for a person.
#[derive(Debug)]
pub struct Waiting {
    /// How the gateway knows it.
    pub gateway_key: String,
    /// What was asked for, if it can be read; a key whose request cannot is a person's business all the more.
    pub wanted: anyhow::Result<Frozen>,
    pub since: OffsetDateTime,
}

/// The verdict of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// This payment intent at the gateway took the money; or, of a refund, this refund gave it back.
    Charged { gateway_id: String },
    /// Nothing at the gateway did.
    NotCharged,
}

/// What comes of a verdict besides the end of its key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Consequences {
    /// Payment intents that took another amount under the key. Now that it ends without a charge, reconciliation takes them for
    /// what they are, and gives them back.
    pub to_give_back: Vec<String>,
}

/// The oldest keys that wait, at most `most`.
pub async fn waiting(checkout: &Checkout, most: i64) -> anyhow::Result<Vec<Waiting>> {
    let mut connection = checkout.pool.acquire().await.context("no database connection")?;
    let rows = claim_store::needing_review(&mut connection, most).await.context("looking for keys under review")?;
    rows.into_iter()
        .map(|row| {
            let gateway_key = key_at_gateway(row.digest);
            Ok(Waiting { wanted: Frozen::read(row.operation, &row.frozen), gateway_key, since: row.created_at })
        })
        .collect()
}

/// Ends the review of one key: an order with its charge, or a stored refusal after which a new key may be used.
pub async fn decide(
    checkout: &Checkout,
    gateway_key: &str,
    verdict: &Verdict,
    decided_by: &str,
) -> anyhow::Result<Consequences> {
    ensure!(!decided_by.trim().is_empty(), "a decision needs the name of who took it");
    let digest = key_digest(gateway_key).with_context(|| format!("{gateway_key} is no gateway key of ours"))?;
    let (mut frozen, first_sent_at) = under_review(checkout, digest).await?;
    let ask = frozen.ask(digest)?;
    let mut pending = false;
    let consequences = match (verdict, &ask, &mut frozen) {
        (Verdict::Charged { gateway_id }, Ask::Refund(request), Frozen::Refund(refund)) => {
            let given = confirm_refunded(checkout, gateway_id, request, refund).await?;
            (refund.amount, pending) = (given.amount, given.status == RefundStatus::Pending);
            Consequences::default()
        }
        (Verdict::Charged { gateway_id }, ..) => {
            confirm_charged(checkout, gateway_id, &ask).await?;
            Consequences::default()
        }
        (Verdict::NotCharged, ..) => confirm_not_charged(checkout, &ask, first_sent_at).await?,
    };

    // If we die here, the lease runs out, recovery finds nothing once more, and the key is under review again.
    let claim = take_over(checkout, digest).await?;
    let gateway_id = match verdict {
        Verdict::Charged { gateway_id } => Some(gateway_id.clone()),
        Verdict::NotCharged => None,
    };
    let outcome = match gateway_id.clone() {
        Some(gateway_id) if pending => Outcome::Pending { gateway_id },
        Some(gateway_id) => Outcome::Approved { gateway_id },
        None => not_charged(),
    };
    let (mut settlement, _) = conclude(claim, &frozen, Charged::Known(outcome))?;
    let customer = frozen.customer();
    settlement.review =
        Some(NewReview { key_digest: digest.0, customer, gateway_id, decided_by: decided_by.to_owned() });
    match settle(checkout, &settlement).await? {
        Settled::Done => Ok(consequences),
        Settled::Fenced => bail!("the key was taken over meanwhile; look again"),
    }
}

fn not_charged() -> Outcome {
    Outcome::Declined {
        gateway_id: None,
        decline_code: NOT_CHARGED.to_owned(),
        message: "The payment was not made, and will not be. A new attempt needs a new key.".to_owned(),
    }
}

async fn under_review(checkout: &Checkout, digest: ScopeDigest) -> anyhow::Result<(Frozen, OffsetDateTime)> {
    let mut connection = checkout.pool.acquire().await.context("no database connection")?;
    let newest = store::newest(&mut connection, &[digest]).await.context("reading the record")?;
    match newest.records.get(&digest) {
        Some(record) if record.holding.state() == State::NeedsReview => {
            Ok((Frozen::read(record.operation, &record.frozen)?, record.first_sent_at.unwrap_or(record.created_at)))
        }
        Some(record) => bail!("this key is not under review: it is {}", record.holding.state().name()),
        None => bail!("there is no record of this key"),
    }
}

/// It is believed only if the gateway says so itself.
async fn confirm_charged(checkout: &Checkout, gateway_id: &str, ask: &Ask) -> anyhow::Result<()> {
    let Ask::Charge(request) = ask else { bail!("a refund is confirmed as a refund") };
    match checkout.gateway.retrieve(gateway_id, request, CONFIRM_MAX).await {
        Lookup::Found(Outcome::Approved { .. }) => Ok(()),
        Lookup::Found(_) => bail!("the gateway says that {gateway_id} did not take {}", ask.amount()),
        Lookup::NothingFound => bail!("the gateway has no {gateway_id} that was made for this key"),
        Lookup::Unreachable { why } => bail!("the gateway cannot confirm it: {why}"),
    }
}

/// What the gateway gave back by it. The order has to have that much left: this is asked here, where a person
/// can be told what to do, and once more when it is settled.
async fn confirm_refunded(
    checkout: &Checkout,
    gateway_id: &str,
    request: &RefundRequest,
    refund: &FrozenRefund,
) -> anyhow::Result<ShownRefund> {
    let shown = match checkout.gateway.retrieve_refund(gateway_id, CONFIRM_MAX).await {
        RefundFound::Shown(shown) if shown.is_of(request) => shown,
        RefundFound::Shown(_) | RefundFound::NotThere => {
            bail!("the gateway has no {gateway_id} that was made for this key: a refund is named by its own id, re_…")
        }
        RefundFound::Unreachable { why } => bail!("the gateway cannot confirm it: {why}"),
    };
    match shown.status {
        RefundStatus::Pending | RefundStatus::Succeeded => {}
        RefundStatus::Failed => {
            bail!("the gateway says that {gateway_id} failed and gave nothing back: decide with --not-charged")
        }
        RefundStatus::Open => bail!("the gateway shows something that is not settled: {gateway_id}"),
    }
    let given = Money::new(shown.amount, request.amount.currency())
        .with_context(|| format!("{gateway_id} gave {} back, which is no amount of ours", shown.amount))?;
    let missing = given.amount_minor() - refund.amount;
    let mut connection = checkout.pool.acquire().await.context("no database connection")?;
    let left = balance::left(&mut connection, refund.order_id).await.context("asking what is left of the order")?;
    ensure!(
        missing <= left,
        "the gateway gave {given} back by {gateway_id}; {} is held back for it, and of order {} only {left} more (in minor units) is \
         neither given back nor held back. Other refunds of this order hold the rest: end those that are open first, then decide \
         this one again",
        request.amount,
        refund.order_id,
    );
    Ok(shown)
}

/// And that there was none, only if the gateway, asked once more, shows none, or only such as took another amount: they are
/// no charge of this order's.
async fn confirm_not_charged(
    checkout: &Checkout,
    ask: &Ask,
    first_sent_at: OffsetDateTime,
) -> anyhow::Result<Consequences> {
    let request = match ask {
        Ask::Charge(request) => request,
        Ask::Refund(request) => return confirm_not_refunded(checkout, request).await,
    };
    match checkout.gateway.shown(request, first_sent_at.unix_timestamp(), CONFIRM_MAX).await {
        Shown::NoMoney => Ok(Consequences::default()),
        Shown::OtherAmounts { gateway_ids } => Ok(Consequences { to_give_back: gateway_ids }),
        Shown::Charged { gateway_id } => {
            bail!("the gateway shows that {gateway_id} took {}: decide with --charged {gateway_id}", request.amount)
        }
        Shown::Unsettled { why } => bail!("the gateway shows something that is not settled: {why}"),
        Shown::Unreachable { why } => bail!("the gateway cannot confirm it: {why}"),
    }
}

async fn confirm_not_refunded(checkout: &Checkout, request: &RefundRequest) -> anyhow::Result<Consequences> {
    let shown = match checkout.gateway.refunds_under(request, CONFIRM_MAX).await {
        Ok(shown) => shown,
        Err(why) => bail!("the gateway cannot confirm it: {why}"),
    };
    for ShownRefund { gateway_id, status, amount, currency, .. } in shown {
        match status {
            RefundStatus::Failed => {}
            RefundStatus::Pending | RefundStatus::Succeeded => bail!(
                "the gateway shows that {gateway_id} gave {amount} {currency} (in minor units) back: decide with --charged {gateway_id}"
            ),
            RefundStatus::Open => bail!("the gateway shows something that is not settled: {gateway_id}"),
        }
    }
    Ok(Consequences::default())
}

async fn take_over(checkout: &Checkout, digest: ScopeDigest) -> anyhow::Result<Claim> {
    let lease = Duration::from_millis(checkout.timing.lease_ms);
    let mut tx = database::begin(&checkout.pool).await?;
    let claim = claim_store::take_over_reviewed(&mut tx, digest, lease).await?;
    tx.commit().await?;
    claim.context("the key was decided by somebody else meanwhile")
}
