//! Responses and the error envelope.
//!
//! Promise: whatever is not a 2xx carries `{"statusCode", "name", "message"}`, and the name is what a program matches on.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::StatusCode;
use hyper::body::{Body, Frame, SizeHint};
use serde::Serialize;
use tokio::sync::mpsc;

/// One answer, before its headers.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) body: ReplyBody,
    /// It repeats what an earlier request was told.
    pub(super) replayed: bool,
    /// The methods that would have been allowed.
    pub(super) allow: Option<&'static str>,
}

impl Reply {
    pub(super) fn new(status: StatusCode, body: ReplyBody) -> Self {
        Self { status, body, replayed: false, allow: None }
    }

    pub(super) fn ok(value: &impl Serialize) -> Self {
        Self::new(StatusCode::OK, ReplyBody::Whole(json(value)))
    }
}

/// A request that this service does not execute.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    name: &'static str,
    message: String,
    allow: Option<&'static str>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, name: &'static str, message: impl Into<String>) -> Self {
        Self { status, name, message: message.into(), allow: None }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "validation_error", message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(super) fn not_allowed(methods: &'static str) -> Self {
        let refusal = Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", format!("Use {methods} here."));
        Self { allow: Some(methods), ..refusal }
    }

    pub(super) fn internal() -> Self {
        let message = "Something went wrong inside the mail service.";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_server_error", message)
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        let body =
            json(&Envelope { status_code: refusal.status.as_u16(), name: refusal.name, message: &refusal.message });
        Self { allow: refusal.allow, ..Self::new(refusal.status, ReplyBody::Whole(body)) }
    }
}

#[derive(Serialize)]
struct Envelope<'a> {
    #[serde(rename = "statusCode")]
    status_code: u16,
    name: &'a str,
    message: &'a str,
}

fn json(value: &impl Serialize) -> Bytes {
    match serde_json::to_vec(value) {
        Ok(bytes) => bytes.into(),
        // Only a map whose keys are not strings fails; none of ours is.
        Err(_) => Bytes::from_static(br#"{"statusCode":500,"name":"internal_server_error","message":"unprintable"}"#),
    }
}

/// The connection is to end here, without (the rest of) an answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection is cut here on purpose")]
pub(super) struct Cut;

#[derive(Debug)]
pub(super) enum ReplyBody {
    Whole(Bytes),
    /// Pages as they are read, of unknown total length.
    Pages(mpsc::Receiver<Result<Bytes, Cut>>),
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Pages(pages) => pages.poll_recv(cx).map(|page| page.map(|page| page.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Pages(_) => SizeHint::default(),
        }
    }
}
