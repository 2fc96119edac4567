//! Credentials that are none. All of them get the same 401.

use checkout::http::contract::Auth;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::row::{Route, Row};
use crate::support::SECRET;

const AUTHORIZATION: &str = "Authorization";
/// Long after any test.
const EXP: u64 = 4_000_000_000;

/// A token of any shape, signed.
fn token(algorithm: Algorithm, secret: &str, claims: &Value) -> String {
    encode(&Header::new(algorithm), claims, &EncodingKey::from_secret(secret.as_bytes()).expect("a key"))
        .expect("a token")
}

fn of_customer_42() -> Value {
    json!({"iss": "checkout", "sub": "42", "exp": EXP})
}

/// The usual token with one claim changed, or taken away.
fn claiming(name: &str, value: Value) -> String {
    let mut claims = of_customer_42();
    claims[name] = value;
    if claims[name].is_null() {
        claims.as_object_mut().expect("claims").remove(name);
    }
    token(Algorithm::HS256, SECRET, &claims)
}

pub(crate) fn rows(route: &Route) -> Vec<Row> {
    let refused = |name: &str, value: &[u8]| {
        route
            .request()
            .set(AUTHORIZATION, value)
            .gets(name, 401, "unauthenticated")
            .header("www-authenticate", "Bearer")
    };
    let anonymous = || route.request().without(AUTHORIZATION);
    let good = format!("Bearer {}", route.token);
    let mut rows: Vec<Row> = tokens(&route.token)
        .into_iter()
        .map(|(name, token)| refused(name, format!("Bearer {token}").as_bytes()))
        .collect();
    for (name, value) in [
        ("an empty header", ""),
        ("the scheme alone", "Bearer"),
        ("the scheme and spaces", "Bearer    "),
        ("Basic", "Basic NDI6c2VjcmV0"),
        ("Digest", "Digest username=\"42\""),
        ("a token without its scheme", &route.token),
        ("another scheme with a good token", &format!("Token {}", route.token)),
        ("a good token and more", &format!("{good} {}", route.token)),
        ("two credentials in one line", &format!("{good}, {good}")),
        ("a quoted token", &format!("Bearer \"{}\"", route.token)),
    ] {
        rows.push(refused(name, value.as_bytes()));
    }
    rows.push(refused("a header that is no text", &[good.as_bytes(), b"\xff"].concat()));
    let twice = [
        ("the same credential twice", good.as_str()),
        ("a good one and a bad one", "Bearer nonsense"),
        ("a good one and none", ""),
    ];
    for (name, second) in twice {
        rows.push(route.request().with(AUTHORIZATION, second).gets(name, 401, "unauthenticated"));
    }
    rows.push(refused("a bad one and a good one", b"Bearer nonsense").clone());
    let elsewhere = [
        ("no header", anonymous()),
        ("a token in the query", anonymous().target(format!("{}?access_token={}", route.target, route.token))),
        ("a token in a cookie", anonymous().with("Cookie", format!("token={}", route.token))),
        ("a name without proof", anonymous().with("X-Customer-Id", "42")),
        ("a proxy's credential", anonymous().with("Proxy-Authorization", &good)),
        // Who it is comes first: nobody learns what else is wrong.
        ("no credential and no body", anonymous().body("")),
        ("no credential and no key", anonymous().without("Idempotency-Key")),
    ];
    rows.extend(elsewhere.map(|(name, request)| request.gets(name, 401, "unauthenticated")));
    rows.push(match route.declared.auth {
        // What is the house's is not there for anybody else.
        Auth::Operator => {
            let of_customer = format!("Bearer {}", claiming("sub", "42".into()));
            route.request().set(AUTHORIZATION, of_customer).gets("a customer's token", 404, "not_found")
        }
        _ => refused("the operator's token", format!("Bearer {}", claiming("sub", "operator".into())).as_bytes()),
    });
    rows
}

fn tokens(good: &str) -> Vec<(&'static str, String)> {
    let parts: Vec<&str> = good.split('.').collect();
    let (head, claims, signature) = (parts[0], parts[1], parts[2]);
    let other_claims = claiming("sub", "7".into());
    let other_claims = other_claims.split('.').nth(1).expect("claims");
    // {"alg":"none","typ":"JWT"} and {"alg":"RS256","typ":"JWT"}
    let (none, rs256) = ("eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0", "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9");
    vec![
        ("garbage", "nonsense".to_owned()),
        ("dots", "...".to_owned()),
        ("a customer's number", "42".to_owned()),
        ("8 KiB of garbage", "x".repeat(8 * 1024)),
        ("SQL", "' OR '1'='1".to_owned()),
        ("an expired token", claiming("exp", 1_700_000_000.into())),
        ("a token that never expires", claiming("exp", Value::Null)),
        ("a token that is not good yet", claiming("nbf", (EXP - 1).into())),
        ("another issuer's", claiming("iss", "another".into())),
        ("nobody's", claiming("iss", Value::Null)),
        ("a token for nobody", claiming("sub", Value::Null)),
        ("a token for customer 0", claiming("sub", "0".into())),
        ("a token for customer -1", claiming("sub", "-1".into())),
        ("a token for customer 042", claiming("sub", "042".into())),
        ("a token for a name", claiming("sub", "alice".into())),
        ("a token for a number", claiming("sub", 42.into())),
        ("a token for a list", claiming("sub", json!(["42", "7"]))),
        (
            "a token signed with another secret",
            token(Algorithm::HS256, "another-secret-of-32-characters!", &of_customer_42()),
        ),
        ("our secret, another algorithm", token(Algorithm::HS512, SECRET, &of_customer_42())),
        ("no algorithm and no signature", format!("{none}.{claims}.")),
        ("no algorithm and a signature", format!("{none}.{claims}.{signature}")),
        ("another algorithm's head", format!("{rs256}.{claims}.{signature}")),
        ("somebody else's claims", format!("{head}.{other_claims}.{signature}")),
        ("a signature cut short", good[..good.len() - 2].to_owned()),
        ("no signature", format!("{head}.{claims}.")),
        ("two parts", format!("{head}.{claims}")),
    ]
}
