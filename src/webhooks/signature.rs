//! `Stripe-Signature: t=<seconds>,v1=<hex of HMAC-SHA256(secret, "t.body")>`: did whoever knows our secret say this, just now?
//!
//! Over the raw bytes, before anything reads them. Several `v1` are fine: while a secret is being changed the gateway signs
//! with both. The time in it keeps a recorded delivery from being good for ever; it is another company's, so it may differ
//! from ours by a few minutes either way.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// How far the two clocks may be apart, the journey included.
pub const TOLERANCE_S: i64 = 300;

/// More signatures than a change of secrets needs are a way to make us work.
const SIGNATURES_MAX: usize = 8;

/// Why a delivery is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotBelieved {
    #[error("the signature is missing or cannot be read")]
    Unreadable,
    #[error("the signature was made too long ago, or in the future")]
    Stale,
    #[error("no signature fits this body")]
    Wrong,
}

/// Believes `body` if its header was made with `secret`, around `now_s` (seconds since 1970).
pub fn verify(secret: &str, header: &str, body: &[u8], now_s: i64) -> Result<(), NotBelieved> {
    let (signed_at, signatures) = read(header).ok_or(NotBelieved::Unreadable)?;
    let signed_at_s: i64 = signed_at.parse().map_err(|_| NotBelieved::Unreadable)?;
    // The signature first: only the gateway gets to know what we think of its clock.
    let mut fits = false;
    for signature in signatures {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).map_err(|_| NotBelieved::Wrong)?;
        // As it was written: whoever signed it signed these letters.
        mac.update(signed_at.as_bytes());
        mac.update(b".");
        mac.update(body);
        // Compares in constant time, so that no signature can be guessed byte by byte.
        fits |= mac.verify_slice(&signature).is_ok();
    }
    match (fits, now_s.abs_diff(signed_at_s) <= TOLERANCE_S.unsigned_abs()) {
        (false, _) => Err(NotBelieved::Wrong),
        (true, false) => Err(NotBelieved::Stale),
        (true, true) => Ok(()),
    }
}

/// The time as written and the `v1` signatures. Other schemes are somebody else's.
fn read(header: &str) -> Option<(&str, Vec<Vec<u8>>)> {
    let (mut signed_at, mut signatures) = (None, Vec::new());
    for part in header.split(',') {
        match part.trim().split_once('=')? {
            ("t", _) if signed_at.is_some() => return None,
            ("t", seconds) => signed_at = Some(seconds),
            ("v1", signature) => signatures.push(hex::decode(signature).ok()?),
            _ => {}
        }
    }
    let readable = !signatures.is_empty() && signatures.len() <= SIGNATURES_MAX;
    signed_at.filter(|_| readable).map(|signed_at| (signed_at, signatures))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: i64 = 1_700_000_000;
    const BODY: &[u8] = br#"{"id":"evt_1"}"#;

    fn signature(secret: &str, at_s: i64, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("any key");
        mac.update(format!("{at_s}.").as_bytes());
        mac.update(body);
        hex::encode(mac.finalize().into_bytes())
    }

    fn header(secret: &str, at_s: i64, body: &[u8]) -> String {
        format!("t={at_s},v1={}", signature(secret, at_s, body))
    }

    #[test]
    fn only_the_secret_the_body_and_the_hour_together_are_believed() {
        let good = header("whsec_a", NOW_S, BODY);
        assert_eq!(verify("whsec_a", &good, BODY, NOW_S), Ok(()));
        assert_eq!(verify("whsec_b", &good, BODY, NOW_S), Err(NotBelieved::Wrong));
        assert_eq!(verify("whsec_a", &good, br#"{"id":"evt_2"}"#, NOW_S), Err(NotBelieved::Wrong));
        let moved = good.replace(&NOW_S.to_string(), &(NOW_S + 1).to_string());
        assert_eq!(verify("whsec_a", &moved, BODY, NOW_S), Err(NotBelieved::Wrong));
        for (apart, expected) in
            [(300, Ok(())), (301, Err(NotBelieved::Stale)), (-300, Ok(())), (-301, Err(NotBelieved::Stale))]
        {
            assert_eq!(verify("whsec_a", &good, BODY, NOW_S + apart), expected, "{apart}");
        }
    }

    #[test]
    fn while_a_secret_changes_either_signature_will_do() {
        let both = format!(
            "t={NOW_S},v1={},v1={},v0=ff",
            signature("whsec_new", NOW_S, BODY),
            signature("whsec_old", NOW_S, BODY)
        );
        for secret in ["whsec_new", "whsec_old"] {
            assert_eq!(verify(secret, &both, BODY, NOW_S), Ok(()));
        }
        assert_eq!(verify("whsec_older", &both, BODY, NOW_S), Err(NotBelieved::Wrong));
    }

    #[test]
    fn what_is_no_signature_is_not_read_as_one() {
        let good = signature("whsec_a", NOW_S, BODY);
        for header in [
            String::new(),
            "nonsense".to_owned(),
            format!("v1={good}"),
            format!("t={NOW_S}"),
            format!("t={NOW_S},v0={good}"),
            format!("t=yesterday,v1={good}"),
            format!("t={NOW_S},v1=xyz"),
            format!("t={NOW_S},t={NOW_S},v1={good}"),
            format!("t={NOW_S}{}", format!(",v1={good}").repeat(9)),
        ] {
            assert_eq!(verify("whsec_a", &header, BODY, NOW_S), Err(NotBelieved::Unreadable), "{header}");
        }
        assert_eq!(verify("whsec_a", &format!("t={NOW_S},v1="), BODY, NOW_S), Err(NotBelieved::Wrong));
    }
}
