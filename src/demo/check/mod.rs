//! `checkout demo --check`: the worked example as facts. Question: does this very build keep its promise, here and now?
//!
//! A stack of its own on free ports, real HTTP, one line per fact with the figure that was seen.

mod phone;

use std::{
    future::Future,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::phone::{Answer, Api};
use super::{DemoState, Ports, Stack, StackOptions, say};
use crate::{
    audit::{self, AuditOptions},
    database::embedded::Lifetime,
    delivery::health::Health,
};

/// A whole screen of thumbs.
const TAPS: usize = 50;
/// Longest wait for what follows from an order. Usually it is there within a tenth of a second.
const FOLLOWED_MAX: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
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
    let mut failed = 0;
    let first = api.order(&key, &one_grinder(&key, VISA)).await?;
    failed += fact("fresh order", async { fresh(&first) }).await;
    failed += fact("replay", replay(&api, &key, &first)).await;
    failed += fact("other body, same key", mismatch(&api, &key)).await;
    failed += fact("50 taps at once", taps(&api)).await;
    failed += fact("declined card", decline(&api)).await;
    failed += fact("answer lost", answer_lost(&api)).await;
    failed += fact("refund, twice", refund(&api, &first)).await;
    failed += fact("gateway's ledger", whole_ledger(&api)).await;
    failed += fact("ledger and mailbox", followed(state, &api)).await;
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

fn fresh(first: &Answer) -> anyhow::Result<String> {
    first.expect(201, None)?;
    ensure!(!first.replayed, "a first request was answered with a replay");
    let location = first.location.as_deref().context("no Location")?;
    Ok(format!("201, Location {location}"))
}

async fn replay(api: &Api, key: &str, first: &Answer) -> anyhow::Result<String> {
    let again = api.order(key, &one_grinder(key, VISA)).await?;
    again.expect(201, None)?;
    ensure!(again.replayed, "no `Idempotent-Replayed: true`");
    ensure!(again.body == first.body, "{} instead of {}", again.text(), first.text());
    ensure!(again.location == first.location, "another Location: {:?}", again.location);
    Ok(format!("201, same {} bytes, Idempotent-Replayed: true", again.body.len()))
}

async fn mismatch(api: &Api, key: &str) -> anyhow::Result<String> {
    let mut two_kettles = one_grinder(key, VISA);
    two_kettles["items"] = json!([{ "sku": "kettle", "quantity": 2 }]);
    two_kettles["total"] = json!(5900);
    let answer = api.order(key, &two_kettles).await?;
    answer.expect(422, Some("idempotency_key_reused"))?;
    Ok("422 idempotency_key_reused".to_owned())
}

async fn taps(api: &Api) -> anyhow::Result<String> {
    let key = Uuid::new_v4().to_string();
    let body = one_grinder(&key, VISA);
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
    api.one_capture(&key, &api.order(&key, &body).await?).await?;
    Ok(format!("{fresh} fresh 201, {replayed} replayed, {told_to_wait} told to wait (409), 1 capture"))
}

async fn decline(api: &Api) -> anyhow::Result<String> {
    let key = Uuid::new_v4().to_string();
    let body = one_grinder(&key, INSUFFICIENT_FUNDS);
    let first = api.order(&key, &body).await?;
    first.expect(402, Some("card_declined"))?;
    let again = api.order(&key, &body).await?;
    again.expect(402, Some("card_declined"))?;
    ensure!(again.replayed, "no `Idempotent-Replayed: true` on the second answer");
    ensure!(again.body == first.body, "the second answer differs: {}", again.text());
    Ok(format!("402 card_declined, and again the same {} bytes", again.body.len()))
}

async fn answer_lost(api: &Api) -> anyhow::Result<String> {
    let key = Uuid::new_v4().to_string();
    let answer = api.order(&key, &one_grinder(&key, ANSWER_LOST)).await?;
    answer.expect(201, None)?;
    api.one_capture(&key, &answer).await?;
    let lost = api.fired("drop_after").await?;
    ensure!(lost > 0, "the gateway lost no answer, so nothing was proved");
    Ok(format!("201, {lost} answer of the gateway lost after it had charged, 1 capture"))
}

/// Under one key once, and under another no more than is left.
async fn refund(api: &Api, order: &Answer) -> anyhow::Result<String> {
    let (key, order) = (Uuid::new_v4().to_string(), order.json()?);
    let id = order["id"].as_str().context("an order without an id")?;
    let first = api.refund(id, &key, 1000).await?;
    first.expect(201, None)?;
    let again = api.refund(id, &key, 1000).await?;
    ensure!(again.replayed && again.body == first.body, "the second answer differs: {}", again.text());
    let too_much = api.refund(id, &Uuid::new_v4().to_string(), 4299 - 1000 + 1).await?;
    too_much.expect(422, Some("refund_exceeds_balance"))?;
    let back = api.ledger(None).await?["captures"]
        .as_array()
        .map_or(0, |captures| captures.iter().filter_map(|capture| capture["amount_refunded"].as_i64()).sum::<i64>());
    ensure!(back == 1000, "the gateway gave back {back} instead of 1000");
    Ok("201 and again the same bytes, 1000 given back once, more than is left refused".to_owned())
}

/// The fresh order, the fifty taps and the lost answer: three orders, and not one charge more.
async fn whole_ledger(api: &Api) -> anyhow::Result<String> {
    let ledger = api.ledger(None).await?;
    let (count, amount) = (&ledger["count"], &ledger["amount"]);
    ensure!(count == 3 && amount == 3 * 4299, "{count} captures over {amount}, expected 3 over {}", 3 * 4299);
    Ok(format!("{count} captures over {amount} for 3 orders"))
}

/// What follows from the orders: each is booked once and has one receipt, and then nothing is on its way any more.
async fn followed(state: &DemoState, api: &Api) -> anyhow::Result<String> {
    let pool = PgPool::connect(&state.database_url).await.context("cannot connect to the database")?;
    let since = Instant::now();
    while !Health::read(&pool).await?.is_drained() {
        ensure!(since.elapsed() < FOLLOWED_MAX, "events are still on their way after {FOLLOWED_MAX:?}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    pool.close().await;
    let mails = api.mails(state.mail_url.as_deref().context("the stack has no mail service")?).await?;
    ensure!(mails["count"] == 4, "{} mails for 3 orders and a refund", mails["count"]);
    Ok("nothing on its way, 4 mails for 3 orders and a refund".to_owned())
}

/// The judge that believes neither the api nor this page.
async fn audit(state: &DemoState) -> anyhow::Result<String> {
    let pool = PgPool::connect(&state.database_url).await.context("cannot connect to the database")?;
    let report = audit::run(&pool, &state.gateway_url, state.mail_url.as_deref(), AuditOptions::default()).await;
    pool.close().await;
    let report = report?;
    ensure!(report.is_clean(), "anomalies:\n{report}");
    let counted = &report.counted;
    Ok(format!(
        "no anomaly in {} orders, {} charges, {} captures, {} events",
        counted.orders, counted.charges, counted.captures, counted.events
    ))
}

/// What one thumb wants. The gateway files its charges under the reference, so they can be counted by intent.
fn one_grinder(intent: &str, payment_method: &str) -> Value {
    json!({
        "items": [{ "sku": "grinder", "quantity": 1 }],
        "total": 4299,
        "currency": "eur",
        "payment_method": payment_method,
        "client_reference": intent,
    })
}
