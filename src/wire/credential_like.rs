//! Does a text hold a credential? A key is kept as it came: in the database, in its backups, on the console.
//!
//! A client that puts the wrong variable into `Idempotency-Key` sends what it has at hand: its own bearer token, or a secret of
//! the gateway's. Who reads a backup could then pay with it. Only what has the form of a credential is one: a refusal by chance
//! would fail customers, and nobody would find out why.

/// How the gateway's secrets begin: its keys, those with fewer rights, and what it signs its webhooks with.
const SECRET_PREFIXES: [&str; 5] = ["sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"];
/// `{"` in base64: the header of a JWT is a JSON object.
const JWT_HEADER: &str = "eyJ";

/// A value of `Authorization: Bearer`, a JWT, or a secret of the gateway's, whatever words are around it.
pub fn holds_credential(text: &str) -> bool {
    let text = text.trim_start();
    is_bearer(text) || word_starts(text).any(|rest| is_secret(rest) || is_jwt(rest))
}

/// The scheme, and something behind it.
fn is_bearer(text: &str) -> bool {
    const SCHEME: &str = "bearer";
    let scheme = text.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME));
    scheme && text[SCHEME.len()..].starts_with(char::is_whitespace)
}

fn is_secret(text: &str) -> bool {
    SECRET_PREFIXES
        .iter()
        .filter_map(|prefix| text.strip_prefix(prefix))
        .any(|rest| rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

/// Three segments of base64url with dots between them: a header, and the claims, or an encrypted one's key, and the signature.
/// The latter two may be empty.
fn is_jwt(text: &str) -> bool {
    let token = text.split(|c: char| !(is_base64url(c) || c == '.')).next().unwrap_or_default();
    token.starts_with(JWT_HEADER) && token.split('.').count() >= 3
}

fn is_base64url(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

/// The text from each of its words on: `order_eyJ…` holds what begins behind its underscore, and `risk_test_1` nothing.
fn word_starts(text: &str) -> impl Iterator<Item = &str> {
    let mut before = None;
    text.char_indices().filter_map(move |(at, c)| {
        let starts = c.is_ascii_alphanumeric() && !before.is_some_and(|before: char| before.is_ascii_alphanumeric());
        before = Some(c);
        starts.then(|| &text[at..])
    })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    /// The header of HS256 and claims of nobody's.
    const JWT: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0MiJ9.c2lnbmF0dXJl-_";

    #[test]
    fn a_credential_is_found_whatever_is_around_it() {
        for credential in [
            JWT,
            "eyJhbGciOiJub25lIn0.e30.",
            // Encrypted, it has five segments.
            "eyJhbGciOiJkaXIifQ..aXY.Y2lwaGVy.dGFn",
            "sk_live_51Hx",
            "sk_test_4eC39HqLyjWDarjtT1zdp7dc",
            "rk_live_51Hx",
            "rk_test_51Hx",
            "whsec_0123abcd",
        ] {
            for text in [
                credential.to_owned(),
                format!("Bearer {credential}"),
                format!("order-{credential}"),
                format!("token={credential}"),
                format!("pay_{credential}"),
                format!("{}:{credential}", Uuid::nil()),
                format!("{credential}:1"),
            ] {
                assert!(holds_credential(&text), "{text}");
            }
        }
        for text in ["Bearer abc", "bearer abc", "BEARER\tabc", " Bearer abc"] {
            assert!(holds_credential(text), "{text}");
        }
    }

    #[test]
    fn what_has_not_the_form_of_a_credential_is_none() {
        for text in [
            "",
            "bearer",
            "bearer-of-good-news",
            "eyJ",
            "eyJhbGciOiJIUzI1NiJ9",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0MiJ9",
            "eyJhbGciOiJIUzI1NiJ9 .eyJzdWIiOiI0MiJ9.x",
            "heyJude.dont.make-it-bad",
            "1.2.3",
            "risk_test_1",
            "task_live_1",
            "sk_test",
            "sk_test_",
            "sk_testing_1",
            "whsec",
            "pk_test_TYooMQauvdEDq54NiTphI7jx",
            "pi_3MtwBwLkdIwHu7ix28a3tqPa",
            "ü eyJ ü",
        ] {
            assert!(!holds_credential(text), "{text}");
        }
        for _ in 0..20_000 {
            let random = Uuid::new_v4();
            for text in [random.to_string(), random.simple().to_string(), format!("order.{random}.retry")] {
                assert!(!holds_credential(&text), "{text}");
            }
        }
    }
}
