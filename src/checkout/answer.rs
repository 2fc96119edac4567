//! What an outcome makes true, and the bytes of its answer, by what was asked for.

use anyhow::bail;

use super::{
    frozen::{Frozen, FrozenCharge, FrozenOrder, FrozenRefund},
    refund::RefundEnd,
    settle::Booked,
};
use crate::{
    charges::{
        Purpose,
        store::{ChargeResult, NewCharge},
    },
    idempotency::record::{Claim, StoredResponse},
    ids::EventId,
    money::Money,
    orders::store::NewOrder,
    outbox::store::NewEvent,
    wire::{
        charge::{self, ChargeBody},
        event::{CHARGE_SUCCEEDED, ChargeSucceeded, ORDER_CREATED, OrderCreated},
        order::{self, ChargeOfOrder, OrderBody},
        problem::{self, Code, Problem},
        refund::{self, RefundBody},
    },
};

/// The money moved.
pub(super) fn approved(claim: &Claim, frozen: &Frozen, gateway_id: String) -> anyhow::Result<(Booked, StoredResponse)> {
    let amount = frozen.money()?;
    match frozen {
        Frozen::Order(order) => bought(claim, order, amount, gateway_id),
        Frozen::Charge(charge) => taken(claim, charge, amount, gateway_id),
        Frozen::Refund(refund) => given_back(refund, gateway_id, false),
    }
}

/// The money is on its way: to be counted as given back, until the gateway says otherwise.
pub(super) fn pending(frozen: &Frozen, gateway_id: String) -> anyhow::Result<(Booked, StoredResponse)> {
    match frozen {
        Frozen::Refund(refund) => given_back(refund, gateway_id, true),
        Frozen::Order(_) | Frozen::Charge(_) => bail!("a charge is taken or not: {gateway_id} is neither"),
    }
}

/// The gateway refused for good.
pub(super) fn refused(
    claim: &Claim,
    frozen: &Frozen,
    gateway_id: Option<String>,
    decline_code: String,
    message: String,
) -> anyhow::Result<(Booked, StoredResponse)> {
    let declined = ChargeResult::Declined { gateway_id, decline_code: decline_code.clone() };
    let (booked, code) = match frozen {
        Frozen::Order(order) => {
            let charge = NewCharge {
                id: order.charge_id,
                customer: order.customer_id,
                key_digest: claim.digest.0,
                amount: frozen.money()?,
                purpose: Purpose::Order,
                client_reference: None,
                claimed_at: claim.now,
                result: declined,
            };
            (Booked::Declined(charge), Code::CardDeclined)
        }
        Frozen::Charge(charge) => {
            (Booked::Declined(new_charge(claim, charge, frozen.money()?, declined)), Code::CardDeclined)
        }
        Frozen::Refund(refund) => {
            let end = RefundEnd::Refused { why: message.clone() };
            (Booked::Refund(Box::new((refund.clone(), end))), Code::RefundRefused)
        }
    };
    let mut problem = Problem::new(code, message);
    problem.decline_code = (code == Code::CardDeclined).then_some(decline_code);
    let response = StoredResponse {
        status: code.status(),
        content_type: problem::CONTENT_TYPE.to_owned(),
        location: None,
        body: problem.body(frozen.request_id()),
    };
    Ok((booked, response))
}

/// Certainly nothing was sent.
pub(super) fn not_sent(frozen: &Frozen) -> Booked {
    match frozen {
        Frozen::Order(_) | Frozen::Charge(_) => Booked::Nothing,
        Frozen::Refund(refund) => Booked::Refund(Box::new((refund.clone(), RefundEnd::Released))),
    }
}

fn bought(
    claim: &Claim,
    frozen: &FrozenOrder,
    total: Money,
    gateway_id: String,
) -> anyhow::Result<(Booked, StoredResponse)> {
    let body = OrderBody {
        id: frozen.order_id,
        status: "paid",
        items: &frozen.lines,
        total: frozen.total,
        refunded: 0,
        currency: &frozen.currency,
        charge: ChargeOfOrder { id: frozen.charge_id, status: "succeeded", gateway_id: &gateway_id },
        client_reference: frozen.client_reference.as_deref(),
        created_at: claim.now,
        request_id: Some(frozen.request_id),
    };
    let response = created(order::location(frozen.order_id), &body)?;
    let order = NewOrder {
        id: frozen.order_id,
        customer: frozen.customer_id,
        charge: frozen.charge_id,
        key_digest: claim.digest.0,
        total,
        lines: frozen.lines.clone(),
        client_reference: frozen.client_reference.clone(),
        created_at: claim.now,
    };
    let payload = OrderCreated {
        order_id: frozen.order_id,
        customer_id: frozen.customer_id,
        charge_id: frozen.charge_id,
        gateway_id: gateway_id.clone(),
        lines: frozen.lines.clone(),
        total: frozen.total,
        currency: frozen.currency.clone(),
    };
    let event = NewEvent {
        id: EventId::mint(),
        aggregate: frozen.order_id.into(),
        sequence: 1,
        kind: ORDER_CREATED,
        payload: serde_json::to_string(&payload)?,
    };
    let charge = NewCharge {
        id: frozen.charge_id,
        customer: frozen.customer_id,
        key_digest: claim.digest.0,
        amount: total,
        purpose: Purpose::Order,
        client_reference: None,
        claimed_at: claim.now,
        result: ChargeResult::Succeeded { gateway_id },
    };
    Ok((Booked::Order(Box::new((charge, order, event))), response))
}

fn taken(
    claim: &Claim,
    frozen: &FrozenCharge,
    amount: Money,
    gateway_id: String,
) -> anyhow::Result<(Booked, StoredResponse)> {
    let body = ChargeBody {
        id: frozen.charge_id,
        status: "succeeded",
        amount: frozen.amount,
        currency: &frozen.currency,
        gateway_id: Some(&gateway_id),
        decline_code: None,
        client_reference: frozen.client_reference.as_deref(),
        created_at: claim.now,
        request_id: Some(frozen.request_id),
    };
    let response = created(charge::location(frozen.charge_id), &body)?;
    let payload = ChargeSucceeded {
        charge_id: frozen.charge_id,
        customer_id: frozen.customer_id,
        gateway_id: gateway_id.clone(),
        amount: frozen.amount,
        currency: frozen.currency.clone(),
        client_reference: frozen.client_reference.clone(),
    };
    let event = NewEvent {
        id: EventId::mint(),
        aggregate: frozen.charge_id.into(),
        sequence: 1,
        kind: CHARGE_SUCCEEDED,
        payload: serde_json::to_string(&payload)?,
    };
    let charge = new_charge(claim, frozen, amount, ChargeResult::Succeeded { gateway_id });
    Ok((Booked::Charge(Box::new((charge, event))), response))
}

fn given_back(frozen: &FrozenRefund, gateway_id: String, pending: bool) -> anyhow::Result<(Booked, StoredResponse)> {
    let body = RefundBody {
        id: frozen.refund_id,
        order_id: frozen.order_id,
        status: if pending { "pending" } else { "succeeded" },
        amount: frozen.amount,
        currency: &frozen.currency,
        gateway_id: Some(&gateway_id),
        created_at: frozen.created_at,
        request_id: Some(frozen.request_id),
    };
    let response = created(refund::location(frozen.order_id, frozen.refund_id), &body)?;
    Ok((Booked::Refund(Box::new((frozen.clone(), RefundEnd::GivenBack { gateway_id, pending }))), response))
}

fn new_charge(claim: &Claim, frozen: &FrozenCharge, amount: Money, result: ChargeResult) -> NewCharge {
    NewCharge {
        id: frozen.charge_id,
        customer: frozen.customer_id,
        key_digest: claim.digest.0,
        amount,
        purpose: Purpose::Alone,
        client_reference: frozen.client_reference.clone(),
        claimed_at: claim.now,
        result,
    }
}

/// The 201, as bytes: what is stored now is what every replay sends.
fn created(location: String, body: &impl serde::Serialize) -> anyhow::Result<StoredResponse> {
    Ok(StoredResponse {
        status: 201,
        content_type: "application/json".to_owned(),
        location: Some(location),
        body: serde_json::to_vec(body)?,
    })
}
