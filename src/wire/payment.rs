//! The fields that everything paid for has in common: in which currency, by what, and by which name of the customer's own.

use serde_json::Value;

use super::json::text;
use crate::money::Currency;

const METHOD_LENGTH_MAX: usize = 100;
const CLIENT_REFERENCE_LENGTH_MAX: usize = 128;

/// An ISO 4217 code in lower case, of a currency this shop sells in.
pub fn currency(value: &Value) -> Result<String, String> {
    match value.as_str().and_then(Currency::from_code) {
        Some(currency) => Ok(currency.code().to_owned()),
        None => Err("must be \"eur\", the currency this shop sells in".to_owned()),
    }
}

/// The gateway's name for a payment method.
pub fn method(value: &Value) -> Result<String, String> {
    text(value, METHOD_LENGTH_MAX, "letters, digits and underscores", |c| c.is_ascii_alphanumeric() || c == '_')
}

/// What the customer calls it. Kept and passed on, never read.
pub fn client_reference(value: &Value) -> Result<String, String> {
    text(value, CLIENT_REFERENCE_LENGTH_MAX, "characters without control characters", |c| !c.is_control())
}
