//! What came back of one attempt. Question: does it end the intent, or leave it open?
//!
//! Only the api's own words end anything: a 201 that names what was made, or a problem with its `retry`. A proxy's error page, a
//! portal that answers every request with 200, a redirect, half a body: none of them knows what became of the purchase.

use std::time::Duration;

use serde::Deserialize;

use crate::wire::problem::Retry;

/// An answer, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// The server says that it had answered this before.
    pub replayed: bool,
    pub location: Option<String>,
    pub retry_after: Option<Duration>,
    pub body: Vec<u8>,
}

/// A problem as a client reads it. `code` is for people and for special cases; `retry` is what is obeyed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Problem {
    pub status: u16,
    pub code: String,
    pub retry: Retry,
    #[serde(default)]
    pub detail: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// 201, and it names what was made.
    Created(Answer),
    Problem {
        problem: Problem,
        answer: Answer,
    },
    /// There was no connection to send on: this attempt did nothing.
    NotSent {
        why: String,
    },
    /// Sent, at least in part, and nothing came back.
    NoAnswer {
        why: String,
    },
    /// The connection ended before the answer did.
    Truncated {
        status: u16,
    },
    /// Whole, and not in the api's words.
    Unreadable {
        status: u16,
    },
}

impl Heard {
    pub fn read(answer: Answer) -> Self {
        if answer.status == 201 && names_something(&answer.body) {
            return Self::Created(answer);
        }
        match serde_json::from_slice::<Problem>(&answer.body) {
            Ok(problem) if problem.status == answer.status && answer.status >= 400 => Self::Problem { problem, answer },
            _ => Self::Unreadable { status: answer.status },
        }
    }

    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Problem { answer, .. } => answer.retry_after,
            _ => None,
        }
    }

    /// May this very attempt have done what was asked? A problem in the 400s says that it did not.
    pub fn may_have_acted(&self) -> bool {
        match self {
            Self::NotSent { .. } => false,
            Self::Problem { answer, .. } => answer.status >= 500,
            Self::Created(answer) => !answer.replayed,
            Self::NoAnswer { .. } | Self::Truncated { .. } | Self::Unreadable { .. } => true,
        }
    }

    /// For a person, in a few words.
    pub fn sentence(&self) -> String {
        match self {
            Self::Created(_) => "201".to_owned(),
            Self::Problem { problem, .. } => format!("{} {}", problem.status, problem.code),
            Self::NotSent { why } => format!("not sent: {why}"),
            Self::NoAnswer { why } => format!("no answer: {why}"),
            Self::Truncated { status } => format!("half an answer ({status})"),
            Self::Unreadable { status } => format!("an answer that is not the api's ({status})"),
        }
    }
}

fn names_something(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Made {
        id: String,
    }
    serde_json::from_slice::<Made>(body).is_ok_and(|made| !made.id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ids::RequestId,
        wire::problem::{self, Code},
    };

    fn heard(status: u16, body: &[u8]) -> Heard {
        Heard::read(Answer { status, replayed: false, location: None, retry_after: None, body: body.to_vec() })
    }

    #[test]
    fn only_the_apis_own_words_are_read() {
        assert!(matches!(heard(201, br#"{"id": "o1"}"#), Heard::Created(_)));
        let declined = problem::Problem::new(Code::CardDeclined, "no").body(RequestId::mint());
        assert!(matches!(heard(402, &declined), Heard::Problem { .. }));
        for (status, body) in [
            (201, &b"{}"[..]),
            (201, br#"{"id": ""}"#),
            (201, br#"{"id": "o1""#),
            // A portal answers everything.
            (200, br#"{"id": "o1"}"#),
            (200, b"<html>Please log in</html>"),
            (204, b""),
            (302, b""),
            (403, b"<html>Forbidden</html>"),
            // Somebody else's problem: without `retry`, with one we do not know, or about another status.
            (402, br#"{"status": 402, "code": "card_declined"}"#),
            (402, br#"{"status": 402, "code": "card_declined", "retry": "perhaps"}"#),
            (502, &declined),
            (201, &declined),
        ] {
            assert_eq!(heard(status, body), Heard::Unreadable { status }, "{status} {}", body.escape_ascii());
        }
    }
}
