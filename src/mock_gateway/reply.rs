//! Responses and the error envelope.
//!
//! Promise: whatever is not a 2xx carries `{"error":{…}}`, because an official client takes a failure without it for a success.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::StatusCode;
use hyper::body::{Body, Frame, SizeHint};
use serde::Serialize;
use tokio::sync::mpsc;

use super::object::Intent;

/// One answer, before its headers.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) body: ReplyBody,
    /// The request whose answer this repeats.
    pub(super) replayed_from: Option<Box<str>>,
    /// Advice to the client, where the status alone would mislead it.
    pub(super) should_retry: Option<bool>,
    /// The methods that would have been allowed.
    pub(super) allow: Option<&'static str>,
}

impl Reply {
    pub(super) fn new(status: StatusCode, body: Bytes) -> Self {
        Self { status, body: ReplyBody::Whole(body), replayed_from: None, should_retry: None, allow: None }
    }

    pub(super) fn ok(value: &impl Serialize) -> Self {
        Self::new(StatusCode::OK, json(value))
    }
}

/// A request this gateway does not execute, or an execution that found nothing to do.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
    param: Option<Box<str>>,
    message: String,
    should_retry: Option<bool>,
    allow: Option<&'static str>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, code: None, param: None, message: message.into(), should_retry: None, allow: None }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    pub(super) fn parameter(code: &'static str, param: &str, message: impl Into<String>) -> Self {
        Self { code: Some(code), param: Some(param.into()), ..Self::invalid(message) }
    }

    pub(super) fn missing(status: StatusCode, param: &str, message: impl Into<String>) -> Self {
        Self { status, ..Self::parameter("resource_missing", param, message) }
    }

    /// Names the parameter that is wrong.
    pub(super) fn about(self, param: &str) -> Self {
        Self { param: Some(param.into()), ..self }
    }

    pub(super) fn coded(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    pub(super) fn retry(self, should_retry: bool) -> Self {
        Self { should_retry: Some(should_retry), ..self }
    }

    pub(super) fn allowing(self, methods: &'static str) -> Self {
        Self { allow: Some(methods), ..self }
    }

    pub(super) fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "api_error", "An error occurred inside the gateway.")
    }

    pub(super) fn json(&self) -> Bytes {
        json(&Envelope {
            error: ErrorJson {
                charge: None,
                code: self.code,
                decline_code: None,
                message: &self.message,
                param: self.param.as_deref(),
                payment_intent: None,
                r#type: self.kind,
            },
        })
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        let body = refusal.json();
        Self { should_retry: refusal.should_retry, allow: refusal.allow, ..Self::new(refusal.status, body) }
    }
}

/// The body of a 402: why, and what the intent looks like now.
pub(super) fn decline_json(intent: &Intent) -> Bytes {
    json(&Envelope {
        error: ErrorJson {
            charge: intent.latest_charge.map(|charge| charge.to_string()),
            code: intent.decline.map(|decline| decline.code()),
            decline_code: intent.decline.map(|decline| decline.decline_code()),
            message: intent.decline.map_or("Your card was declined.", |decline| decline.message()),
            param: None,
            payment_intent: Some(intent),
            r#type: "card_error",
        },
    })
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: ErrorJson<'a>,
}

#[derive(Serialize)]
struct ErrorJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    charge: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decline_code: Option<&'static str>,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    param: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payment_intent: Option<&'a Intent>,
    r#type: &'a str,
}

pub(super) fn json(value: &impl Serialize) -> Bytes {
    let mut bytes = Vec::with_capacity(1024);
    match serde_json::to_writer(&mut bytes, value) {
        Ok(()) => bytes.into(),
        // Only a map whose keys are not strings fails; none of ours is.
        Err(_) => Bytes::from_static(br#"{"error":{"message":"unprintable","type":"api_error"}}"#),
    }
}

/// The connection is to end here, without (the rest of) an answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection is cut here on purpose")]
pub(super) struct Cut;

#[derive(Debug)]
pub(super) enum ReplyBody {
    Whole(Bytes),
    /// The first half of a body that announces its full length.
    Half {
        first: Bytes,
        length: u64,
        sent: Sent,
    },
    /// Pages as they are read, of unknown total length.
    Pages(mpsc::Receiver<Result<Bytes, Cut>>),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Sent {
    Nothing,
    First,
    Flushed,
}

impl ReplyBody {
    pub(super) fn cut_in_half(self) -> Self {
        match self {
            Self::Whole(bytes) => {
                Self::Half { first: bytes.slice(..bytes.len() / 2), length: bytes.len() as u64, sent: Sent::Nothing }
            }
            other => other,
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Half { first, sent, .. } => match *sent {
                Sent::Nothing => {
                    *sent = Sent::First;
                    Poll::Ready(Some(Ok(Frame::data(std::mem::take(first)))))
                }
                Sent::First => {
                    // One turn of waiting lets the server flush what it has before it learns of the cut.
                    *sent = Sent::Flushed;
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                Sent::Flushed => Poll::Ready(Some(Err(Cut))),
            },
            Self::Pages(pages) => pages.poll_recv(cx).map(|page| page.map(|page| page.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Half { length, .. } => SizeHint::with_exact(*length),
            Self::Pages(_) => SizeHint::default(),
        }
    }
}
