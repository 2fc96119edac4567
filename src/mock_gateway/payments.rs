//! The story of a POST: fate, key, execution, record, answer.
//!
//! Promise: once an execution has begun it ends and is recorded, whether or not the client still listens; and its effect and
//! its record become true together.
//! It answers: in which order do validation, faults, keys and money meet?

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use anyhow::Context;
use bytes::Bytes;
use http::StatusCode;

use super::{
    Gateway,
    books::{Answer, Change, Commit, Committed, KeyWrite, Recorded},
    clock::{ChargeId, EventId, IntentId, RefundId},
    engine::{self, Card, Create, Decision, Given},
    events::{Event, KeptEvent},
    faults::{Asked, Fate, FaultName},
    keys::{Held, Judgement, Keyed, judge},
    refunds::{self, RefundAsked},
    reply::{Refusal, Reply},
    stats::count,
};

/// A valid request that may move money.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: Box<str>,
    pub(super) keyed: Option<Keyed>,
    pub(super) command: Command,
    /// The fault this request asked for itself.
    pub(super) asked: Option<Asked>,
    /// Show the latest charge as a whole.
    pub(super) expands: bool,
}

#[derive(Debug)]
pub(super) enum Command {
    Create(Create),
    Confirm { intent: IntentId, card: Option<Card> },
    Cancel { intent: IntentId },
    Refund(RefundAsked),
}

/// What the request got, and what becomes of it on its way back.
#[derive(Debug)]
pub(super) enum Answered {
    Reply(Reply),
    /// The answer meets this fate on its way.
    Fated(Reply, Fate),
    /// The connection ends without an answer, and nothing was executed.
    Dropped,
}

pub(super) async fn post(gateway: &Arc<Gateway>, request: Request) -> Answered {
    let key = key_of(&request);
    let fate = gateway.faults.draw(key, request.asked, &gateway.arrivals);
    match fate.fault.map(|fault| fault.name) {
        Some(name @ FaultName::Http503Before) => {
            gateway.fired(name, key);
            let message = "The gateway is unavailable. Nothing was executed.";
            Answered::Reply(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "api_error", message).into())
        }
        Some(name @ FaultName::Http429Before) => {
            gateway.fired(name, key);
            let message = "Request rate limit exceeded. Nothing was executed.";
            let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "invalid_request_error", message);
            Answered::Reply(refusal.coded("rate_limit").into())
        }
        Some(name @ FaultName::LockTimeoutBefore) => {
            gateway.fired(name, key);
            Answered::Reply(lock_timeout().into())
        }
        Some(name @ FaultName::DropBefore) => {
            gateway.fired(name, key);
            Answered::Dropped
        }
        _ => match shielded(gateway, request, fate).await {
            Ok(reply) => Answered::Fated(reply, fate),
            Err(refusal) => Answered::Reply(refusal.into()),
        },
    }
}

/// Runs the execution where no client can end it. The server drops a handler whose client hangs up; an execution that is not
/// done at once therefore moves to a task of its own. Most are done at once, and save the task.
async fn shielded(gateway: &Arc<Gateway>, request: Request, fate: Fate) -> Result<Reply, Refusal> {
    let mut execution = Box::pin(execute(Arc::clone(gateway), request, fate));
    match poll_fn(|cx| Poll::Ready(execution.as_mut().poll(cx))).await {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => match gateway.executions.spawn(execution).await {
            Ok(outcome) => outcome,
            Err(panicked) => {
                tracing::error!(error = %panicked, "an execution panicked");
                Err(Refusal::internal())
            }
        },
    }
}

async fn execute(gateway: Arc<Gateway>, request: Request, fate: Fate) -> Result<Reply, Refusal> {
    // A surprise in the books is not recorded: the same key may try again.
    run(&gateway, &request, fate).await.unwrap_or_else(|error| {
        tracing::error!(request_id = &*request.id, error = format!("{error:#}"), "an execution failed");
        Err(Refusal::internal())
    })
}

async fn run(gateway: &Arc<Gateway>, request: &Request, fate: Fate) -> anyhow::Result<Result<Reply, Refusal>> {
    let _held = match &request.keyed {
        Some(keyed) if !fate.ignores_key => match admit(gateway, keyed).await? {
            Admitted::Execute(held) => Some(held),
            Admitted::Replay(recorded) => return Ok(Ok(replay(gateway, keyed, &recorded).await?)),
            Admitted::Refused(refusal) => return Ok(Err(refusal)),
        },
        _ => None,
    };
    if let Some(fault) = fate.fault.filter(|fault| fault.name == FaultName::LatencyBefore) {
        gateway.fired(fault.name, key_of(request));
        tokio::time::sleep(Duration::from_millis(fault.latency_ms)).await;
    }
    let decided = if fate.is(FaultName::Http500Before) {
        Decided::Answer(failure(gateway, request, FaultName::Http500Before))
    } else {
        decide(gateway, request).await?
    };
    let (change, mut answer) = match decided {
        Decided::Decision(Decision { change, answer }) => (Some(change), answer),
        Decided::Answer(answer) => (None, answer),
        Decided::Refused(refusal) => return Ok(Err(refusal)),
    };
    if request.expands {
        answer = expanded(gateway, answer, change.as_ref()).await?;
    }
    if fate.is(FaultName::Http500After) {
        answer = failure(gateway, request, FaultName::Http500After);
    }
    let (status, body) = (answer.status(), answer.body());
    let key = request.keyed.as_ref().map(|keyed| KeyWrite {
        keyed: keyed.clone(),
        record: (!fate.ignores_key).then(|| (request.id.clone(), gateway.clock.now_ms(), answer)),
    });
    let event = change.as_ref().and_then(|change| news_in(gateway, request, change));
    let news = event.clone();
    let made = match &change {
        Some(Change::Refund { refund, charge }) => Some((Arc::clone(refund), Arc::clone(charge))),
        _ => None,
    };
    match gateway.books.commit(Commit { change, event, key }).await.context("committing an execution")? {
        Committed::Done => {
            count(&gateway.stats.executions);
            // It may arrive before our answer, as real news may.
            if let Some(news) = news {
                gateway.webhooks.committed(news);
            }
            if let Some((refund, charge)) = made {
                refunds::end_later(gateway, &refund, &charge);
            }
            if fate.is(FaultName::IgnoreIdempotency) {
                gateway.fired(FaultName::IgnoreIdempotency, key_of(request));
            }
            Ok(Ok(answered(status, body)))
        }
        Committed::Stale => Ok(Err(lock_timeout())),
    }
}

/// The one 429 that an official client retries, because it is told to.
fn lock_timeout() -> Refusal {
    let message = "This object is being changed by another request. Please try again.";
    Refusal::new(StatusCode::TOO_MANY_REQUESTS, "invalid_request_error", message).coded("lock_timeout").retry(true)
}

/// An intent with its latest charge: the one this execution makes, or else one that is there already.
async fn expanded(gateway: &Gateway, answer: Answer, change: Option<&Change>) -> anyhow::Result<Answer> {
    let Answer::Intent { intent, .. } = answer else { return Ok(answer) };
    let made = match change {
        Some(Change::Payment { charge: Some(charge), .. }) => Some(Arc::clone(charge)),
        _ => None,
    };
    let latest_charge = match (made, intent.latest_charge) {
        (None, Some(id)) => gateway.books.charge(id).await.context("reading the latest charge")?,
        (made, _) => made,
    };
    Ok(Answer::Intent { intent, latest_charge })
}

/// The event that goes with a change, if anybody wants events.
fn news_in(gateway: &Gateway, request: &Request, change: &Change) -> Option<KeptEvent> {
    gateway.webhooks.keep(|| {
        let id = EventId(gateway.names.mint(gateway.clock.now_ms()));
        Event::of(change, id, &request.id, key_of(request))
    })
}

enum Admitted<'a> {
    Execute(Held<'a>),
    Replay(Recorded),
    Refused(Refusal),
}

async fn admit<'a>(gateway: &'a Gateway, keyed: &'a Keyed) -> anyhow::Result<Admitted<'a>> {
    if let Some(settled) = look_up(gateway, keyed).await? {
        return Ok(settled);
    }
    let Some(held) = gateway.in_progress.hold(&keyed.key) else {
        count(&gateway.stats.conflicts);
        let message = format!(
            "There is currently another in-progress request using this Idempotent Key (that probably means you submitted \
             twice, and the other request is still going through): {}. Please try again later.",
            keyed.key
        );
        let refusal = Refusal::new(StatusCode::CONFLICT, "invalid_request_error", message);
        return Ok(Admitted::Refused(refusal.coded("idempotency_key_in_use")));
    };
    // Its holder may have finished between our look and our hold, so look again now that nobody else can write.
    Ok(look_up(gateway, keyed).await?.unwrap_or(Admitted::Execute(held)))
}

async fn look_up<'a>(gateway: &Gateway, keyed: &Keyed) -> anyhow::Result<Option<Admitted<'a>>> {
    let Some(recorded) = gateway.books.recorded(&keyed.key).await.context("looking up a key")? else {
        return Ok(None);
    };
    let refuse = |message| {
        count(&gateway.stats.mismatches);
        Some(Admitted::Refused(Refusal::new(StatusCode::BAD_REQUEST, "idempotency_error", message)))
    };
    Ok(match judge(&recorded, keyed, gateway.clock.now_ms(), gateway.clock.key_ttl_ms()) {
        Judgement::Run => None,
        Judgement::Replay => Some(Admitted::Replay(recorded)),
        Judgement::OtherParameters => refuse(format!(
            "Keys for idempotent requests can only be used with the same parameters they were first used with. Try using a \
             key other than '{}' if you meant to execute a different request.",
            keyed.key
        )),
        Judgement::OtherEndpoint => refuse(format!(
            "Keys for idempotent requests can only be used for the same endpoint they were first used for ('{}' vs '{}'). \
             Try using a key other than '{}' if you meant to execute a different request.",
            keyed.path, recorded.path, keyed.key
        )),
    })
}

async fn replay(gateway: &Gateway, keyed: &Keyed, recorded: &Recorded) -> anyhow::Result<Reply> {
    gateway.books.count_replay(&keyed.key).await.context("counting a replay")?;
    count(&gateway.stats.replays);
    let reply = answered(recorded.answer.status(), recorded.answer.body());
    Ok(Reply { replayed_from: Some(recorded.request_id.clone()), ..reply })
}

/// A recorded 500 tells the client to stop: its retries would only meet the record.
fn answered(status: StatusCode, body: Bytes) -> Reply {
    Reply { should_retry: status.is_server_error().then_some(false), ..Reply::new(status, body) }
}

fn key_of(request: &Request) -> Option<&str> {
    request.keyed.as_ref().map(|keyed| &*keyed.key)
}

fn failure(gateway: &Gateway, request: &Request, fault: FaultName) -> Answer {
    gateway.fired(fault, key_of(request));
    Answer::Bytes { status: StatusCode::INTERNAL_SERVER_ERROR, body: Refusal::internal().json() }
}

enum Decided {
    Decision(Decision),
    /// The execution ran, changed nothing, and its answer is recorded.
    Answer(Answer),
    /// The request was wrong before anything began.
    Refused(Refusal),
}

async fn decide(gateway: &Gateway, request: &Request) -> anyhow::Result<Decided> {
    let now_ms = gateway.clock.now_ms();
    let given = Given {
        intent: IntentId(gateway.names.mint(now_ms)),
        charge: ChargeId(gateway.names.mint(now_ms)),
        now_ms,
        key: request.keyed.as_ref().map(|keyed| &*keyed.key),
    };
    let (id, confirm) = match &request.command {
        Command::Create(create) => return Ok(Decided::Decision(engine::create(&given, create))),
        Command::Confirm { intent, card } => (*intent, Some(card.as_ref())),
        Command::Cancel { intent } => (*intent, None),
        Command::Refund(asked) => return refund(gateway, RefundId(gateway.names.mint(now_ms)), asked).await,
    };
    let Some(before) = gateway.books.intent(id).await.context("reading an intent")? else {
        return Ok(Decided::Refused(no_such_intent(&id.to_string())));
    };
    let decision = match confirm {
        Some(card) => engine::confirm(&given, &before, card),
        None => engine::cancel(&given, &before),
    };
    Ok(decided(decision))
}

async fn refund(gateway: &Gateway, id: RefundId, asked: &RefundAsked) -> anyhow::Result<Decided> {
    Ok(match refunds::charge(gateway, &asked.of).await.context("reading a charge")? {
        Ok(before) => decided(refunds::decide(id, &before, asked)),
        Err(refusal) => Decided::Refused(refusal),
    })
}

/// An execution that found nothing to do is recorded like any other.
fn decided(decision: Result<Decision, Refusal>) -> Decided {
    match decision {
        Ok(decision) => Decided::Decision(decision),
        Err(refusal) => Decided::Answer(Answer::Bytes { status: refusal.status, body: refusal.json() }),
    }
}

pub(super) fn no_such_intent(id: &str) -> Refusal {
    Refusal::missing(StatusCode::NOT_FOUND, "intent", format!("No such payment_intent: '{id}'"))
}
