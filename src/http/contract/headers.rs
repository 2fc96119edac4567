//! Headers of answers, and which problem carries which.

use serde_json::{Value, json};

use crate::wire::problem::Code;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Header {
    RequestId,
    Location,
    IdempotentReplayed,
    RetryAfter,
    WwwAuthenticate,
    Allow,
}

/// Whether an answer has a header without exception.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    Sometimes,
    Always,
}

impl Header {
    pub const ALL: [Self; 6] = [
        Self::RequestId,
        Self::Location,
        Self::IdempotentReplayed,
        Self::RetryAfter,
        Self::WwwAuthenticate,
        Self::Allow,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::RequestId => "Request-Id",
            Self::Location => "Location",
            Self::IdempotentReplayed => "Idempotent-Replayed",
            Self::RetryAfter => "Retry-After",
            Self::WwwAuthenticate => "WWW-Authenticate",
            Self::Allow => "Allow",
        }
    }

    pub fn sentence(self) -> &'static str {
        match self {
            Self::RequestId => "Names this exchange in the log. A replay has one of its own; its body keeps the first.",
            Self::Location => "Where the thing is found that this key made.",
            Self::IdempotentReplayed => {
                "Only on a replay: these bytes were first sent in answer to an earlier request."
            }
            Self::RetryAfter => "Seconds to wait before the same request is sent again.",
            Self::WwwAuthenticate => "The scheme that is accepted.",
            Self::Allow => "The methods that this path knows.",
        }
    }

    pub fn schema(self) -> Value {
        match self {
            Self::RequestId => json!({"type": "string", "format": "uuid"}),
            Self::Location => json!({"type": "string", "format": "uri-reference", "pattern": "^/v1/"}),
            Self::IdempotentReplayed => json!({"type": "string", "const": "true"}),
            Self::RetryAfter => json!({"type": "integer", "minimum": 1}),
            Self::WwwAuthenticate => json!({"type": "string", "const": "Bearer"}),
            Self::Allow => json!({"type": "string"}),
        }
    }
}

/// The headers of a problem beside `Request-Id`, which every answer has.
pub fn headers_of(code: Code) -> &'static [(Header, Presence)] {
    use Presence::{Always, Sometimes};
    match code {
        Code::Unauthenticated => &[(Header::WwwAuthenticate, Always)],
        Code::MethodNotAllowed => &[(Header::Allow, Always)],
        Code::IdempotencyKeyExpired => &[(Header::Location, Always)],
        // Results: stored, and replayed.
        Code::CardDeclined | Code::RefundRefused => &[(Header::IdempotentReplayed, Sometimes)],
        Code::RequestInProgress
        | Code::RateLimited
        | Code::KeyQuotaExceeded
        | Code::Internal
        | Code::GatewayUnavailable
        | Code::Unavailable
        | Code::Overloaded
        | Code::OutcomeUnknown => &[(Header::RetryAfter, Always)],
        Code::RequestTimeout => &[(Header::RetryAfter, Sometimes)],
        Code::IdempotencyKeyMissing
        | Code::IdempotencyKeyInvalid
        | Code::MalformedJson
        | Code::WebhookSignatureInvalid
        | Code::NotFound
        | Code::PayloadTooLarge
        | Code::UnsupportedMediaType
        | Code::ValidationFailed
        | Code::IdempotencyKeyReused
        | Code::CardDataNotAccepted
        | Code::RefundExceedsBalance => &[],
    }
}
