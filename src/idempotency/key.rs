//! The idempotency key and its scope: when are two requests about the same thing?

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::{
    ids::CustomerId,
    wire::{card_number::holds_card_number, credential_like::holds_credential},
};

/// Longest key in characters; what the gateway accepts too.
pub const KEY_LENGTH_MAX: usize = 255;

/// What a client may send as `Idempotency-Key`: 1 to 255 visible ASCII characters. `"k"` and `k` are the same key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

/// Why a header is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    #[error("the key is empty")]
    Empty,
    #[error("the key is longer than {KEY_LENGTH_MAX} characters")]
    TooLong,
    #[error("the key has a character outside visible ASCII (U+0021 to U+007E)")]
    NotVisibleAscii,
    #[error("the key opens or closes a quote without its counterpart, or has an unescaped quote inside")]
    BrokenQuotes,
    #[error("several keys were sent; a comma belongs to a key only between quotes")]
    SeveralKeys,
    #[error("the key looks like a card number; a fresh UUID never does")]
    CardNumber,
    #[error("the key looks like a bearer token or a secret key, and was not kept; a fresh UUID never does")]
    Credential,
}

impl IdempotencyKey {
    /// Reads a header's value, or a word of a path: an RFC 8941 string (`"8e03…"`, with `\"` and `\\` as its only escapes) or the bare key that
    /// most clients send. Parameters after a quoted string are not known here and refused as broken quotes. A comma outside
    /// quotes is refused: whatever stands between us and the client may have made one line of two.
    pub fn parse(sent: &[u8]) -> Result<Self, InvalidKey> {
        let key = match sent {
            [] => return Err(InvalidKey::Empty),
            [b'"', ..] => unquoted(sent)?,
            _ if sent.contains(&b'"') => return Err(InvalidKey::BrokenQuotes),
            _ if sent.contains(&b',') => return Err(InvalidKey::SeveralKeys),
            _ => sent.to_vec(),
        };
        if key.is_empty() {
            return Err(InvalidKey::Empty);
        }
        if key.len() > KEY_LENGTH_MAX {
            return Err(InvalidKey::TooLong);
        }
        let key = String::from_utf8(key).map_err(|_| InvalidKey::NotVisibleAscii)?;
        // Before the space in `Bearer eyJ…` is complained of: that is not the mistake.
        if holds_credential(&key) {
            return Err(InvalidKey::Credential);
        }
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidKey::NotVisibleAscii);
        }
        if holds_card_number(&key) { Err(InvalidKey::CardNumber) } else { Ok(Self(key)) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn unquoted(text: &[u8]) -> Result<Vec<u8>, InvalidKey> {
    let inner = match text {
        [b'"', inner @ .., b'"'] => inner,
        _ => return Err(InvalidKey::BrokenQuotes),
    };
    let mut key = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'"' => return Err(InvalidKey::BrokenQuotes),
            b'\\' => match bytes.next() {
                Some(&escaped @ (b'"' | b'\\')) => key.push(escaped),
                _ => return Err(InvalidKey::BrokenQuotes),
            },
            _ => key.push(byte),
        }
    }
    Ok(key)
}

/// What is done under a key. Part of the scope, so that one key used on two endpoints is two keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    CreateOrder,
    CreateCharge,
    RefundOrder,
}

impl Operation {
    pub const ALL: [Self; 3] = [Self::CreateOrder, Self::CreateCharge, Self::RefundOrder];

    /// As stored, logged and used in paths.
    pub fn name(self) -> &'static str {
        match self {
            Self::CreateOrder => "orders.create",
            Self::CreateCharge => "charges.create",
            Self::RefundOrder => "orders.refund",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.name() == name)
    }
}

/// Whose key it is and for what: three fields, never a joined string, so that nobody can forge a separator. The customer
/// comes from the credential.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    pub customer: CustomerId,
    pub operation: Operation,
    pub key: IdempotencyKey,
}

impl Scope {
    /// SHA-256 over the length-prefixed fields: the record's primary key, and what the gateway key is made of.
    pub fn digest(&self) -> ScopeDigest {
        let customer = self.customer.0.to_be_bytes();
        ScopeDigest(sha256_of_fields(&[&customer, self.operation.name().as_bytes(), self.key.as_str().as_bytes()]))
    }
}

/// A scope in 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScopeDigest(pub [u8; 32]);

impl ScopeDigest {
    /// Reads the 32 bytes as stored.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// What the advisory lock is taken on. Two digests that share it only wait for each other.
    pub fn lock_id(&self) -> i64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        i64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

impl fmt::Debug for ScopeDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ScopeDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// SHA-256 in which no two lists of fields look alike: each field is preceded by its length.
pub(super) fn sha256_of_fields(fields: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for field in fields {
        hash.update((field.len() as u64).to_be_bytes());
        hash.update(field);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_and_a_bare_key_are_the_same_key() {
        for (header, key) in [
            ("8e03978e-40d5-43dd", "8e03978e-40d5-43dd"),
            ("\"8e03978e-40d5-43dd\"", "8e03978e-40d5-43dd"),
            (r#""a\"b\\c""#, r#"a"b\c"#),
            ("!~", "!~"),
            ("\"a,b\"", "a,b"),
            ("42424242-4242-4242-8242-424242424242", "42424242-4242-4242-8242-424242424242"),
            ("order-1764543990122", "order-1764543990122"),
        ] {
            assert_eq!(IdempotencyKey::parse(header.as_bytes()).unwrap().as_str(), key, "{header}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused_with_its_reason() {
        let (long, longest) = ("x".repeat(256), "x".repeat(255));
        for (header, reason) in [
            (&b""[..], InvalidKey::Empty),
            (b"   ", InvalidKey::NotVisibleAscii),
            (b" k", InvalidKey::NotVisibleAscii),
            (b"k\n", InvalidKey::NotVisibleAscii),
            (b"\"\"", InvalidKey::Empty),
            (b"\"", InvalidKey::BrokenQuotes),
            (b"\"abc", InvalidKey::BrokenQuotes),
            (b"abc\"", InvalidKey::BrokenQuotes),
            (b"a\"b", InvalidKey::BrokenQuotes),
            (b"\"a\"b\"", InvalidKey::BrokenQuotes),
            (b"\"a\\x\"", InvalidKey::BrokenQuotes),
            (b"\"a\\\"", InvalidKey::BrokenQuotes),
            (b"\"a\";p=1", InvalidKey::BrokenQuotes),
            (b"two words", InvalidKey::NotVisibleAscii),
            (b"tab\tinside", InvalidKey::NotVisibleAscii),
            ("schlüssel".as_bytes(), InvalidKey::NotVisibleAscii),
            (b"nul\0", InvalidKey::NotVisibleAscii),
            (long.as_bytes(), InvalidKey::TooLong),
            (b"a,b", InvalidKey::SeveralKeys),
            (b"a, b", InvalidKey::SeveralKeys),
            (b"\"a\", \"b\"", InvalidKey::BrokenQuotes),
            (b"4242424242424242", InvalidKey::CardNumber),
            (b"\"pay-4242-4242-4242-4242\"", InvalidKey::CardNumber),
            (b"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0MiJ9.c2ln", InvalidKey::Credential),
            (b"Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0MiJ9.c2ln", InvalidKey::Credential),
            (b"\"Bearer opaque\"", InvalidKey::Credential),
            (b"sk_live_51Hx", InvalidKey::Credential),
            (b"\"whsec_0123\"", InvalidKey::Credential),
        ] {
            assert_eq!(IdempotencyKey::parse(header), Err(reason), "{}", header.escape_ascii());
        }
        assert!(IdempotencyKey::parse(longest.as_bytes()).is_ok());
    }

    #[test]
    fn a_scope_differs_in_each_of_its_fields_and_has_no_separator_to_forge() {
        let digest = |customer, key: &str| {
            Scope {
                customer: CustomerId(customer),
                operation: Operation::CreateOrder,
                key: IdempotencyKey::parse(key.as_bytes()).unwrap(),
            }
            .digest()
        };
        assert_eq!(digest(1, "k"), digest(1, "\"k\""));
        assert_ne!(digest(1, "k"), digest(2, "k"));
        assert_ne!(digest(1, "k"), digest(1, "K"));
        assert_ne!(sha256_of_fields(&[b"ab", b"c"]), sha256_of_fields(&[b"a", b"bc"]));
        assert_ne!(sha256_of_fields(&[b"a", b""]), sha256_of_fields(&[b"a"]));
    }
}
