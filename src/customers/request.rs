//! The body of `PUT /v1/customers/me/email`.

use serde::Serialize;
use serde_json::Value;

use crate::wire::json::{FieldError, Fields, TypedBody};

/// Longest address that mail can be sent to, in bytes (RFC 5321, less the angle brackets).
pub const EMAIL_LENGTH_MAX: usize = 254;
/// And of what is before its `@`.
pub const EMAIL_NAME_LENGTH_MAX: usize = 64;
/// Longest part of a host's name between two dots (RFC 1035).
pub const HOST_LABEL_LENGTH_MAX: usize = 63;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EmailRequest {
    pub email: String,
}

impl TypedBody for EmailRequest {
    fn take(body: Value, errors: &mut Vec<FieldError>) -> Option<Self> {
        let mut fields = Fields::of(body, "", errors)?;
        let email = fields.require("email", errors, |value| address(&value));
        fields.finish(errors);
        Some(Self { email: email? })
    }
}

/// Whether anybody reads what is sent there only a mail can tell; this refuses what surely is no address. The rule is that of
/// HTML's `input type=email`, with two labels at least: of what RFC 5321 allows nearly nobody uses more, and a comma, a bracket
/// or a quote may make two recipients of one wherever the address is read again.
fn address(value: &Value) -> Result<String, String> {
    let valid = |email: &&str| {
        email.len() <= EMAIL_LENGTH_MAX
            && email.split_once('@').is_some_and(|(name, host)| {
                (1..=EMAIL_NAME_LENGTH_MAX).contains(&name.len())
                    && name.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+/=?^_`{|}~.-".contains(c))
                    && host.split('.').count() > 1
                    && host.split('.').all(is_host_label)
            })
    };
    let email = value.as_str().filter(valid).map(str::to_owned);
    email.ok_or_else(|| format!("must be an e-mail address of at most {EMAIL_LENGTH_MAX} ASCII characters"))
}

fn is_host_label(label: &str) -> bool {
    (1..=HOST_LABEL_LENGTH_MAX).contains(&label.len())
        && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_surely_is_no_address_is_refused() {
        let long = format!("{}@example.com", "x".repeat(EMAIL_LENGTH_MAX));
        let long_label = format!("a@{}.com", "x".repeat(HOST_LABEL_LENGTH_MAX + 1));
        let longest_name = format!("{}@example.com", "x".repeat(EMAIL_NAME_LENGTH_MAX));
        let long_name = format!("x{longest_name}");
        for email in ["a@example.com", "a+b@mail.example.co", "A.B@x-y.org", "o'neil{}@x.y.z", &longest_name] {
            assert_eq!(EmailRequest::read(json!({"email": email})).unwrap().email, email);
        }
        for email in [
            "",
            "a",
            "@example.com",
            "a@",
            "a@b",
            "a@b..c",
            "a b@c.de",
            "a@b@c.de",
            "ä@c.de",
            "a@c_d.de",
            "a,b@c.de",
            "a<b@c.de",
            "\"a\"@c.de",
            "a@-c.de",
            "a@c-.de",
            &long,
            &long_name,
            &long_label,
        ] {
            assert!(EmailRequest::read(json!({"email": email})).is_err(), "{email}");
        }
        for body in [json!({}), json!({"email": 7}), json!({"email": "a@b.de", "admin": true}), json!("a@b.de")] {
            assert_eq!(EmailRequest::read(body.clone()).unwrap_err().len(), 1, "{body}");
        }
    }
}
