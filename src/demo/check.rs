//! `checkout demo --check`: the worked example as facts. Question: does this very build keep its promise, here and now?
//!
//! A stack of its own on free ports, real HTTP, one line per fact with the figure that was seen.

use std::{future::Future, path::PathBuf, time::Duration};

use anyhow::{Context, ensure};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use sqlx::PgPool;

use super::{DemoState, Ports, Stack, StackOptions, say};
use crate::{
    audit::{self, AuditOptions},
    database::embedded::Lifetime,
    ids::CustomerId,
};

const CUSTOMER: CustomerId = CustomerId(42);
const TOKEN_TTL: Duration = Duration::from_secs(3600);
/// Longer than the api's own limit: an answer that never comes must be the api's fault, not our impatience.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// A whole screen of thumbs.
const TAPS: usize = 50;
const VISA: &str = "pm_card_visa";
const INSUFFICIENT_FUNDS: &str = "pm_card_visa_chargeDeclinedInsufficientFunds";
/// The gateway charges this one and never answers its first request.
const ANSWER_LOST: &str = "pm_mock_drop_after";

pub(super) async fn run(program: PathBuf, stop: CancellationToken) -> anyhow::Result<()> {
    let mut options = StackOptions::new(program, Lifetime::Ephemeral, Ports::free());
    options.progress = say;
    let stack = Stack::start(options, &stop).await?;
    let failed = tokio::select! {
        failed = prove(stack.state()) => failed,
        () = stop.cancelled() => Err(anyhow::anyhow!("stopped before every fact was proved")),
    };
    stack.stop().await?;
    let failed = failed?;
    ensure!(failed == 0, "{failed} of the promises did not hold");
    say("Every promise held.");
    Ok(())
}

/// All facts, one after the other; how many failed.
async fn prove(state: &DemoState) -> anyhow::Result<usize> {
    let api = Api::new(state)?;
    let key = Uuid::new_v4().to_string();
    let mut first = None;
    let mut failed = 0;
    failed += fact("fresh order", fresh(&api, &key, &mut first)).await;
    failed += fact("replay", replay(&api, &key, first)).await;
    failed += fact("other body, same key", mismatch(&api, &key)).await;
    failed += fact("50 taps at once", taps(&api)).await;
    failed += fact("declined card", decline(&api)).await;
    failed += fact("answer lost", answer_lost(&api)).await;
    failed += fact("gateway's ledger", whole_ledger(&api)).await;
    failed += fact("audit", audit(state)).await;
    Ok(failed)
}

/// Prints the fact; 1 when it does not hold.
async fn fact(name: &str, seen: impl Future<Output = anyhow::Result<String>>) -> usize {
    match seen.await {
        Ok(figure) => {
            say(&format!("ok    {name}: {figure}"));
            0
        }
        Err(error) => {
            say(&format!("FAIL  {name}: {error:#}"));
            1
        }
    }
}

async fn fresh(api: &Api, key: &str, first: &mut Option<Answer>) -> anyhow::Result<String> {
    let answer = api.order(key, &one_grinder(VISA)).await?;
    answer.expect(201, None)?;
    ensure!(!answer.replayed, "a first request was answered with a replay");
    let location = answer.location.clone().context("no Location")?;
    *first = Some(answer);
    Ok(format!("201, Location {location}"))
}

async fn replay(api: &Api, key: &str, first: Option<Answer>) -> anyhow::Result<String> {
    let first = first.context("there is no first answer to compare with")?;
    let again = api.order(key, &one_grinder(VISA)).await?;
    again.expect(201, None)?;
    ensure!(again.replayed, "no `Idempotent-Replayed: true`");
    ensure!(again.body == first.body && again.location == first.location, "the replay differs from the first answer");
    Ok(format!("same {} bytes, Idempotent-Replayed: true", again.body.len()))
}

async fn mismatch(api: &Api, key: &str) -> anyhow::Result<String> {
    let answer = api.order(key, &order("kettle", 2, 5900, VISA)).await?;
    answer.expect(422, Some("idempotency_key_reused"))?;
    Ok("422 idempotency_key_reused".to_owned())
}

async fn taps(api: &Api) -> anyhow::Result<String> {
    let key = Uuid::new_v4().to_string();
    let body = one_grinder(VISA);
    let answers: Vec<Answer> =
        join_all((0..TAPS).map(|_| api.order(&key, &body))).await.into_iter().collect::<anyhow::Result<_>>()?;
    let (mut fresh, mut replayed, mut told_to_wait) = (0, 0, 0);
    for answer in &answers {
        match answer.status {
            201 if answer.replayed => replayed += 1,
            201 => fresh += 1,
            409 => {
                answer.expect(409, Some("request_in_progress"))?;
                ensure!(answer.retry_after.is_some(), "409 without Retry-After");
                told_to_wait += 1;
            }
            other => anyhow::bail!("{other}: {}", answer.text()),
        }
    }
    ensure!(fresh == 1, "{fresh} fresh answers");
    let bodies: Vec<&[u8]> = answers.iter().filter(|a| a.status == 201).map(|a| a.body.as_slice()).collect();
    ensure!(bodies.windows(2).all(|pair| pair[0] == pair[1]), "the 201s differ");
    let captures = api.captures_of(&api.order(&key, &body).await?).await?;
    ensure!(captures == 1, "{captures} captures for one order");
    Ok(format!("{fresh} fresh 201, {replayed} replayed, {told_to_wait} told to wait (409), 1 capture"))
}

async fn decline(api: &Api) -> anyhow::Result<String> {
    let key = Uuid::new_v4().to_string();
    let body = one_grinder(INSUFFICIENT_FUNDS);
    let first = api.order(&key, &body).await?;
    first.expect(402, Some("card_declined"))?;
    let again = api.order(&key, &body).await?;
    again.expect(402, Some("card_declined"))?;
    ensure!(again.replayed, "no `Idempotent-Replayed: true` on the second answer");
    ensure!(again.body == first.body, "the second answer differs: {}", again.text());
    Ok(format!("402 card_declined, and again the same {} bytes", again.body.len()))
}

async fn answer_lost(api: &Api) -> anyhow::Result<String> {
    let answer = api.order(&Uuid::new_v4().to_string(), &one_grinder(ANSWER_LOST)).await?;
    answer.expect(201, None)?;
    let captures = api.captures_of(&answer).await?;
    ensure!(captures == 1, "{captures} captures for one order");
    Ok("201 although the gateway's first answer never came, 1 capture".to_owned())
}

/// The fresh order, the fifty taps and the lost answer: three orders, and not one charge more.
async fn whole_ledger(api: &Api) -> anyhow::Result<String> {
    let ledger = api.ledger().await?;
    let (count, amount) = (&ledger["count"], &ledger["amount"]);
    ensure!(count == 3 && amount == 3 * 4299, "{count} captures over {amount}, expected 3 over {}", 3 * 4299);
    Ok(format!("{count} captures over {amount} for 3 orders"))
}

/// Nobody's word is taken: database and ledger are compared row by row.
async fn audit(state: &DemoState) -> anyhow::Result<String> {
    let pool = PgPool::connect(&state.database_url).await.context("cannot connect to the database")?;
    let report = audit::run(&pool, &state.gateway_url, AuditOptions::default()).await?;
    pool.close().await;
    ensure!(report.is_clean(), "{report}");
    Ok("no anomaly between database and ledger".to_owned())
}

fn one_grinder(payment_method: &str) -> Value {
    order("grinder", 1, 4299, payment_method)
}

fn order(sku: &str, quantity: u32, total: i64, payment_method: &str) -> Value {
    json!({
        "items": [{ "sku": sku, "quantity": quantity }],
        "total": total,
        "currency": "eur",
        "payment_method": payment_method,
    })
}

/// The api as a phone sees it, and the gateway's books.
struct Api {
    client: reqwest::Client,
    orders_url: String,
    ledger_url: String,
    token: String,
}

struct Answer {
    status: u16,
    replayed: bool,
    location: Option<String>,
    retry_after: Option<String>,
    body: Vec<u8>,
}

impl Api {
    fn new(state: &DemoState) -> anyhow::Result<Self> {
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
            token: state.token(CUSTOMER, TOKEN_TTL)?,
        })
    }

    /// Sends an order. The tap's name goes along, so that the gateway's ledger can be counted by intent and not by key.
    async fn order(&self, key: &str, body: &Value) -> anyhow::Result<Answer> {
        let mut body = body.clone();
        body["client_reference"] = key.into();
        let request = self.client.post(&self.orders_url).bearer_auth(&self.token).header("Idempotency-Key", key);
        let answer = request.json(&body).send().await.context("no answer")?;
        let header = |name: &str| Some(answer.headers().get(name)?.to_str().ok()?.to_owned());
        Ok(Answer {
            status: answer.status().as_u16(),
            replayed: header("idempotent-replayed").as_deref() == Some("true"),
            location: header("location"),
            retry_after: header("retry-after"),
            body: answer.bytes().await.context("a truncated answer")?.to_vec(),
        })
    }

    async fn ledger(&self) -> anyhow::Result<Value> {
        let answer = self.client.get(&self.ledger_url).send().await?.error_for_status()?;
        answer.json().await.context("the ledger is not JSON")
    }

    /// How often the gateway took money for this order, under whatever key.
    async fn captures_of(&self, order: &Answer) -> anyhow::Result<usize> {
        let charge = order.json()?["charge"]["gateway_id"].clone();
        let ledger = self.ledger().await?;
        let captures = ledger["captures"].as_array().context("no captures in the ledger")?;
        let ours = captures
            .iter()
            .find(|capture| capture["payment_intent"] == charge)
            .with_context(|| format!("the ledger does not know {charge}"))?;
        Ok(captures.iter().filter(|capture| capture["reference"] == ours["reference"]).count())
    }
}

impl Answer {
    fn expect(&self, status: u16, code: Option<&str>) -> anyhow::Result<()> {
        ensure!(self.status == status, "{} instead of {status}: {}", self.status, self.text());
        if let Some(code) = code {
            ensure!(self.json()?["code"] == code, "not {code}: {}", self.text());
        }
        Ok(())
    }

    fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("no JSON: {}", self.text()))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}
