//! What the check sees: the api as a customer's phone does, and the gateway's own books. Question: what came over the
//! wire, byte for byte?

use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::super::DemoState;
use crate::ids::CustomerId;

const CUSTOMER: CustomerId = CustomerId(42);
const TOKEN_TTL: Duration = Duration::from_secs(3600);
/// Longer than the api's own limit: an answer that never comes must be the api's fault, not our impatience.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// A customer's phone, and a look at the gateway's books.
pub(super) struct Api {
    client: reqwest::Client,
    orders_url: String,
    ledger_url: String,
    stats_url: String,
    token: String,
}

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) replayed: bool,
    pub(super) location: Option<String>,
    pub(super) retry_after: Option<String>,
    pub(super) body: Vec<u8>,
}

impl Api {
    pub(super) fn new(state: &DemoState) -> anyhow::Result<Self> {
        Ok(Self {
            // Retries are what is being proved here: the client must not make any of its own.
            client: reqwest::Client::builder()
                .no_proxy()
                .retry(reqwest::retry::never())
                .timeout(ANSWER_MAX)
                .build()
                .context("cannot build an HTTP client")?,
            orders_url: format!("{}/v1/orders", state.api_url),
            ledger_url: format!("{}/_mock/ledger", state.gateway_url),
            stats_url: format!("{}/_mock/stats", state.gateway_url),
            token: state.token(CUSTOMER, TOKEN_TTL)?,
        })
    }

    pub(super) async fn order(&self, key: &str, body: &Value) -> anyhow::Result<Answer> {
        self.post(&self.orders_url, key, body).await
    }

    /// Gives back so much of the order.
    pub(super) async fn refund(&self, order: &str, key: &str, amount: i64) -> anyhow::Result<Answer> {
        self.post(&format!("{}/{order}/refunds", self.orders_url), key, &json!({ "amount": amount })).await
    }

    async fn post(&self, url: &str, key: &str, body: &Value) -> anyhow::Result<Answer> {
        let request = self.client.post(url).bearer_auth(&self.token).header("Idempotency-Key", key);
        let answer = request.json(body).send().await.context("no answer")?;
        let header = |name: &str| Some(answer.headers().get(name)?.to_str().ok()?.to_owned());
        Ok(Answer {
            status: answer.status().as_u16(),
            replayed: header("idempotent-replayed").as_deref() == Some("true"),
            location: header("location"),
            retry_after: header("retry-after"),
            body: answer.bytes().await.context("a truncated answer")?.to_vec(),
        })
    }

    /// How often the gateway played this trick. A fault that never fired proves nothing.
    pub(super) async fn fired(&self, fault: &str) -> anyhow::Result<u64> {
        let stats: Value = self.client.get(&self.stats_url).send().await?.error_for_status()?.json().await?;
        stats["faults"][fault].as_u64().with_context(|| format!("the gateway does not count {fault}"))
    }

    pub(super) async fn ledger(&self, intent: Option<&str>) -> anyhow::Result<Value> {
        let request = self.client.get(&self.ledger_url);
        let request = match intent {
            Some(intent) => request.query(&[("reference", intent)]),
            None => request,
        };
        request.send().await?.error_for_status()?.json().await.context("the ledger is not JSON")
    }

    /// What the mail service delivered.
    pub(super) async fn mails(&self, mail_url: &str) -> anyhow::Result<Value> {
        let request = self.client.get(format!("{mail_url}/_mock/mails"));
        request.send().await?.error_for_status()?.json().await.context("the list of mails is not JSON")
    }

    /// The gateway took money for this intent once, under whatever key, and it is the charge the order names.
    pub(super) async fn one_capture(&self, intent: &str, order: &Answer) -> anyhow::Result<()> {
        let charge = order.json()?["charge"]["gateway_id"].clone();
        let ledger = self.ledger(Some(intent)).await?;
        let captures = ledger["captures"].as_array().context("no captures in the ledger")?;
        ensure!(captures.len() == 1, "{} captures for one intent", captures.len());
        ensure!(captures[0]["payment_intent"] == charge, "the order names {charge}, the ledger {}", captures[0]);
        Ok(())
    }
}

impl Answer {
    pub(super) fn expect(&self, status: u16, code: Option<&str>) -> anyhow::Result<()> {
        ensure!(self.status == status, "{} instead of {status}: {}", self.status, self.text());
        if let Some(code) = code {
            ensure!(self.json()?["code"] == code, "not {code}: {}", self.text());
        }
        Ok(())
    }

    pub(super) fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("no JSON: {}", self.text()))
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}
