//! What is particular about a refund: its amount is held back at the claim, under its order's lock, until its outcome is known.
//!
//! So two keys that race cannot give back more than was taken, and neither can one whose outcome is open and another. An
//! amount that was held back for what was surely never sent is free again; a retry under that key has to get it once more.

use std::collections::HashMap;

use sqlx::PgConnection;

use super::frozen::FrozenRefund;
use crate::{
    idempotency::key::ScopeDigest,
    ids::{CustomerId, EventId, OrderId, RefundId, RequestId},
    money::Money,
    orders::refund_store::{self as balance, Reserved},
    outbox::store::NewEvent,
    refunds::store::{self as refunds, GivenBack, NewRefund},
    wire::event::{ORDER_REFUNDED, OrderRefunded},
};

/// A refund as it was asked for; how much it will be is decided under the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedRefund {
    pub order: OrderId,
    pub customer: CustomerId,
    pub request_id: RequestId,
    /// The payment intent that took the money.
    pub payment_intent: String,
    /// What the order cost; of its currency is what goes back.
    pub total: Money,
    /// In minor units. Without it: all that is left.
    pub amount_minor: Option<i64>,
}

/// What is to be held back.
#[derive(Debug)]
pub(super) enum Reserving<'a> {
    New(&'a WantedRefund),
    /// It was given up unsent. Where the customer named no amount it is what is left now: nothing was ever sent that it would
    /// have to agree with.
    Again {
        frozen: &'a FrozenRefund,
        all_that_is_left: bool,
    },
}

impl Reserving<'_> {
    fn order(&self) -> OrderId {
        match self {
            Self::New(wanted) => wanted.order,
            Self::Again { frozen, .. } => frozen.order_id,
        }
    }
}

/// A refund may go on, frozen as it will be, or there is not that much left.
pub(super) type Reservation = Result<FrozenRefund, TooMuch>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMuch {
    /// What could still be given back, in minor units.
    pub left_minor: i64,
}

/// Holds the amounts back, in the order of the orders: two claims never wait for each other in a ring.
pub(super) async fn reserve(
    tx: &mut PgConnection,
    mut wanted: Vec<(ScopeDigest, Reserving<'_>)>,
) -> sqlx::Result<HashMap<ScopeDigest, Reservation>> {
    wanted.sort_by_key(|(digest, reserving)| (reserving.order(), *digest));
    let mut reservations = HashMap::with_capacity(wanted.len());
    for (digest, reserving) in wanted {
        let reservation = match reserving {
            Reserving::New(wanted) => reserve_new(tx, digest, wanted).await?,
            Reserving::Again { frozen, all_that_is_left } => reserve_again(tx, frozen, all_that_is_left).await?,
        };
        reservations.insert(digest, reservation);
    }
    Ok(reservations)
}

async fn reserve_new(tx: &mut PgConnection, digest: ScopeDigest, wanted: &WantedRefund) -> sqlx::Result<Reservation> {
    let reserved = balance::reserve(&mut *tx, wanted.order, wanted.amount_minor).await?;
    let amount = match reserved {
        Reserved::TooMuch { left_minor } => return Ok(Err(TooMuch { left_minor })),
        Reserved::Amount(minor) => Money::new(minor, wanted.total.currency())
            .ok_or_else(|| sqlx::Error::Decode(format!("a refund of {minor}").into()))?,
    };
    let id = RefundId::mint();
    let new = NewRefund { id, order: wanted.order, customer: wanted.customer, key_digest: digest.0, amount };
    let created_at = refunds::insert(tx, &new).await?;
    Ok(Ok(FrozenRefund {
        refund_id: id,
        order_id: wanted.order,
        customer_id: wanted.customer,
        request_id: wanted.request_id,
        payment_intent: wanted.payment_intent.clone(),
        amount: amount.amount_minor(),
        currency: amount.currency().code().to_owned(),
        created_at,
    }))
}

async fn reserve_again(
    tx: &mut PgConnection,
    frozen: &FrozenRefund,
    all_that_is_left: bool,
) -> sqlx::Result<Reservation> {
    let amount = (!all_that_is_left).then_some(frozen.amount);
    match balance::reserve(&mut *tx, frozen.order_id, amount).await? {
        Reserved::TooMuch { left_minor } => Ok(Err(TooMuch { left_minor })),
        Reserved::Amount(amount) => {
            refunds::reserve_again(tx, frozen.refund_id, amount).await?;
            Ok(Ok(FrozenRefund { amount, ..frozen.clone() }))
        }
    }
}

/// Nothing was sent for it, so nothing is held back for it any more.
///
/// A settlement whose COMMIT nobody heard is run again, and one that gives a claim back finds its record as before. So it is the
/// refund's own row that says whether its amount is still held back: what was freed already is another refund's by now.
pub(super) async fn release(tx: &mut PgConnection, frozen: &FrozenRefund) -> sqlx::Result<()> {
    if refunds::release(&mut *tx, frozen.refund_id).await? {
        balance::release(tx, frozen.order_id, frozen.amount).await?;
    }
    Ok(())
}

/// How a refund ends, for our books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefundEnd {
    GivenBack {
        gateway_id: String,
        /// The customer's bank has not confirmed it.
        pending: bool,
    },
    Refused {
        why: String,
    },
    /// Nothing was sent.
    Released,
}

/// Writes an ending down, in the settle transaction. The event that tells of it, if one does, is the answer.
pub(super) async fn end(
    tx: &mut PgConnection,
    frozen: &FrozenRefund,
    end: &RefundEnd,
) -> sqlx::Result<Option<NewEvent>> {
    match end {
        RefundEnd::GivenBack { gateway_id, pending } => {
            let event = EventId::mint();
            let given = GivenBack { gateway_id, amount_minor: frozen.amount, pending: *pending, event };
            let Some(held) = refunds::succeed(&mut *tx, frozen.refund_id, given).await? else {
                return Err(not_held_back(frozen));
            };
            hold_as_given(tx, frozen, held).await?;
            let sequence = balance::give_back(tx, frozen.order_id, frozen.amount).await?;
            Ok(Some(told(frozen, gateway_id, event, sequence)?))
        }
        RefundEnd::Refused { why } => {
            if !refunds::refuse(&mut *tx, frozen.refund_id, why).await? {
                return Err(not_held_back(frozen));
            }
            balance::release(tx, frozen.order_id, frozen.amount).await?;
            Ok(None)
        }
        RefundEnd::Released => {
            release(tx, frozen).await?;
            Ok(None)
        }
    }
}

/// A person may have accepted another amount than was held back: what was held for nothing is free again, and what is missing
/// must be left.
async fn hold_as_given(tx: &mut PgConnection, frozen: &FrozenRefund, held: i64) -> sqlx::Result<()> {
    if held > frozen.amount {
        balance::release(tx, frozen.order_id, held - frozen.amount).await?;
    } else if held < frozen.amount
        && let Reserved::TooMuch { left_minor } =
            balance::reserve(tx, frozen.order_id, Some(frozen.amount - held)).await?
    {
        let (id, amount) = (frozen.refund_id, frozen.amount);
        return Err(sqlx::Error::Protocol(format!(
            "refund {id} gave {amount} back, {held} are held back for it, and only {left_minor} more are left"
        )));
    }
    Ok(())
}

/// An outcome for an amount that nobody holds back: no money may be counted by it, and somebody must look.
fn not_held_back(frozen: &FrozenRefund) -> sqlx::Error {
    sqlx::Error::Protocol(format!("refund {} has an outcome and nothing held back for it", frozen.refund_id))
}

fn told(frozen: &FrozenRefund, gateway_id: &str, event: EventId, sequence: i32) -> sqlx::Result<NewEvent> {
    let payload = OrderRefunded {
        order_id: frozen.order_id,
        customer_id: frozen.customer_id,
        refund_id: frozen.refund_id,
        gateway_id: gateway_id.to_owned(),
        amount: frozen.amount,
        currency: frozen.currency.clone(),
    };
    let payload = serde_json::to_string(&payload).map_err(|error| sqlx::Error::Encode(error.into()))?;
    Ok(NewEvent { id: event, aggregate: frozen.order_id.into(), sequence, kind: ORDER_REFUNDED, payload })
}

/// As it stands in its record.
pub(super) fn to_text(frozen: &FrozenRefund) -> sqlx::Result<String> {
    serde_json::to_string(frozen).map_err(|error| sqlx::Error::Encode(error.into()))
}
