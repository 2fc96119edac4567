//! The bearer token in the header.

use axum::http::{HeaderMap, header};

use crate::{
    credential::{Credentials, Rejected, Subject},
    wire::problem::{Code, Problem},
};

/// Who the `Authorization` header speaks for.
pub(super) fn subject(credentials: &Credentials, headers: &HeaderMap) -> Result<Subject, Problem> {
    let mut sent = headers.get_all(header::AUTHORIZATION).iter();
    let only = match (sent.next(), sent.next()) {
        (_, Some(_)) => return Err(unauthenticated("Send one Authorization, not several.")),
        (only, None) => only,
    };
    let token = only
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim());
    let Some(token) = token else { return Err(unauthenticated("Send Authorization: Bearer and a token.")) };
    credentials.check(token).map_err(|rejected| {
        unauthenticated(match rejected {
            Rejected::Expired => {
                "The token has expired. Get a new one, and send this request again under the same key."
            }
            Rejected::Invalid => "The token is not valid.",
        })
    })
}

fn unauthenticated(detail: &str) -> Problem {
    Problem::new(Code::Unauthenticated, detail)
}
