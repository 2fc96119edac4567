//! The gateway over HTTP, in Stripe's v1 dialect. Every send is one this code decided on: the transport's own retries are off.

mod listing;
mod refund;
mod shown;

use std::time::Duration;

use anyhow::Context;
use reqwest::{
    Client, RequestBuilder,
    header::{HeaderMap, HeaderValue, RETRY_AFTER},
    retry,
};
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    Ask, ChargeRequest, Lookup, Outcome,
    breaker::Breaker,
    classify::{Answer, PaymentIntent, Situation},
};
use crate::{config::GatewayClientArgs, wire::json};

/// Longest answer that is read. One object has about 2 KiB; a full page of a list has 100 of them, with charges and with
/// whatever notes others made.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A connection that takes longer to come about than this will not come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Keep-alive connections: as many as requests may be waiting for the gateway at once.
const IDLE_CONNECTIONS_MAX: usize = 1024;

/// Where the metadata carries our key, so that a charge can be found by it.
pub(super) const KEY_METADATA: &str = "checkout_key";

#[derive(Clone)]
pub struct GatewayClient {
    http: Client,
    charges_url: String,
    search_url: String,
    refunds_url: String,
    bearer: String,
    /// What charges tell of the gateway's health.
    pub breaker: Breaker,
}

impl std::fmt::Debug for GatewayClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GatewayClient").field("charges_url", &self.charges_url).finish_non_exhaustive()
    }
}

impl GatewayClient {
    pub fn new(args: &GatewayClientArgs) -> anyhow::Result<Self> {
        // An error means that a provider is installed already, which is all we want.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = Client::builder()
            .no_proxy()
            .retry(retry::never())
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .tcp_nodelay(true)
            .build()
            .context("cannot set up the gateway client")?;
        let base = args.gateway_url.trim_end_matches('/');
        Ok(Self {
            http,
            charges_url: format!("{base}/v1/payment_intents"),
            search_url: format!("{base}/v1/payment_intents/search"),
            refunds_url: format!("{base}/v1/refunds"),
            bearer: args.gateway_key.clone(),
            breaker: Breaker::never(),
        })
    }

    /// Sends what is asked for once and waits at most `timeout` for the whole answer.
    pub async fn send(&self, ask: &Ask, timeout: Duration) -> Outcome {
        match ask {
            Ask::Charge(request) => self.charge(request, timeout).await,
            Ask::Refund(request) => self.refund(request, timeout).await,
        }
    }

    /// Asks what became of it, without sending it. For `since_s` see [`Self::lookup`].
    pub async fn look_up(&self, ask: &Ask, since_s: i64, timeout: Duration) -> Lookup {
        match ask {
            Ask::Charge(request) => self.lookup(request, since_s, timeout).await,
            Ask::Refund(request) => self.lookup_refund(request, since_s, timeout).await,
        }
    }

    /// Sends the charge once and waits at most `timeout` for the whole answer.
    pub async fn charge(&self, request: &ChargeRequest, timeout: Duration) -> Outcome {
        let send = self
            .http
            .post(&self.charges_url)
            .bearer_auth(&self.bearer)
            .header("Idempotency-Key", &request.key)
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(form(request))
            .timeout(timeout);
        let began = Instant::now();
        let exchanged = exchange(send).await;
        self.breaker.heard(began, exchanged.as_ref().is_ok_and(is_in_order));
        match exchanged {
            Ok(answer) => answer.outcome(request),
            Err(situation) => situation.plain(),
        }
    }

    /// Asks what became of a charge, without sending one.
    ///
    /// A declined key may run anew after it expired, so the gateway may show an older purchase's refusal under it. What was
    /// created before `since_s` (seconds since 1970) is that, and only money taken and kept counts from it.
    pub async fn lookup(&self, request: &ChargeRequest, since_s: i64, timeout: Duration) -> Lookup {
        match self.search(request, timeout).await {
            Ok(found) => most_telling(found, request, since_s),
            Err(why) => Lookup::Unreachable { why },
        }
    }

    async fn search(&self, request: &ChargeRequest, timeout: Duration) -> Result<Vec<PaymentIntent>, String> {
        let query = format!("metadata['{KEY_METADATA}']:'{}'", request.key);
        // The charge as a whole, because a refund leaves the intent as it was.
        let asked = [("query", query.as_str()), ("limit", "100"), ("expand[]", "data.latest_charge")];
        let ask = self.http.get(&self.search_url).bearer_auth(&self.bearer).query(&asked).timeout(timeout);
        let answer = exchange(ask).await.map_err(|situation| situation.sentence().to_owned())?;
        match json::object::<SearchResult>(&answer.body) {
            Ok(found) if answer.status == 200 => Ok(found.data),
            _ => Err(format!("the gateway's search answered {}", answer.status)),
        }
    }

    /// Asks for one payment intent by the gateway's own name for it. One that was made for another key is not found.
    pub async fn retrieve(&self, gateway_id: &str, request: &ChargeRequest, timeout: Duration) -> Lookup {
        if gateway_id.is_empty() || !gateway_id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Lookup::NothingFound;
        }
        let ask = self
            .http
            .get(format!("{}/{gateway_id}", self.charges_url))
            .bearer_auth(&self.bearer)
            .query(&[("expand[]", "latest_charge")])
            .timeout(timeout);
        let answer = match exchange(ask).await {
            Ok(answer) => answer,
            Err(situation) => return Lookup::Unreachable { why: situation.sentence().to_owned() },
        };
        match (answer.status, json::object::<PaymentIntent>(&answer.body)) {
            (200, Ok(intent)) if intent.metadata.get(KEY_METADATA) == Some(&request.key) => {
                Lookup::Found(intent.outcome(request))
            }
            (200, Ok(_)) | (404, _) => Lookup::NothingFound,
            (status, _) => Lookup::Unreachable { why: format!("the gateway answered {status}") },
        }
    }
}

/// Whatever it says: the gateway is there, and takes what it is sent. An answer that it has recorded and repeats says nothing
/// of how it is now.
fn is_in_order(answer: &Answer) -> bool {
    (answer.status < 500 && answer.status != 429) || answer.should_retry == Some(false)
}

#[derive(Deserialize)]
struct SearchResult {
    data: Vec<PaymentIntent>,
}

/// What is older belongs to an earlier purchase, unless it has our money.
fn of_this_purchase(found: Vec<PaymentIntent>, since_s: i64) -> impl Iterator<Item = PaymentIntent> {
    found.into_iter().filter(move |intent| intent.created >= since_s || intent.holds_money())
}

/// A charge that took the money and kept it outweighs every other trace under the same key. One that gave it back is history
/// like any other refusal.
fn most_telling(found: Vec<PaymentIntent>, request: &ChargeRequest, since_s: i64) -> Lookup {
    let mut outcomes = of_this_purchase(found, since_s).map(|intent| intent.outcome(request)).collect::<Vec<_>>();
    let telling = outcomes.iter().position(|outcome| matches!(outcome, Outcome::Approved { .. })).unwrap_or_default();
    if outcomes.is_empty() { Lookup::NothingFound } else { Lookup::Found(outcomes.swap_remove(telling)) }
}

/// The same bytes for the same request, always: the gateway compares them.
fn form(request: &ChargeRequest) -> String {
    let mut form = form_urlencoded::Serializer::new(String::with_capacity(256));
    form.append_pair("amount", &request.amount.amount_minor().to_string());
    form.append_pair("currency", request.amount.currency().code());
    form.append_pair("payment_method", &request.payment_method);
    form.append_pair("confirm", "true");
    form.append_pair(&format!("metadata[{KEY_METADATA}]"), &request.key);
    if let Some(reference) = &request.reference {
        form.append_pair("metadata[reference]", reference);
    }
    form.finish()
}

async fn exchange(request: RequestBuilder) -> Result<Answer, Situation> {
    let mut response = request.send().await.map_err(|error| noted(&error))?;
    let (status, headers) = (response.status().as_u16(), std::mem::take(response.headers_mut()));
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| noted(&error))? {
        if body.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(Situation::AnswerUnreadable);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Answer { status, should_retry: should_retry(&headers), retry_after: retry_after(&headers), body })
}

fn noted(error: &reqwest::Error) -> Situation {
    let situation = Situation::of_failure(error);
    tracing::info!(?situation, %error, "an exchange with the gateway failed");
    situation
}

fn text(headers: &HeaderMap, name: impl reqwest::header::AsHeaderName) -> Option<&str> {
    headers.get(name).map(HeaderValue::to_str).and_then(Result::ok)
}

fn should_retry(headers: &HeaderMap) -> Option<bool> {
    text(headers, "stripe-should-retry")?.parse().ok()
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    text(headers, RETRY_AFTER)?.parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests;
