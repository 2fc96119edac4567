//! The api's request log, asked over HTTP like anybody of the house would ask: which requests came, and how did they end?

use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;

use crate::credential::{Credentials, Subject};

/// Requests shown, and the most bytes read to get them.
const REQUESTS_MAX: usize = 50;
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The page goes without the log when it takes longer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Long enough for clocks that disagree, short enough to be worthless soon.
const TOKEN_LIFE: Duration = Duration::from_secs(60);

/// One request as the api remembers it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct LoggedRequest {
    pub(super) at: String,
    pub(super) request_id: String,
    pub(super) method: String,
    pub(super) path: String,
    pub(super) customer: Option<i64>,
    pub(super) key: Option<String>,
    pub(super) status: u16,
    pub(super) code: Option<String>,
    pub(super) replayed: bool,
    pub(super) took_ms: f64,
}

#[derive(Debug, Deserialize)]
struct Answer {
    requests: Vec<LoggedRequest>,
}

/// Where the log is read, and with what credential.
#[derive(Debug, Clone)]
pub(super) struct RequestLog {
    client: reqwest::Client,
    api_url: String,
    credentials: Credentials,
}

impl RequestLog {
    pub(super) fn new(api_url: &str, credentials: Credentials) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder()
            .no_proxy()
            .retry(reqwest::retry::never())
            .redirect(reqwest::redirect::Policy::none())
            .timeout(ANSWER_TIMEOUT)
            .build()?;
        Ok(Self { client, api_url: api_url.trim_end_matches('/').to_owned(), credentials })
    }

    pub(super) fn api_url(&self) -> &str {
        &self.api_url
    }

    /// The newest requests, newest first.
    pub(super) async fn newest(&self) -> anyhow::Result<Vec<LoggedRequest>> {
        let token = self.credentials.mint(Subject::Operator, TOKEN_LIFE)?;
        let url = format!("{}/operator/requests", self.api_url);
        let mut response = self.client.get(&url).bearer_auth(token).send().await?.error_for_status()?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            anyhow::ensure!(body.len() + chunk.len() <= ANSWER_BYTES_MAX, "the answer of {url} is too long");
            body.extend_from_slice(&chunk);
        }
        let mut answer: Answer = serde_json::from_slice(&body).with_context(|| format!("the answer of {url}"))?;
        answer.requests.truncate(REQUESTS_MAX);
        Ok(answer.requests)
    }
}
