//! `/_mock/*`: for whoever runs the experiment, on the same port, without credentials.
//!
//! Promise: a wrong request here says what is wrong and changes nothing.
//!
//! | request | what it does |
//! |---|---|
//! | `GET /_mock/mails` | every mail delivered |
//! | `GET /_mock/faults` | the seed, the recipients, the queue, the rates, and the catalogue: every fault with a sentence |
//! | `POST /_mock/faults {"name", "count"?, "latency_ms"?}` | the fault meets the next `count` mails |
//! | `POST /_mock/faults {"name", "probability", "latency_ms"?}` | sets the fault's rate; 0 removes it |
//! | `POST /_mock/faults {"name", "to", "latency_ms"?}` | the fault meets every mail to this recipient |
//! | `DELETE /_mock/faults` | no recipients, no queue, no rates |
//! | `GET /_mock/stats` | deliveries, replays, conflicts, mismatches, faults fired by name |
//! | `GET /_mock/clock`, `POST /_mock/clock {"advance_s"}` | the service's time, and how to push it forward |
//! | `POST /_mock/settings {"key_ttl_s"}` | how long a key is honoured |
//! | `POST /_mock/reset` | empty books, and everything else as at the start |

use std::sync::Arc;

use http::Method;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::json;

use super::{
    Service,
    fault_plan::{Plan, Rate},
    faults::{Fault, FaultName, LATENCY_MS_MAX},
    record,
    reply::{Refusal, Reply},
};

/// Most mails that one queue entry meets.
const COUNT_MAX: u32 = 1_000_000;
/// A year.
const ADVANCE_S_MAX: u32 = 366 * 86_400;

pub(super) async fn answer(service: &Arc<Service>, method: &Method, path: &str, body: &[u8]) -> Result<Reply, Refusal> {
    match (path, method) {
        ("mails", &Method::GET) => Ok(record::answer(service)),
        ("faults", &Method::GET) => Ok(Reply::ok(&Listing { now: service.faults.now(), catalogue: Catalogue })),
        ("faults", &Method::POST) => {
            set_fault(service, parse(body)?)?;
            Ok(Reply::ok(&service.faults.now()))
        }
        ("faults", &Method::DELETE) => {
            service.faults.clear();
            Ok(Reply::ok(&service.faults.now()))
        }
        ("stats", &Method::GET) => Ok(Reply::ok(&service.stats)),
        ("clock", &Method::GET) => Ok(clock(service)),
        ("clock", &Method::POST) => {
            let Advance { advance_s } = parse(body)?;
            if advance_s > ADVANCE_S_MAX {
                return Err(Refusal::invalid(format!("advance_s is at most {ADVANCE_S_MAX}, a year.")));
            }
            service.clock.advance(advance_s);
            Ok(clock(service))
        }
        ("settings", &Method::POST) => {
            let Settings { key_ttl_s } = parse(body)?;
            service.clock.set_key_ttl_ms(i64::from(key_ttl_s) * 1000);
            Ok(clock(service))
        }
        ("reset", &Method::POST) => reset(service).await,
        ("faults", _) => Err(Refusal::not_allowed("GET, POST, DELETE")),
        ("clock", _) => Err(Refusal::not_allowed("GET, POST")),
        ("mails" | "stats", _) => Err(Refusal::not_allowed("GET")),
        ("reset" | "settings", _) => Err(Refusal::not_allowed("POST")),
        _ => Err(Refusal::not_found(format!(
            "There is no /_mock/{path}: there are clock, faults, mails, reset, settings and stats."
        ))),
    }
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
        serializer.collect_map(FaultName::ALL.iter().map(|name| (name.name(), name.meaning())))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultAsked {
    name: String,
    count: Option<u32>,
    probability: Option<f64>,
    to: Option<String>,
    latency_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Advance {
    advance_s: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    key_ttl_s: u32,
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::invalid(format!("The body is not what is wanted here: {error}.")))
}

/// With a count the fault meets the next mails, with a probability some of them, with a recipient all of theirs.
fn set_fault(service: &Service, asked: FaultAsked) -> Result<(), Refusal> {
    let Some(name) = FaultName::parse(&asked.name) else {
        let names: Vec<_> = FaultName::ALL.iter().map(|name| name.name()).collect();
        return Err(Refusal::invalid(format!("No fault is called {:?}: there are {}.", asked.name, names.join(", "))));
    };
    if asked.latency_ms.is_some_and(|ms| ms > LATENCY_MS_MAX) {
        return Err(Refusal::invalid(format!("latency_ms is at most {LATENCY_MS_MAX}.")));
    }
    let fault = Fault::new(name, asked.latency_ms);
    let done = match (asked.to, asked.count, asked.probability) {
        (Some(to), None, None) => service.faults.mark(fault, to),
        (None, None, Some(probability)) => service.faults.set_rate(Rate { fault, probability }),
        (None, count, None) => match count.unwrap_or(1) {
            count @ 1..=COUNT_MAX => service.faults.enqueue(fault, count),
            _ => Err(format!("count is from 1 to {COUNT_MAX}.")),
        },
        _ => Err("Give one of count, probability and to.".to_owned()),
    };
    done.map_err(Refusal::invalid)
}

fn clock(service: &Service) -> Reply {
    let clock = &service.clock;
    Reply::ok(&json!({
        "now_s": clock.now_ms() / 1000,
        "advance_s": clock.advance_ms() / 1000,
        "key_ttl_s": clock.key_ttl_ms() / 1000,
    }))
}

/// Everything as at the start, with empty books.
async fn reset(service: &Service) -> Result<Reply, Refusal> {
    service.books.reset().await.map_err(|error| {
        tracing::error!(error = format!("{error:#}"), "the books cannot be emptied");
        Refusal::internal()
    })?;
    service.faults.reset();
    service.clock.reset();
    service.stats.reset();
    Ok(Reply::ok(&json!({ "reset": true })))
}
