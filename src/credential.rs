//! Bearer tokens: who is asking? The only place a customer's identity comes from.
//!
//! A token is a JWT signed with the server's secret (HS256). The customer is its subject, so that a refreshed token has the
//! same scope of keys as the one before it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode};
use serde::{Deserialize, Serialize};

use crate::ids::CustomerId;

/// Shortest secret that HS256 should be used with, in bytes: the length of its digest.
pub const SECRET_LENGTH_MIN: usize = 32;

const ISSUER: &str = "checkout";
const OPERATOR: &str = "operator";

/// Who a token speaks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    Customer(CustomerId),
    /// Somebody of the house: may read the request log, owns nothing.
    Operator,
}

#[derive(Debug, Serialize, Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    /// Seconds since 1970.
    exp: u64,
}

/// Why a token is not accepted. The detail is for our log; the caller is told no more than this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    #[error("the token has expired")]
    Expired,
    #[error("the token is not one of ours")]
    Invalid,
}

/// Makes tokens and checks them.
#[derive(Clone)]
pub struct Credentials {
    signing: EncodingKey,
    checking: DecodingKey,
    rules: Validation,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(…)")
    }
}

impl Credentials {
    /// Refuses a secret that is too short to sign with.
    pub fn new(secret: &str) -> anyhow::Result<Self> {
        anyhow::ensure!(
            secret.len() >= SECRET_LENGTH_MIN,
            "the secret must have at least {SECRET_LENGTH_MIN} characters"
        );
        let mut rules = Validation::new(Algorithm::HS256);
        rules.set_issuer(&[ISSUER]);
        rules.set_required_spec_claims(&["exp", "iss", "sub"]);
        rules.validate_nbf = true;
        rules.leeway = 0;
        Ok(Self {
            signing: EncodingKey::from_secret(secret.as_bytes()).context("the secret cannot sign")?,
            checking: DecodingKey::from_secret(secret.as_bytes()).context("the secret cannot check")?,
            rules,
        })
    }

    /// A token for `subject` that is accepted for `lasting` from now.
    pub fn mint(&self, subject: Subject, lasting: Duration) -> anyhow::Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock stands before 1970")?;
        self.mint_until(subject, (now + lasting).as_secs())
    }

    fn mint_until(&self, subject: Subject, exp: u64) -> anyhow::Result<String> {
        let sub = match subject {
            Subject::Customer(customer) => customer.to_string(),
            Subject::Operator => OPERATOR.to_owned(),
        };
        let claims = Claims { iss: ISSUER.to_owned(), sub, exp };
        encode(&Header::new(Algorithm::HS256), &claims, &self.signing).context("signing a token")
    }

    pub fn check(&self, token: &str) -> Result<Subject, Rejected> {
        let claims = decode::<Claims>(token, &self.checking, &self.rules).map_err(|error| match error.kind() {
            jsonwebtoken::errors::ErrorKind::ExpiredSignature => Rejected::Expired,
            _ => Rejected::Invalid,
        })?;
        match claims.claims.sub.as_str() {
            OPERATOR => Ok(Subject::Operator),
            customer => match customer.parse() {
                // One spelling per customer: `042` and `+42` are nobody.
                Ok(id) if id > 0 && CustomerId(id).to_string() == customer => Ok(Subject::Customer(CustomerId(id))),
                _ => Err(Rejected::Invalid),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const CUSTOMER: Subject = Subject::Customer(CustomerId(42));

    fn credentials(secret: &str) -> Credentials {
        Credentials::new(secret).unwrap()
    }

    #[test]
    fn a_token_names_its_subject() {
        let ours = credentials("0123456789abcdef0123456789abcdef");
        for subject in [CUSTOMER, Subject::Operator] {
            assert_eq!(ours.check(&ours.mint(subject, HOUR).unwrap()), Ok(subject));
        }
    }

    #[test]
    fn a_token_of_another_secret_an_old_one_and_a_forged_one_are_rejected() {
        let (ours, theirs) =
            (credentials("0123456789abcdef0123456789abcdef"), credentials("another-secret-of-32-characters!"));
        assert_eq!(ours.check(&theirs.mint(CUSTOMER, HOUR).unwrap()), Err(Rejected::Invalid));
        assert_eq!(ours.check(&ours.mint_until(CUSTOMER, 1_700_000_000).unwrap()), Err(Rejected::Expired));
        // {"alg":"none"} with our claims: an unsigned token must not be believed.
        let token = ours.mint(CUSTOMER, HOUR).unwrap();
        let claims = token.split('.').nth(1).unwrap();
        assert_eq!(ours.check(&format!("eyJhbGciOiJub25lIn0.{claims}.")), Err(Rejected::Invalid));
        for nonsense in ["", "a.b.c", "42", &token[..token.len() - 2]] {
            assert_eq!(ours.check(nonsense), Err(Rejected::Invalid), "{nonsense}");
        }
    }

    #[test]
    fn a_customer_has_one_spelling_and_a_token_its_time() {
        let ours = credentials("0123456789abcdef0123456789abcdef");
        let check = |claims: serde_json::Value| {
            ours.check(&encode(&Header::new(Algorithm::HS256), &claims, &ours.signing).unwrap())
        };
        let exp = 4_000_000_000_u64;
        assert_eq!(check(serde_json::json!({"iss": "checkout", "sub": "42", "exp": exp})), Ok(CUSTOMER));
        for sub in ["042", "+42", " 42", "0", "-1", "", "4.2", "9223372036854775808"] {
            let token = serde_json::json!({"iss": "checkout", "sub": sub, "exp": exp});
            assert_eq!(check(token), Err(Rejected::Invalid), "{sub}");
        }
        for claims in [
            serde_json::json!({"iss": "checkout", "sub": "42", "exp": exp, "nbf": exp - 1}),
            serde_json::json!({"iss": "another", "sub": "42", "exp": exp}),
            serde_json::json!({"iss": "checkout", "sub": "42"}),
            serde_json::json!({"iss": "checkout", "exp": exp}),
        ] {
            assert_eq!(check(claims.clone()), Err(Rejected::Invalid), "{claims}");
        }
    }

    #[test]
    fn a_short_secret_is_refused() {
        assert!(Credentials::new("short").is_err());
    }
}
