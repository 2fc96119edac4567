//! One example per body. Those that this program sends are made of the types that it sends, so they cannot drift.

use serde::Serialize;
use serde_json::{Value, json};
use time::{OffsetDateTime, macros::datetime};
use uuid::{Uuid, uuid};

use crate::{
    ids::{ChargeId, OrderId, RefundId, RequestId},
    wire::{
        charge::ChargeBody,
        customer::EmailBody,
        json::FieldError,
        order::{ChargeOfOrder, Line, OrderBody},
        problem::{Code, Problem},
        refund::RefundBody,
    },
};

pub(super) const KEY: &str = "7d0e5b6c-3f5a-4c66-9a3e-2f4c8f1f4b11";
const ORDER: Uuid = uuid!("0199a3b2-6c41-7e53-8f2a-5b1d0c9e7a10");
const CHARGE: Uuid = uuid!("0199a3b2-6c41-7e53-8f2a-5b1d0c9e7a11");
const REFUND: Uuid = uuid!("0199a3c7-1f08-7d15-9b44-e0a2c6f81d20");
const REQUEST: Uuid = uuid!("0199a3b2-6c40-7abc-a1d3-94e2b7f05c30");
const AT: OffsetDateTime = datetime!(2026-03-02 09:30:00 UTC);
const AT_TEXT: &str = "2026-03-02T09:30:00Z";
const INTENT: &str = "pi_3QxQ4nHq2eZvKYlo";

pub fn order_request() -> Value {
    json!({
        "items": [{"sku": "grinder", "quantity": 1}], "total": 4299, "currency": "eur", "payment_method": "pm_card_visa",
        "client_reference": "tap-1"
    })
}

pub(super) fn refund_request() -> Value {
    json!({"amount": 1000})
}

pub(super) fn charge_request() -> Value {
    json!({"amount": 4299, "currency": "eur", "payment_method": "pm_card_visa", "client_reference": "tap-1"})
}

pub(super) fn email_request() -> Value {
    json!({"email": "ada@example.org"})
}

pub(super) fn order() -> Value {
    order_as(Some(RequestId(REQUEST)))
}

pub(super) fn order_shown() -> Value {
    order_as(None)
}

fn order_as(request_id: Option<RequestId>) -> Value {
    let lines = [Line { sku: "grinder".to_owned(), quantity: 1, unit_price: 4299 }];
    json_of(&OrderBody {
        id: OrderId(ORDER),
        status: "paid",
        items: &lines,
        total: 4299,
        refunded: 0,
        currency: "eur",
        charge: ChargeOfOrder { id: ChargeId(CHARGE), status: "succeeded", gateway_id: INTENT },
        client_reference: Some("tap-1"),
        created_at: AT,
        request_id,
    })
}

pub(super) fn order_list() -> Value {
    json!({"data": [order_shown()], "has_more": true, "next": ORDER})
}

pub(super) fn refund() -> Value {
    refund_as(Some(RequestId(REQUEST)))
}

pub(super) fn refund_shown() -> Value {
    refund_as(None)
}

fn refund_as(request_id: Option<RequestId>) -> Value {
    json_of(&RefundBody {
        id: RefundId(REFUND),
        order_id: OrderId(ORDER),
        status: "succeeded",
        amount: 1000,
        currency: "eur",
        gateway_id: Some("re_3QxQ4nHq2eZvKYlo"),
        created_at: AT,
        request_id,
    })
}

pub(super) fn refund_list() -> Value {
    json!({"data": [refund_shown()], "has_more": false})
}

pub(super) fn charge() -> Value {
    charge_as(Some(RequestId(REQUEST)))
}

pub(super) fn charge_shown() -> Value {
    charge_as(None)
}

fn charge_as(request_id: Option<RequestId>) -> Value {
    json_of(&ChargeBody {
        id: ChargeId(CHARGE),
        status: "succeeded",
        amount: 4299,
        currency: "eur",
        gateway_id: Some(INTENT),
        decline_code: None,
        client_reference: Some("tap-1"),
        created_at: AT,
        request_id,
    })
}

pub(super) fn charge_list() -> Value {
    json!({"data": [charge_shown()], "has_more": true, "next": CHARGE})
}

pub(super) fn key_record() -> Value {
    json!({
        "operation": "orders.create", "key": KEY, "state": "completed", "created_at": AT_TEXT,
        "expires_at": "2026-03-05T09:30:00Z",
        "response": {"status": 201, "location": format!("/v1/orders/{ORDER}"), "body": order()}
    })
}

pub(super) fn email() -> Value {
    json_of(&EmailBody { email: "ada@example.org", updated_at: AT })
}

pub(super) fn gateway_event() -> Value {
    json!({
        "id": "evt_1QxQ4nHq2eZvKYlo", "type": "payment_intent.succeeded",
        "data": {"object": {"id": INTENT, "object": "payment_intent", "status": "succeeded"}}
    })
}

pub(super) fn received() -> Value {
    json!({"received": true})
}

pub(super) fn request_log() -> Value {
    json!({"requests": [{
        "at": AT_TEXT, "request_id": REQUEST, "method": "POST", "path": "/v1/orders", "customer": 42, "key": KEY,
        "status": 201, "code": null, "replayed": false, "took_ms": 11.4
    }]})
}

pub(super) fn ready() -> Value {
    json!({"ready": true, "days_ahead": 4})
}

pub(super) fn open_api() -> Value {
    json!({"openapi": "3.1.0"})
}

/// A problem of this code, as it is sent.
pub fn problem(code: Code) -> Value {
    let mut problem = match code {
        Code::ValidationFailed => Problem::invalid(vec![FieldError {
            pointer: "/total".to_owned(),
            detail: "is 4300, but the items cost 4299".to_owned(),
        }]),
        _ => Problem::new(code, code.title()),
    };
    if code == Code::CardDeclined {
        problem.decline_code = Some("insufficient_funds".to_owned());
    }
    serde_json::from_slice(&problem.body(RequestId(REQUEST))).unwrap_or_default()
}

fn json_of(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}
