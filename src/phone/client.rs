//! The phone over HTTP. Question: what exactly is sent, and what may be asked before anything is started anew?
//!
//! Every send is one that [`obey`] decided on: the transport repeats nothing that it had begun to send, follows no redirect and
//! knows no proxy. The body is made once per intent, so every attempt carries the same bytes.

use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use reqwest::{
    Client, RequestBuilder, Url,
    header::{HeaderMap, HeaderValue, LOCATION, RETRY_AFTER},
    redirect, retry,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::{
    Answer, Heard, KeyPolicy, Patience, Told,
    obey::{Transport, obey},
};

/// Longest answer that is read. Ours have a few KiB.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// What a customer wants done, ready to be sent as often as it takes.
#[derive(Clone)]
pub struct Intent {
    /// As `/v1/orders`.
    pub path: String,
    /// The customer's token, good for longer than the patience lasts.
    pub bearer: String,
    pub body: Bytes,
}

impl std::fmt::Debug for Intent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Intent").field("path", &self.path).finish_non_exhaustive()
    }
}

/// What the api tells about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyState {
    /// Nothing is known under it. Right after a send that proves nothing: the request may still be on its way.
    NeverUsed,
    /// `in_flight`, `unknown`, `needs_review`; or `released`, which a late request under the same key may still revive.
    Open(String),
    /// The stored answer.
    Final(Answer),
    /// It bought something, and too long ago to be answered as before.
    Expired { location: Option<String> },
    /// The question itself was not answered.
    NotTold { why: String },
}

impl KeyState {
    /// May the same purchase be started anew under another key? Only when this one ended without buying anything.
    pub fn allows_a_new_key(&self) -> bool {
        matches!(self, Self::Final(answer) if answer.status >= 400)
    }
}

/// One customer's device, or a program that stands for many.
#[derive(Debug, Clone)]
pub struct Phone {
    http: Client,
    api_url: Url,
    patience: Patience,
}

impl Phone {
    pub fn new(api_url: &str, patience: Patience) -> anyhow::Result<Self> {
        // An error means that a provider is installed already, which is all we want.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = Client::builder()
            .no_proxy()
            .retry(retry::never())
            .redirect(redirect::Policy::none())
            .timeout(patience.answer_max)
            .build()
            .context("cannot build an HTTP client")?;
        let api_url: Url = api_url.parse().with_context(|| format!("{api_url} is not a URL"))?;
        anyhow::ensure!(matches!(api_url.scheme(), "http" | "https"), "{api_url} is not an http URL");
        Ok(Self { http, api_url, patience })
    }

    /// Sends the intent until the server decides or patience ends.
    pub async fn send(&self, intent: &Intent, policy: &KeyPolicy, stop: &CancellationToken) -> Told {
        obey(&Sender { phone: self, intent }, policy, &self.patience, stop).await
    }

    /// One attempt.
    pub async fn attempt(&self, intent: &Intent, key: Option<&str>) -> Heard {
        let request = self.http.post(self.url(intent.path.trim_start_matches('/').split('/')));
        let mut request = request.bearer_auth(&intent.bearer);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        match exchange(request.header("Content-Type", "application/json").body(intent.body.clone())).await {
            Ok(answer) => Heard::read(answer),
            Err(heard) => heard,
        }
    }

    /// What became of a key: asked before anybody dares to start anew.
    pub async fn ask(&self, operation: &str, key: &str, bearer: &str) -> KeyState {
        let url = self.url(["v1", "idempotency-keys", operation, key]);
        match exchange(self.http.get(url).bearer_auth(bearer)).await {
            Ok(answer) => state(answer),
            Err(heard) => KeyState::NotTold { why: heard.sentence() },
        }
    }

    /// Below the api's own path. A key may contain anything visible, so each segment is encoded.
    fn url<'a>(&self, segments: impl IntoIterator<Item = &'a str>) -> Url {
        let mut url = self.api_url.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }
}

struct Sender<'a> {
    phone: &'a Phone,
    intent: &'a Intent,
}

impl Transport for Sender<'_> {
    async fn attempt(&self, key: Option<&str>) -> Heard {
        self.phone.attempt(self.intent, key).await
    }
}

async fn exchange(request: RequestBuilder) -> Result<Answer, Heard> {
    let mut response = request.send().await.map_err(|error| {
        let why = reason(&error);
        if error.is_connect() || error.is_builder() { Heard::NotSent { why } } else { Heard::NoAnswer { why } }
    })?;
    let status = response.status().as_u16();
    let headers = std::mem::take(response.headers_mut());
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| Heard::Truncated { status })? {
        if body.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(Heard::Unreadable { status });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Answer {
        status,
        replayed: text(&headers, "idempotent-replayed") == Some("true"),
        location: text(&headers, LOCATION.as_str()).map(str::to_owned),
        // Seconds are all that our api sends; a date would need a clock that agrees with the server's.
        retry_after: text(&headers, RETRY_AFTER.as_str())
            .and_then(|seconds| seconds.parse().ok())
            .map(Duration::from_secs),
        body,
    })
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(HeaderValue::to_str).and_then(Result::ok)
}

/// The innermost cause: "Connection refused" says more than "error sending request".
fn reason(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[derive(Deserialize)]
struct Shown {
    state: String,
    location: Option<String>,
    response: Option<ShownResponse>,
}

#[derive(Deserialize)]
struct ShownResponse {
    status: u16,
    location: Option<String>,
    body: Box<RawValue>,
}

fn state(answer: Answer) -> KeyState {
    if answer.status != 200 {
        return match Heard::read(answer) {
            Heard::Problem { problem, .. } if problem.code == "not_found" => KeyState::NeverUsed,
            heard => KeyState::NotTold { why: heard.sentence() },
        };
    }
    match serde_json::from_slice::<Shown>(&answer.body) {
        Ok(Shown { response: Some(response), .. }) => KeyState::Final(Answer {
            status: response.status,
            replayed: true,
            location: response.location,
            retry_after: None,
            body: response.body.get().as_bytes().to_vec(),
        }),
        Ok(shown) if shown.state == "expired" => KeyState::Expired { location: shown.location },
        Ok(shown) => KeyState::Open(shown.state),
        Err(_) => KeyState::NotTold { why: "an answer that is not the api's (200)".to_owned() },
    }
}

#[cfg(test)]
mod tests;
