//! GET: one, list, search.
//!
//! Promise: one and list see every committed write; search may be told to lag, because the dialect's own search does, and
//! "not found" by search therefore proves nothing.
//! It answers: how does a checkout that lost an answer find out what happened?

use serde::Serialize;

use super::{
    Gateway,
    books::{IntentRange, Note},
    clock::{ChargeId, IntentId, first_name_at},
    form::Form,
    object::Intent,
    payments::no_such_intent,
    reply::{Refusal, Reply},
};

/// A lookup may be refused; that the books cannot be read is a surprise.
pub(super) type Lookup = anyhow::Result<Result<Reply, Refusal>>;

const LIMIT_DEFAULT: i64 = 10;
const LIMIT_MAX: i64 = 100;
/// Past any time a client can mean, and far from overflow when turned into milliseconds.
const CREATED_S_MAX: i64 = 1 << 37;

pub(super) async fn intent(gateway: &Gateway, form: &Form<'_>, id: &str) -> Lookup {
    if let Err(refusal) = form.only(&["client_secret"]) {
        return Ok(Err(refusal));
    }
    let found = match IntentId::parse(id) {
        Some(id) => gateway.books.intent(id).await?,
        None => None,
    };
    Ok(found.map(|intent| Reply::ok(&*intent)).ok_or_else(|| no_such_intent(id)))
}

pub(super) async fn intents(gateway: &Gateway, form: &Form<'_>) -> Lookup {
    let (range, limit) = match list_range(form) {
        Ok(asked) => asked,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let mut data = gateway.books.intents(range, limit + 1).await?;
    let has_more = data.len() > limit;
    data.truncate(limit);
    let data: Vec<&Intent> = data.iter().map(AsRef::as_ref).collect();
    Ok(Ok(Reply::ok(&List { object: "list", data, has_more, url: "/v1/payment_intents" })))
}

pub(super) async fn search(gateway: &Gateway, form: &Form<'_>) -> Lookup {
    let asked = form.only(&["limit", "page", "query"]).and_then(|()| {
        let note = form
            .get("query")
            .ok_or_else(|| Refusal::parameter("parameter_missing", "query", "Missing required param: query."));
        Ok((note.and_then(note_of)?, limit(form)?, cursor(form, "page")?))
    });
    let (note, limit, page) = match asked {
        Ok(asked) => asked,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let indexed_until = first_name_at(gateway.clock.now_ms() - gateway.clock.search_lag_ms() + 1);
    let below = page.map_or(indexed_until, |page| page.0.min(indexed_until));
    let mut data = gateway.books.noted(&note, IntentId(below), limit + 1).await?;
    let has_more = data.len() > limit;
    data.truncate(limit);
    let next_page = data.last().filter(|_| has_more).map(|last| last.id);
    let data: Vec<&Intent> = data.iter().map(AsRef::as_ref).collect();
    let url = "/v1/payment_intents/search";
    Ok(Ok(Reply::ok(&SearchResult { object: "search_result", data, has_more, next_page, url })))
}

pub(super) async fn charge(gateway: &Gateway, form: &Form<'_>, id: &str) -> Lookup {
    if let Err(refusal) = form.only(&[]) {
        return Ok(Err(refusal));
    }
    let found = match ChargeId::parse(id) {
        Some(id) => gateway.books.charge(id).await?,
        None => None,
    };
    let missing = || Refusal::missing(http::StatusCode::NOT_FOUND, "id", format!("No such charge: '{id}'"));
    Ok(found.map(|charge| Reply::ok(&*charge)).ok_or_else(missing))
}

/// The charges of one intent. It has few, as each needs a confirmation, so they come on one page.
pub(super) async fn charges(gateway: &Gateway, form: &Form<'_>) -> Lookup {
    let asked = form.only(&["limit", "payment_intent"]).and_then(|()| {
        let missing =
            || Refusal::parameter("parameter_missing", "payment_intent", "Missing required param: payment_intent.");
        Ok((form.get("payment_intent").ok_or_else(missing)?, limit(form)?))
    });
    let (intent, limit) = match asked {
        Ok(asked) => asked,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let Some(id) = IntentId::parse(intent) else { return Ok(Err(no_such_intent(intent))) };
    let mut charges = gateway.books.charges(id).await?;
    let has_more = charges.len() > limit;
    charges.truncate(limit);
    let data: Vec<_> = charges.iter().map(AsRef::as_ref).collect();
    Ok(Ok(Reply::ok(&List { object: "list", data, has_more, url: "/v1/charges" })))
}

#[derive(Serialize)]
struct List<'a, T> {
    object: &'static str,
    data: Vec<&'a T>,
    has_more: bool,
    url: &'static str,
}

#[derive(Serialize)]
struct SearchResult<'a> {
    object: &'static str,
    data: Vec<&'a Intent>,
    has_more: bool,
    next_page: Option<IntentId>,
    url: &'static str,
}

fn list_range(form: &Form<'_>) -> Result<(IntentRange, usize), Refusal> {
    form.only(&["created", "limit", "starting_after"])?;
    let windows = ["created", "created[gt]", "created[gte]", "created[lt]", "created[lte]"];
    if let Some((name, _)) = form.pairs().find(|(name, _)| name.starts_with("created") && !windows.contains(name)) {
        return Err(Refusal::parameter("parameter_unknown", name, format!("Received unknown parameter: {name}")));
    }
    let at = |name, plus_s| Ok(created(form, name)?.map(|s| first_name_at((s + plus_s) * 1000)));
    // Names sort by creation, so a window of time is a range of names: from its first second to before the second after it.
    let from = [at("created", 0)?, at("created[gte]", 0)?, at("created[gt]", 1)?];
    let from = from.into_iter().flatten().max().unwrap_or(0);
    let after = cursor(form, "starting_after")?.map(|id| id.0);
    let until = [at("created", 1)?, at("created[lte]", 1)?, at("created[lt]", 0)?, after];
    let below = until.into_iter().flatten().min().unwrap_or(u128::MAX);
    Ok((IntentRange { from: IntentId(from), below: IntentId(below) }, limit(form)?))
}

fn created(form: &Form<'_>, name: &str) -> Result<Option<i64>, Refusal> {
    Ok(form.integer(name)?.map(|s| s.clamp(0, CREATED_S_MAX)))
}

fn limit(form: &Form<'_>) -> Result<usize, Refusal> {
    let limit = form.integer("limit")?.unwrap_or(LIMIT_DEFAULT);
    match usize::try_from(limit) {
        Ok(size @ 1..) if limit <= LIMIT_MAX => Ok(size),
        _ => Err(Refusal::parameter("parameter_invalid_integer", "limit", "limit lies between 1 and 100.")),
    }
}

fn cursor(form: &Form<'_>, name: &str) -> Result<Option<IntentId>, Refusal> {
    let parse = |text| {
        IntentId::parse(text).ok_or_else(|| {
            Refusal::missing(http::StatusCode::BAD_REQUEST, name, format!("No such payment_intent: '{text}'"))
        })
    };
    form.get(name).map(parse).transpose()
}

/// Reads `metadata['name']:'value'`, with either kind of quotes. Other queries are out of scope and say so.
fn note_of(query: &str) -> Result<Note, Refusal> {
    let quoted = |text: &str| {
        let quote = text.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
        let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inner.contains(quote)).then(|| Box::<str>::from(inner))
    };
    let parsed = query
        .trim()
        .strip_prefix("metadata[")
        .and_then(|rest| rest.split_once("]:"))
        .and_then(|(name, value)| Some(Note { name: quoted(name)?, value: quoted(value)? }));
    parsed.ok_or_else(|| {
        Refusal::parameter("parameter_invalid", "query", "This gateway searches for metadata['name']:'value' only.")
    })
}
