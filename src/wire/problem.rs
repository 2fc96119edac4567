//! Every way a request can fail, as one table: RFC 9457 `application/problem+json`.
//!
//! The table is data. It feeds the answers, the documentation and the tests; a status or a `code` is written nowhere else.
//! `retry` is what a program may obey: send the same key again, take a new key after the customer changed something, or
//! stop.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::json::FieldError;
use crate::ids::RequestId;

/// Most faults that one answer names.
const ERRORS_MAX: usize = 100;

pub const CONTENT_TYPE: &str = "application/problem+json";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// Again, unchanged, under the same key.
    SameKey,
    /// Under a new key, and only after the customer changed something.
    NewKey,
    /// Sending it again cannot help.
    Never,
}

macro_rules! problems {
    ($($code:ident = $name:literal, $status:literal, $retry:ident, $title:literal;)*) => {
        /// One row of the table per code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($code),* }

        impl Code {
            pub const ALL: &[Self] = &[$(Self::$code),*];

            /// As clients match on it.
            pub fn name(self) -> &'static str { match self { $(Self::$code => $name),* } }
            pub fn status(self) -> u16 { match self { $(Self::$code => $status),* } }
            pub fn retry(self) -> Retry { match self { $(Self::$code => Retry::$retry),* } }
            pub fn title(self) -> &'static str { match self { $(Self::$code => $title),* } }
        }
    };
}

problems! {
    IdempotencyKeyMissing = "idempotency_key_missing", 400, Never, "This request needs an Idempotency-Key";
    IdempotencyKeyInvalid = "idempotency_key_invalid", 400, Never, "The Idempotency-Key is not valid";
    MalformedJson = "malformed_json", 400, Never, "The body is not a JSON document";
    WebhookSignatureInvalid = "webhook_signature_invalid", 400, Never, "The delivery is not signed as the gateway signs";
    Unauthenticated = "unauthenticated", 401, SameKey, "A valid bearer token is needed";
    CardDeclined = "card_declined", 402, NewKey, "The payment method was declined";
    NotFound = "not_found", 404, Never, "There is nothing here for you";
    MethodNotAllowed = "method_not_allowed", 405, Never, "This resource does not know that method";
    RequestTimeout = "request_timeout", 408, SameKey, "The request took too long to arrive; nothing was done";
    RequestInProgress = "request_in_progress", 409, SameKey, "This request is still being worked on";
    IdempotencyKeyExpired = "idempotency_key_expired", 410, Never, "This key has already bought something and has expired";
    PayloadTooLarge = "payload_too_large", 413, Never, "The body is too large";
    UnsupportedMediaType = "unsupported_media_type", 415, Never, "The body must be application/json";
    ValidationFailed = "validation_failed", 422, Never, "Some fields are not valid";
    IdempotencyKeyReused = "idempotency_key_reused", 422, Never, "This key was first used for another request";
    CardDataNotAccepted = "card_data_not_accepted", 422, Never, "Card numbers are not accepted here";
    RefundExceedsBalance = "refund_exceeds_balance", 422, Never, "There is not that much left to refund";
    RefundRefused = "refund_refused", 422, NewKey, "The gateway refused the refund";
    RateLimited = "rate_limited", 429, SameKey, "Too many requests of this customer; nothing was done";
    KeyQuotaExceeded = "key_quota_exceeded", 429, SameKey, "Too many live keys of this customer; nothing was done";
    Internal = "internal", 500, SameKey, "Something went wrong on our side";
    GatewayUnavailable = "gateway_unavailable", 503, SameKey, "The payment gateway cannot be reached; nothing was charged";
    Unavailable = "unavailable", 503, SameKey, "The checkout cannot reach its database";
    Overloaded = "overloaded", 503, SameKey, "Too much is going on at this moment; nothing was done";
    OutcomeUnknown = "outcome_unknown", 504, SameKey, "The outcome is not known yet";
}

/// One failure, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub code: Code,
    /// What happened this time, for a person. Never the stored answer of somebody else's request, never a secret.
    pub detail: String,
    pub errors: Vec<FieldError>,
    pub decline_code: Option<String>,
    pub retry_after: Option<Duration>,
    pub location: Option<String>,
}

#[derive(Serialize)]
struct Body<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    retry: Retry,
    request_id: RequestId,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [FieldError],
    #[serde(skip_serializing_if = "Option::is_none")]
    decline_code: Option<&'a str>,
}

impl Problem {
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), errors: Vec::new(), decline_code: None, retry_after: None, location: None }
    }

    /// At most the first hundred faults are told: they say enough.
    pub fn invalid(mut errors: Vec<FieldError>) -> Self {
        let detail = match errors.as_slice() {
            [only] if only.pointer.is_empty() => format!("the body {}", only.detail),
            [only] => format!("{} {}", only.pointer, only.detail),
            several => format!("{} fields are not valid", several.len()),
        };
        errors.truncate(ERRORS_MAX);
        Self { errors, ..Self::new(Code::ValidationFailed, detail) }
    }

    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    pub fn body(&self, request_id: RequestId) -> Vec<u8> {
        let body = Body {
            r#type: &format!("/docs/problems#{}", self.code.name()),
            title: self.code.title(),
            status: self.code.status(),
            detail: &self.detail,
            code: self.code.name(),
            retry: self.code.retry(),
            request_id,
            errors: &self.errors,
            decline_code: self.decline_code.as_deref(),
        };
        serde_json::to_vec(&body).unwrap_or_else(|_| b"{}".to_vec())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_code_has_a_name_of_its_own_and_an_error_status() {
        let names: HashSet<_> = Code::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), Code::ALL.len());
        assert!(Code::ALL.iter().all(|code| (400..600).contains(&code.status())));
    }

    #[test]
    fn a_body_full_of_faults_has_a_bounded_answer() {
        let fault = |n| FieldError { pointer: format!("/f{n}"), detail: "is not a field of this request".to_owned() };
        let problem = Problem::invalid((0..5_000).map(fault).collect());
        assert_eq!((problem.errors.len(), problem.detail.as_str()), (ERRORS_MAX, "5000 fields are not valid"));
    }

    #[test]
    fn what_a_client_must_repeat_unchanged_is_never_called_final() {
        for code in Code::ALL.iter().filter(|code| code.status() >= 500 || code.status() == 409) {
            assert_eq!(code.retry(), Retry::SameKey, "{}", code.name());
        }
    }
}
