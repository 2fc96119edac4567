//! What a customer asks for: a body, read and checked as far as its bytes allow. Is it a valid question at all?
//!
//! Prices are not looked at here: they depend on the moment, and a retry of something already bought must get its answer
//! after a price changed.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    money::AMOUNT_MINOR_MAX,
    wire::{
        json::{FieldError, Fields, TypedBody, integer, text},
        payment,
    },
};

/// Most lines of one order.
pub const ITEMS_MAX: usize = 50;
/// Most pieces of one line.
pub const QUANTITY_MAX: i64 = 99;
pub const SKU_LENGTH_MAX: usize = 64;

/// The body of `POST /v1/orders`. Serialised, it is the canonical form that is fingerprinted: fields in this order, no
/// white space, absent fields left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderRequest {
    pub items: Vec<Item>,
    /// What the customer believes to pay, in minor units.
    pub total: i64,
    pub currency: String,
    pub payment_method: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_reference: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    pub sku: String,
    pub quantity: i64,
}

impl TypedBody for OrderRequest {
    fn take(body: Value, errors: &mut Vec<FieldError>) -> Option<Self> {
        let mut fields = Fields::of(body, "", errors)?;
        let items = fields.require("items", errors, list);
        let items = items.map(|items| read_items(items, errors));
        let total = fields.require("total", errors, |value| integer(&value, 1, AMOUNT_MINOR_MAX));
        let currency = fields.require("currency", errors, |value| payment::currency(&value));
        let payment_method = fields.require("payment_method", errors, |value| payment::method(&value));
        let client_reference = fields.allow("client_reference", errors, |value| payment::client_reference(&value));
        fields.finish(errors);
        Some(Self {
            items: items?,
            total: total?,
            currency: currency?,
            payment_method: payment_method?,
            client_reference: client_reference?,
        })
    }
}

fn list(value: Value) -> Result<Vec<Value>, String> {
    match value {
        Value::Array(items) if (1..=ITEMS_MAX).contains(&items.len()) => Ok(items),
        _ => Err(format!("must be a list of 1 to {ITEMS_MAX} items")),
    }
}

/// The items that are valid; what is wrong with the others is noted.
fn read_items(items: Vec<Value>, errors: &mut Vec<FieldError>) -> Vec<Item> {
    let mut read: Vec<Item> = Vec::with_capacity(items.len());
    for (place, item) in items.into_iter().enumerate() {
        let Some(mut fields) = Fields::of(item, &format!("/items/{place}"), errors) else { continue };
        let sku = fields.require("sku", errors, |value| match read_sku(&value)? {
            // Two lines of one thing are a cart that was merged wrongly, or twice.
            sku if read.iter().any(|item| item.sku == sku) => Err("is in this order already".to_owned()),
            sku => Ok(sku),
        });
        let quantity = fields.require("quantity", errors, |value| integer(&value, 1, QUANTITY_MAX));
        fields.finish(errors);
        if let (Some(sku), Some(quantity)) = (sku, quantity) {
            read.push(Item { sku, quantity });
        }
    }
    read
}

fn read_sku(value: &Value) -> Result<String, String> {
    text(value, SKU_LENGTH_MAX, "lower-case letters, digits, dashes and underscores", |c| {
        c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_')
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pointers(body: Value) -> Vec<String> {
        OrderRequest::read(body).unwrap_err().into_iter().map(|error| error.pointer).collect()
    }

    fn grinder() -> Value {
        json!({"items": [{"sku": "grinder", "quantity": 1}], "total": 4299, "currency": "eur", "payment_method": "pm_card_visa"})
    }

    fn with(name: &str, value: Value) -> Value {
        let mut body = grinder();
        body[name] = value;
        body
    }

    #[test]
    fn key_order_white_space_and_null_for_absent_do_not_matter_but_an_amount_does() {
        let canonical = |text: &str| {
            OrderRequest::read(crate::wire::json::parse_strict(text.as_bytes()).unwrap()).unwrap().canonical().unwrap()
        };
        let first = canonical(&grinder().to_string());
        assert_eq!(
            first,
            canonical(
                r#" { "payment_method" : "pm_card_visa", "client_reference": null,
                     "currency":"eur", "total":4299, "items":[{"quantity":1,"sku":"grinder"}] } "#
            )
        );
        assert_ne!(first, canonical(&with("total", json!(4300)).to_string()));
        assert_ne!(first, canonical(&with("client_reference", json!("tap-1")).to_string()));
        assert_ne!(first, canonical(&with("items", json!([{"sku": "grinder", "quantity": 2}])).to_string()));
    }

    #[test]
    fn every_fault_is_named_at_once_with_its_place() {
        let body = json!({
            "items": [{"sku": "grinder", "quantity": 0}, {"sku": "Grinder!", "quantity": 1, "price": 1}, 7],
            "total": 42.99, "payment_method": "", "tip/~": 1
        });
        assert_eq!(
            pointers(body),
            [
                "/items/0/quantity",
                "/items/1/sku",
                "/items/1/price",
                "/items/2",
                "/total",
                "/currency",
                "/payment_method",
                "/tip~1~0"
            ]
        );
    }

    #[test]
    fn a_thing_is_in_an_order_once() {
        let twice =
            json!([{"sku": "cup", "quantity": 1}, {"sku": "beans", "quantity": 1}, {"sku": "cup", "quantity": 2}]);
        assert_eq!(pointers(with("items", twice)), ["/items/2/sku"]);
    }

    #[test]
    fn one_wrong_field_is_one_error() {
        let long = "x".repeat(129);
        for (name, value) in [
            ("items", json!([])),
            ("items", json!({})),
            ("items", json!(vec![json!({"sku": "cup", "quantity": 1}); ITEMS_MAX + 1])),
            ("total", json!(0)),
            ("total", json!(-4299)),
            ("total", json!("4299")),
            ("total", json!(4299.0)),
            ("total", json!(AMOUNT_MINOR_MAX + 1)),
            ("currency", json!("EUR")),
            ("currency", json!("usd")),
            ("payment_method", json!("pm card")),
            ("payment_method", json!(null)),
            ("client_reference", json!("")),
            ("client_reference", json!("line\nbreak")),
            ("client_reference", json!(long)),
        ] {
            assert_eq!(pointers(with(name, value.clone())), [format!("/{name}")], "{name} = {value}");
        }
        assert_eq!(pointers(json!([])), [""]);
    }
}
