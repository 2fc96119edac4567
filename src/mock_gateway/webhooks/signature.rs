//! The signature of a delivery, as the dialect writes it: `t=<seconds>,v1=<hex of HMAC-SHA256(secret, "t.body")>`.
//!
//! It answers: how does an endpoint tell our word from anybody's, and a fresh word from a recorded one?

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Over the raw bytes of the body: an endpoint that parses and prints them again verifies something else.
pub(super) fn header(secret: &str, at_s: i64, body: &[u8]) -> String {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else {
        // HMAC takes keys of any length; no signature is refused like a wrong one.
        return String::new();
    };
    mac.update(format!("{at_s}.").as_bytes());
    mac.update(body);
    format!("t={at_s},v1={}", hex::encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_covers_secret_time_and_body() {
        let signed = header("whsec_test", 1_700_000_000, br#"{"id":"evt_1"}"#);
        assert!(signed.starts_with("t=1700000000,v1="));
        assert_eq!(signed.len(), "t=1700000000,v1=".len() + 64);
        for other in [
            header("whsec_other", 1_700_000_000, br#"{"id":"evt_1"}"#),
            header("whsec_test", 1_700_000_001, br#"{"id":"evt_1"}"#),
            header("whsec_test", 1_700_000_000, br#"{"id":"evt_2"}"#),
        ] {
            assert_ne!(signed.split_once(",v1="), other.split_once(",v1="));
        }
    }
}
