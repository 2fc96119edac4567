//! The body of `POST /v1/charges`: an amount from a payment method, and nothing that is bought with it.

use serde::Serialize;
use serde_json::Value;

use crate::{
    money::AMOUNT_MINOR_MAX,
    wire::{
        json::{FieldError, Fields, TypedBody, integer},
        payment,
    },
};

/// Serialised, it is the canonical form that is fingerprinted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChargeRequest {
    /// In minor units.
    pub amount: i64,
    pub currency: String,
    pub payment_method: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_reference: Option<String>,
}

impl TypedBody for ChargeRequest {
    fn take(body: Value, errors: &mut Vec<FieldError>) -> Option<Self> {
        let mut fields = Fields::of(body, "", errors)?;
        let amount = fields.require("amount", errors, |value| integer(&value, 1, AMOUNT_MINOR_MAX));
        let currency = fields.require("currency", errors, |value| payment::currency(&value));
        let payment_method = fields.require("payment_method", errors, |value| payment::method(&value));
        let client_reference = fields.allow("client_reference", errors, |value| payment::client_reference(&value));
        fields.finish(errors);
        Some(Self {
            amount: amount?,
            currency: currency?,
            payment_method: payment_method?,
            client_reference: client_reference?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_fault_is_named_and_nothing_else_may_be_there() {
        let good = json!({"amount": 4299, "currency": "eur", "payment_method": "pm_card_visa"});
        assert_eq!(ChargeRequest::read(good.clone()).unwrap().amount, 4299);
        for (name, value) in [
            ("amount", json!(0)),
            ("amount", json!(42.99)),
            ("amount", json!(AMOUNT_MINOR_MAX + 1)),
            ("currency", json!("usd")),
            ("payment_method", json!("pm card")),
            ("client_reference", json!("")),
            ("status", json!("succeeded")),
        ] {
            let mut body = good.clone();
            body[name] = value;
            let errors = ChargeRequest::read(body).unwrap_err();
            assert_eq!(errors.iter().map(|error| error.pointer.as_str()).collect::<Vec<_>>(), [format!("/{name}")]);
        }
        assert_eq!(ChargeRequest::read(json!({})).unwrap_err().len(), 3);
    }
}
