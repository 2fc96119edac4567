//! `/_mock/*`: for whoever runs the experiment, on the same port, without credentials.
//!
//! Promise: a wrong request here says what is wrong and changes nothing.
//!
//! | request | what it does |
//! |---|---|
//! | `GET /_mock/faults` | the seed, the queue, the rates, and the catalogue: every fault with a sentence |
//! | `POST /_mock/faults {"name", "count"?, "latency_ms"?}` | the fault meets the next `count` POSTs; `refuse` closes the port at once, to this page too |
//! | `POST /_mock/faults {"name", "probability", "latency_ms"?}` | sets the fault's rate; 0 removes it |
//! | the same with `webhook_…` | the fault meets the next events, or some of them |
//! | `DELETE /_mock/faults` | no queue, no rates, keys respected |
//! | `GET /_mock/ledger[?reference=]` | every capture |
//! | `GET /_mock/stats` | executions, replays, conflicts, mismatches, faults fired by name |
//! | `GET /_mock/clock`, `POST /_mock/clock {"advance_s"}` | the gateway's time, and how to push it forward |
//! | `POST /_mock/settings {"key_ttl_s"?, "search_lag_ms"?, "refund_ends_ms"?, "seed"?, "ignore_idempotency_keys"?}` | knobs |
//! | `POST /_mock/refunds {"id", "status"}` | a refund that was pending has `succeeded` or `failed`, or one that had succeeded has `failed` |
//! | `GET /_mock/webhooks` | the endpoint, and what was delivered, failed, given up and is pending |
//! | `POST /_mock/webhooks {"url", "secret"}` | events go there from now on; `DELETE`: nowhere, and none is pending |
//! | `POST /_mock/reset` | empty books, and everything else as at the start |

use std::{sync::Arc, time::Duration};

use http::{Method, StatusCode};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::json;

use super::{
    Gateway,
    clock::RefundId,
    fault_plan::{Named, Plan},
    faults::{Fault, FaultName, LATENCY_MS_MAX, Misbehaviour, WebhookFaultName},
    form::Form,
    ledger,
    object::RefundStatus,
    refunds,
    reply::{Refusal, Reply},
    webhooks::{Endpoint, Webhooks},
};

/// Most requests that one queue entry meets.
const COUNT_MAX: u32 = 1_000_000;
const DAYS_MAX_S: u32 = 366 * 86_400;

pub(super) async fn answer(
    gateway: &Arc<Gateway>,
    method: &Method,
    path: &str,
    query: &str,
    body: &[u8],
) -> Result<Reply, Refusal> {
    match (path, method) {
        ("faults", &Method::GET) => Ok(Reply::ok(&Listing { now: gateway.faults.now(), catalogue: Catalogue })),
        ("faults", &Method::POST) => {
            set_fault(gateway, parse(body)?)?;
            Ok(Reply::ok(&gateway.faults.now()))
        }
        ("faults", &Method::DELETE) => {
            gateway.faults.clear();
            Ok(Reply::ok(&gateway.faults.now()))
        }
        ("ledger", &Method::GET) => {
            let form = Form::parse(query.as_bytes())?;
            form.only(&["reference"])?;
            Ok(ledger::answer(gateway, form.get("reference").map(Into::into)))
        }
        ("stats", &Method::GET) => Ok(Reply::ok(&gateway.stats)),
        ("clock", &Method::GET) => Ok(clock(gateway)),
        ("clock", &Method::POST) => {
            let Advance { advance_s } = parse(body)?;
            if advance_s > DAYS_MAX_S {
                return Err(Refusal::invalid(format!("advance_s is at most {DAYS_MAX_S}, a year.")));
            }
            gateway.clock.advance(advance_s);
            Ok(clock(gateway))
        }
        ("settings", &Method::POST) => {
            set(gateway, &parse(body)?);
            Ok(clock(gateway))
        }
        ("reset", &Method::POST) => reset(gateway).await,
        ("refunds", &Method::POST) => end_refund(gateway, &parse(body)?).await,
        ("webhooks", &Method::GET) => webhooks(gateway).await,
        ("webhooks", &Method::POST) => {
            let Receiver { url, secret } = parse(body)?;
            let endpoint = Endpoint::new(&url, &secret);
            gateway.webhooks.set(endpoint.map_err(|error| Refusal::invalid(format!("{error}.")))?);
            webhooks(gateway).await
        }
        ("webhooks", &Method::DELETE) => remove_webhooks(gateway).await,
        ("faults" | "webhooks", _) => Err(not_allowed("GET, POST, DELETE")),
        ("clock", _) => Err(not_allowed("GET, POST")),
        ("ledger" | "stats", _) => Err(not_allowed("GET")),
        ("refunds" | "reset" | "settings", _) => Err(not_allowed("POST")),
        _ => {
            let message = format!(
                "There is no /_mock/{path}: there are clock, faults, ledger, refunds, reset, settings, stats \
                 and webhooks."
            );
            Err(Refusal::new(StatusCode::NOT_FOUND, "invalid_request_error", message))
        }
    }
}

fn not_allowed(methods: &'static str) -> Refusal {
    let message = format!("Use {methods} here.");
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message).allowing(methods)
}

/// What is set, and what there is to set.
#[derive(Serialize)]
struct Listing {
    #[serde(flatten)]
    now: Plan,
    catalogue: Catalogue,
}

struct Catalogue;

impl Serialize for Catalogue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let of_requests = FaultName::ALL.map(|name| (name.name(), name.meaning()));
        let of_events = WebhookFaultName::ALL.map(|name| (name.name(), name.meaning()));
        serializer.collect_map(of_requests.into_iter().chain(of_events))
    }
}

/// With a count the fault meets the next requests; with a probability it meets some of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultAsked {
    name: String,
    count: Option<u32>,
    probability: Option<f64>,
    latency_ms: Option<u64>,
}

/// Who wants to hear of events.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Receiver {
    url: String,
    secret: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Advance {
    advance_s: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsAsked {
    key_ttl_s: Option<u32>,
    search_lag_ms: Option<u32>,
    refund_ends_ms: Option<u32>,
    seed: Option<u64>,
    ignore_idempotency_keys: Option<bool>,
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::invalid(format!("The body is not what is wanted here: {error}.")))
}

fn set_fault(gateway: &Gateway, asked: FaultAsked) -> Result<(), Refusal> {
    let Some(name) = Named::parse(&asked.name) else {
        let of_events = WebhookFaultName::ALL.map(WebhookFaultName::name);
        let names: Vec<_> = FaultName::ALL.map(FaultName::name).into_iter().chain(of_events).collect();
        return Err(Refusal::invalid(format!("No fault is called {:?}: there are {}.", asked.name, names.join(", "))));
    };
    if asked.latency_ms.is_some_and(|ms| ms > LATENCY_MS_MAX) {
        return Err(Refusal::invalid(format!("latency_ms is at most {LATENCY_MS_MAX}.")));
    }
    let done = match (asked.count, asked.probability) {
        (Some(_), Some(_)) => Err("Give a count or a probability, not both.".to_owned()),
        (None, Some(probability)) => gateway.faults.set_rate(name, asked.latency_ms, probability),
        (count, None) => match count.unwrap_or(1) {
            1..=COUNT_MAX if name == Named::OfRequests(FaultName::Refuse) => {
                refuse(gateway, Fault::new(FaultName::Refuse, asked.latency_ms))
            }
            count @ 1..=COUNT_MAX => gateway.faults.enqueue(name, asked.latency_ms, count),
            _ => Err(format!("count lies between 1 and {COUNT_MAX}.")),
        },
    };
    done.map_err(Refusal::invalid)
}

fn refuse(gateway: &Gateway, fault: Fault) -> Result<(), String> {
    let asked = gateway.refusals.try_send(Duration::from_millis(fault.latency_ms));
    asked.map_err(|_| "The port is being closed already.".to_owned())?;
    gateway.fired(fault.name, None);
    Ok(())
}

fn set(gateway: &Gateway, asked: &SettingsAsked) {
    if let Some(s) = asked.key_ttl_s {
        gateway.clock.set_key_ttl_ms(i64::from(s) * 1000);
    }
    if let Some(ms) = asked.search_lag_ms {
        gateway.clock.set_search_lag_ms(ms.into());
    }
    if let Some(ms) = asked.refund_ends_ms {
        gateway.clock.set_refund_ends(Duration::from_millis(ms.into()));
    }
    if let Some(seed) = asked.seed {
        gateway.faults.set_seed(seed);
    }
    if let Some(ignore) = asked.ignore_idempotency_keys {
        gateway.faults.set_ignore_idempotency_keys(ignore);
    }
}

/// How a refund ends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RefundEnd {
    id: String,
    status: String,
}

async fn end_refund(gateway: &Arc<Gateway>, asked: &RefundEnd) -> Result<Reply, Refusal> {
    let missing = || Refusal::missing(StatusCode::NOT_FOUND, "id", format!("No such refund: '{}'", asked.id));
    let id = RefundId::parse(&asked.id).ok_or_else(missing)?;
    let wrong = || Refusal::invalid("status is succeeded or failed.").about("status");
    let status =
        RefundStatus::from_name(&asked.status).filter(|status| *status != RefundStatus::Pending).ok_or_else(wrong)?;
    // A transaction must not end with its client.
    let ending = Arc::clone(gateway);
    match gateway.executions.spawn(async move { refunds::end(&ending, id, status).await }).await {
        Ok(Ok(ended)) => ended.map(|refund| Reply::ok(&*refund)),
        Ok(Err(error)) => {
            tracing::error!(error = format!("{error:#}"), "a refund cannot be ended");
            Err(Refusal::internal())
        }
        Err(_panicked) => Err(Refusal::internal()),
    }
}

fn clock(gateway: &Gateway) -> Reply {
    let clock = &gateway.clock;
    Reply::ok(&json!({
        "now_s": clock.now_ms() / 1000,
        "advance_s": clock.advance_ms() / 1000,
        "key_ttl_s": clock.key_ttl_ms() / 1000,
        "search_lag_ms": clock.search_lag_ms(),
        "refund_ends_ms": clock.refund_ends().as_millis(),
    }))
}

async fn webhooks(gateway: &Gateway) -> Result<Reply, Refusal> {
    let status = Webhooks::status(gateway).await.map_err(|error| {
        tracing::error!(error = format!("{error:#}"), "the pending events cannot be counted");
        Refusal::internal()
    })?;
    Ok(Reply::ok(&status))
}

async fn remove_webhooks(gateway: &Arc<Gateway>) -> Result<Reply, Refusal> {
    // A transaction must not end with its client.
    let removing = Arc::clone(gateway);
    let removed = gateway.executions.spawn(async move { Webhooks::remove(&removing).await }).await;
    match removed {
        Ok(Ok(())) => webhooks(gateway).await,
        Ok(Err(error)) => {
            tracing::error!(error = format!("{error:#}"), "the pending events cannot be settled");
            Err(Refusal::internal())
        }
        Err(_panicked) => Err(Refusal::internal()),
    }
}

/// Everything as at the start, with empty books.
async fn reset(gateway: &Gateway) -> Result<Reply, Refusal> {
    gateway.books.reset().await.map_err(|error| {
        tracing::error!(error = format!("{error:#}"), "the books cannot be emptied");
        Refusal::internal()
    })?;
    gateway.faults.reset();
    gateway.arrivals.reset();
    gateway.clock.reset();
    gateway.stats.reset();
    gateway.webhooks.reset();
    Ok(Reply::ok(&json!({ "reset": true })))
}
