//! The shapes of bodies and parameters, as JSON Schema 2020-12. The limits are the code's own constants.

use serde_json::{Value, json};

use crate::{
    customers::request::{EMAIL_LENGTH_MAX, EMAIL_NAME_LENGTH_MAX, HOST_LABEL_LENGTH_MAX},
    http::paging::LIMIT_MAX,
    idempotency::key::{KEY_LENGTH_MAX, Operation},
    money::{AMOUNT_MINOR_MAX, Currency},
    orders::request::{ITEMS_MAX, QUANTITY_MAX, SKU_LENGTH_MAX},
    wire::{
        payment::{CLIENT_REFERENCE_LENGTH_MAX, METHOD_LENGTH_MAX},
        problem::{Code, Retry},
    },
};

/// Every schema that has a name, in the order of the documentation.
pub fn named() -> Vec<(&'static str, Value)> {
    vec![
        ("OrderRequest", order_request()),
        ("Item", item()),
        ("RefundRequest", refund_request()),
        ("ChargeRequest", charge_request()),
        ("EmailRequest", email_request()),
        ("GatewayEvent", gateway_event()),
        ("Order", order()),
        ("Line", line()),
        ("OrderList", list("Order")),
        ("Refund", refund()),
        ("RefundList", list("Refund")),
        ("Charge", charge()),
        ("ChargeList", list("Charge")),
        ("KeyRecord", key_record()),
        ("Email", email()),
        ("Received", received()),
        ("RequestLog", request_log()),
        ("Ready", ready()),
        ("OpenApi", open_api()),
        ("Problem", problem()),
        ("FieldError", field_error()),
    ]
}

pub fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// What a client sends: a field that is not listed is refused. `null` is the same as absent.
fn request(description: &str, required: &[&str], properties: Value) -> Value {
    json!({
        "type": "object", "description": description, "required": required, "properties": properties,
        "additionalProperties": false
    })
}

/// What a client gets: fields may be added one day, so nothing is said about others.
fn answer(description: &str, required: &[&str], properties: Value) -> Value {
    json!({"type": "object", "description": description, "required": required, "properties": properties})
}

fn order_request() -> Value {
    request(
        "What to buy, and what the customer believes to pay for it.",
        &["items", "total", "currency", "payment_method"],
        json!({
            "items": {"type": "array", "minItems": 1, "maxItems": ITEMS_MAX, "items": reference("Item")},
            "total": amount("The sum of all lines. Another total than the catalogue's is refused, never charged."),
            "currency": currency(),
            "payment_method": payment_method(),
            "client_reference": nullable(client_reference()),
        }),
    )
}

fn item() -> Value {
    request(
        "One line of what to buy.",
        &["sku", "quantity"],
        json!({
            "sku": {"type": "string", "pattern": format!("^[a-z0-9_-]{{1,{SKU_LENGTH_MAX}}}$"), "description": "What the catalogue calls it."},
            "quantity": {"type": "integer", "minimum": 1, "maximum": QUANTITY_MAX},
        }),
    )
}

fn refund_request() -> Value {
    let amount = amount("How much to give back; everything that is left if it is not said.");
    request("How much of an order's money to give back.", &[], json!({"amount": nullable(amount)}))
}

fn charge_request() -> Value {
    request(
        "Money to take, without an order.",
        &["amount", "currency", "payment_method"],
        json!({
            "amount": amount("What to take."),
            "currency": currency(),
            "payment_method": payment_method(),
            "client_reference": nullable(client_reference()),
        }),
    )
}

fn email_request() -> Value {
    request("Where receipts are sent.", &["email"], json!({"email": address()}))
}

/// Said as what is checked. `format: email` is another set, which differs from one validator to the next.
fn address() -> Value {
    let name = format!(r"[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~.\-]{{1,{EMAIL_NAME_LENGTH_MAX}}}");
    let label = format!("[A-Za-z0-9]([A-Za-z0-9-]{{0,{}}}[A-Za-z0-9])?", HOST_LABEL_LENGTH_MAX - 2);
    json!({
        "type": "string", "maxLength": EMAIL_LENGTH_MAX, "pattern": format!(r"^{name}@{label}(\.{label})+$"),
        "description": "An e-mail address. Whether anybody reads it only a mail can tell.",
    })
}

fn gateway_event() -> Value {
    json!({
        "type": "object",
        "description": "An event as the gateway writes it; only the raw bytes are signed.",
        "required": ["id", "type", "data"],
        "properties": {
            "id": {"type": "string", "pattern": "^[!-~]{1,255}$"},
            "type": {"type": "string", "pattern": "^[!-~]{1,255}$"},
            "data": {
                "type": "object", "required": ["object"],
                "properties": {"object": {"type": "object", "description": "What it is about, as it is now."}}
            },
        }
    })
}

fn order() -> Value {
    answer(
        "An order that was paid for.",
        &["id", "status", "items", "total", "refunded", "currency", "charge", "created_at"],
        json!({
            "id": id("The order's name."),
            "status": {"type": "string", "enum": ["paid", "partially_refunded", "refunded"]},
            "items": {"type": "array", "items": reference("Line")},
            "total": amount("What was paid."),
            "refunded": {"type": "integer", "minimum": 0, "maximum": AMOUNT_MINOR_MAX,
                         "description": "What was given back since, in minor units."},
            "currency": currency(),
            "charge": answer(
                "The charge that paid for it.",
                &["id", "status", "gateway_id"],
                json!({
                    "id": id("The charge's name."),
                    "status": {"type": "string", "const": "succeeded"},
                    "gateway_id": gateway_id(),
                }),
            ),
            "client_reference": client_reference(),
            "created_at": moment("When it was placed."),
            "request_id": first_request_id(),
        }),
    )
}

fn line() -> Value {
    answer(
        "One line of an order, at the price it had then.",
        &["sku", "quantity", "unit_price"],
        json!({
            "sku": {"type": "string"},
            "quantity": {"type": "integer", "minimum": 1, "maximum": QUANTITY_MAX},
            "unit_price": amount("The price of one piece when the order was placed."),
        }),
    )
}

fn refund() -> Value {
    answer(
        "Money that goes back.",
        &["id", "order_id", "status", "amount", "currency", "created_at"],
        json!({
            "id": id("The refund's name."),
            "order_id": id("The order whose money it is."),
            "status": {"type": "string", "enum": ["succeeded", "pending", "refused", "failed"],
                       "description": "pending: the outcome is open and the amount held back, or the customer's bank has not confirmed it. \
                                       failed: it had been given back, and the bank turned it down later, perhaps after weeks; nothing went \
                                       back, and the order has that much left again. The answer under its key stays what it was."},
            "amount": amount("What goes back."),
            "currency": currency(),
            "gateway_id": gateway_id(),
            "created_at": moment("When it was asked for."),
            "request_id": first_request_id(),
        }),
    )
}

fn charge() -> Value {
    answer(
        "Money that was taken, or refused.",
        &["id", "status", "amount", "currency", "created_at"],
        json!({
            "id": id("The charge's name."),
            "status": {"type": "string", "enum": ["succeeded", "declined"]},
            "amount": amount("What was to be taken."),
            "currency": currency(),
            "gateway_id": gateway_id(),
            "decline_code": {"type": "string", "description": "Of a declined one: the gateway's reason."},
            "client_reference": client_reference(),
            "created_at": moment("When it was made."),
            "request_id": first_request_id(),
        }),
    )
}

fn list(of: &str) -> Value {
    answer(
        "One page, newest first.",
        &["data", "has_more"],
        json!({
            "data": {"type": "array", "maxItems": LIMIT_MAX, "items": reference(of)},
            "has_more": {"type": "boolean"},
            "next": id("What to send as starting_after for the page behind this one; only while there is one."),
        }),
    )
}

fn key_record() -> Value {
    answer(
        "What is remembered under a key.",
        &["operation", "key", "state"],
        json!({
            "operation": operation(),
            "key": {"type": "string", "minLength": 1, "maxLength": KEY_LENGTH_MAX},
            "state": {
                "type": "string",
                "enum": ["in_flight", "unknown", "needs_review", "completed", "failed", "released", "expired"],
                "description": "completed and failed are final. released: nothing was sent, and nobody but a retry will. expired: it \
                                bought what is at location, and is good for nothing more.",
            },
            "created_at": moment("When the key was first used."),
            "expires_at": moment("Until when its answer is replayed."),
            "location": {"type": "string", "format": "uri-reference", "description": "What an expired key bought."},
            "response": answer(
                "The answer, once it is final: what a retry would get.",
                &["status", "body"],
                json!({
                    "status": {"type": "integer", "minimum": 200, "maximum": 599},
                    "location": {"type": "string", "format": "uri-reference"},
                    "body": {"type": "object"},
                }),
            ),
        }),
    )
}

fn email() -> Value {
    answer(
        "Where receipts are sent.",
        &["email", "updated_at"],
        json!({"email": address(), "updated_at": moment("When it was last said.")}),
    )
}

fn received() -> Value {
    answer("The event is kept, now or before.", &["received"], json!({"received": {"type": "boolean", "const": true}}))
}

fn request_log() -> Value {
    let entry = answer(
        "One request.",
        &["at", "request_id", "method", "path", "customer", "key", "status", "code", "replayed", "took_ms"],
        json!({
            "at": moment("When it was answered."),
            "request_id": id("Its Request-Id."),
            "method": {"type": "string"},
            "path": {"type": "string"},
            "customer": {"type": ["integer", "null"]},
            "key": {"type": ["string", "null"]},
            "status": {"type": "integer"},
            "code": {"type": ["string", "null"]},
            "replayed": {"type": "boolean"},
            "took_ms": {"type": "number", "minimum": 0},
        }),
    );
    answer("The latest requests, newest first.", &["requests"], json!({"requests": {"type": "array", "items": entry}}))
}

fn ready() -> Value {
    answer(
        "It may be sent traffic.",
        &["ready", "days_ahead"],
        json!({
            "ready": {"type": "boolean", "const": true},
            "days_ahead": {"type": "integer", "minimum": 1, "description": "Day partitions there are, from today on."},
        }),
    )
}

fn open_api() -> Value {
    answer("An OpenAPI document.", &["openapi"], json!({"openapi": {"type": "string", "pattern": "^3\\.1\\."}}))
}

fn problem() -> Value {
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.name()).collect();
    answer(
        "RFC 9457. Match on code, obey retry.",
        &["type", "title", "status", "detail", "code", "retry", "request_id"],
        json!({
            "type": {"type": "string", "format": "uri-reference", "pattern": "^/docs/problems#",
                     "description": "Where this kind of problem is explained."},
            "title": {"type": "string", "description": "What this kind of problem is."},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {"type": "string", "description": "What happened this time, for a person."},
            "code": {"type": "string", "enum": codes},
            "retry": {"type": "string", "enum": [Retry::SameKey, Retry::NewKey, Retry::Never],
                      "description": "same_key: again, unchanged, under the same key. new_key: only after the customer changed \
                                      something. never: sending it again cannot help."},
            "request_id": id("The request this is the answer to; in a replay, the first one."),
            "errors": {"type": "array", "items": reference("FieldError"), "description": "Only for validation_failed."},
            "decline_code": {"type": "string", "description": "Only for card_declined: the gateway's reason."},
        }),
    )
}

fn field_error() -> Value {
    answer(
        "One thing that is wrong with a request.",
        &["pointer", "detail"],
        json!({
            "pointer": {"type": "string", "description": "A JSON pointer (RFC 6901) into the body, or the name of a query parameter: ? where it has none that may be told."},
            "detail": {"type": "string"},
        }),
    )
}

fn amount(description: &str) -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": AMOUNT_MINOR_MAX,
           "description": format!("{description} In minor units: 4299 is 42.99.")})
}

fn currency() -> Value {
    json!({"type": "string", "enum": [Currency::Eur]})
}

fn payment_method() -> Value {
    json!({"type": "string", "pattern": format!("^[A-Za-z0-9_]{{1,{METHOD_LENGTH_MAX}}}$"),
           "description": "What the gateway calls the card. Never a card number."})
}

fn client_reference() -> Value {
    // Unicode's control characters are the C0 and C1 sets and DEL.
    json!({"type": "string", "minLength": 1, "maxLength": CLIENT_REFERENCE_LENGTH_MAX,
           "pattern": r"^[^\u0000-\u001F\u007F-\u009F]*$", "description": "The customer's own name for it; the server never reads it."})
}

fn nullable(mut schema: Value) -> Value {
    let kind = schema["type"].take();
    schema["type"] = json!([kind, "null"]);
    schema
}

fn gateway_id() -> Value {
    json!({"type": "string", "description": "The gateway's name for it."})
}

pub(super) fn id(description: &str) -> Value {
    json!({"type": "string", "format": "uuid", "description": description})
}

fn moment(description: &str) -> Value {
    json!({"type": "string", "format": "date-time", "description": description})
}

fn first_request_id() -> Value {
    id("The request that made it; only in that request's own answer and its replays.")
}

pub(super) fn operation() -> Value {
    let names: Vec<&str> = Operation::ALL.iter().map(|operation| operation.name()).collect();
    json!({"type": "string", "enum": names})
}
