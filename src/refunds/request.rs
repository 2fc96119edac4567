//! The body of `POST /v1/orders/{id}/refunds`. How much of it is left to refund is not looked at here: that depends on the
//! moment.

use serde::Serialize;
use serde_json::Value;

use crate::{
    money::AMOUNT_MINOR_MAX,
    wire::json::{FieldError, Fields, TypedBody, integer},
};

/// Serialised, it is the canonical form that is fingerprinted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefundRequest {
    /// In minor units of the order's currency. Without it: all that is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<i64>,
}

impl TypedBody for RefundRequest {
    fn take(body: Value, errors: &mut Vec<FieldError>) -> Option<Self> {
        let mut fields = Fields::of(body, "", errors)?;
        let amount = fields.allow("amount", errors, |value| integer(&value, 1, AMOUNT_MINOR_MAX));
        fields.finish(errors);
        Some(Self { amount: amount? })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_amount_may_be_left_out_and_nothing_else_may_be_there() {
        assert_eq!(RefundRequest::read(json!({})), Ok(RefundRequest { amount: None }));
        assert_eq!(RefundRequest::read(json!({"amount": null})), Ok(RefundRequest { amount: None }));
        assert_eq!(RefundRequest::read(json!({"amount": 1})), Ok(RefundRequest { amount: Some(1) }));
        for wrong in
            [json!([]), json!({"amount": 0}), json!({"amount": 1.5}), json!({"amount": "1"}), json!({"reason": "x"})]
        {
            assert_eq!(RefundRequest::read(wrong.clone()).unwrap_err().len(), 1, "{wrong}");
        }
    }
}
