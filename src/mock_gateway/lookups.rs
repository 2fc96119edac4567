//! GET: one, list, search.
//!
//! Promise: one and list see every committed write; search may be told to lag, because the dialect's own search does, and
//! "not found" by search therefore proves nothing.
//! It answers: how does a checkout that lost an answer find out what happened?

use std::{collections::HashMap, sync::Arc};

use serde::Serialize;

use super::{
    Gateway,
    books::Note,
    clock::{ChargeId, IntentId, first_name_at},
    form::Form,
    object::{Charge, Expanded, Intent},
    paging::{self, List},
    payments::no_such_intent,
    reply::{Refusal, Reply},
};

/// A lookup may be refused; that the books cannot be read is a surprise.
pub(super) type Lookup = anyhow::Result<Result<Reply, Refusal>>;

pub(super) async fn intent(gateway: &Gateway, form: &Form<'_>, id: &str) -> Lookup {
    let asked = form.only(&["client_secret", "expand"]).and_then(|()| form.expands("latest_charge"));
    let expands = match asked {
        Ok(expands) => expands,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let found = match IntentId::parse(id) {
        Some(id) => gateway.books.intent(id).await?,
        None => None,
    };
    let Some(intent) = found else { return Ok(Err(no_such_intent(id))) };
    let intents = [intent];
    let charges = expansion(gateway, expands, &intents).await?;
    Ok(Ok(Reply::ok(&expanded(&intents[0], &charges))))
}

pub(super) async fn intents(gateway: &Gateway, form: &Form<'_>) -> Lookup {
    let asked = paging::window(form, &["expand"])
        .and_then(|window| Ok((window, paging::limit(form)?, form.expands("data.latest_charge")?)));
    let (window, limit, expands) = match asked {
        Ok(asked) => asked,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let found = gateway.books.intents(window, limit + 1).await?;
    let charges = expansion(gateway, expands, &found).await?;
    let data = found.iter().map(|intent| expanded(intent, &charges)).collect();
    Ok(Ok(Reply::ok(&List::page(data, limit, window.edge, "/v1/payment_intents"))))
}

pub(super) async fn search(gateway: &Gateway, form: &Form<'_>) -> Lookup {
    let asked = form.only(&["expand", "limit", "page", "query"]).and_then(|()| {
        let note = form
            .get("query")
            .ok_or_else(|| Refusal::parameter("parameter_missing", "query", "Missing required param: query."));
        let page = paging::cursor::<IntentId>(form, "page")?;
        Ok((note.and_then(note_of)?, paging::limit(form)?, page, form.expands("data.latest_charge")?))
    });
    let (note, limit, page, expands) = match asked {
        Ok(asked) => asked,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let indexed_until = first_name_at(gateway.clock.now_ms() - gateway.clock.search_lag_ms() + 1);
    let below = page.map_or(indexed_until, |page| page.0.min(indexed_until));
    let mut found = gateway.books.noted(&note, IntentId(below), limit + 1).await?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next_page = found.last().filter(|_| has_more).map(|last| last.id);
    let charges = expansion(gateway, expands, &found).await?;
    let data = found.iter().map(|intent| expanded(intent, &charges)).collect();
    let url = "/v1/payment_intents/search";
    Ok(Ok(Reply::ok(&SearchResult { object: "search_result", data, has_more, next_page, url })))
}

type Charges = HashMap<ChargeId, Arc<Charge>>;

/// The latest charges of these intents, if the request asks for them as a whole.
async fn expansion(gateway: &Gateway, expands: bool, intents: &[Arc<Intent>]) -> anyhow::Result<Charges> {
    if !expands {
        return Ok(Charges::new());
    }
    let ids: Vec<ChargeId> = intents.iter().filter_map(|intent| intent.latest_charge).collect();
    let charges = gateway.books.charges_named(&ids).await?;
    Ok(charges.into_iter().map(|charge| (charge.id, charge)).collect())
}

fn expanded<'a>(intent: &'a Intent, charges: &'a Charges) -> Expanded<'a> {
    let latest_charge = intent.latest_charge.and_then(|id| charges.get(&id)).map(AsRef::as_ref);
    Expanded { intent, latest_charge }
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

/// The charges of one intent. It has few, as each needs a confirmation, so they are all read for every page.
pub(super) async fn charges(gateway: &Gateway, form: &Form<'_>) -> Lookup {
    let asked = paging::window(form, &["payment_intent"]).and_then(|window| {
        let missing =
            || Refusal::parameter("parameter_missing", "payment_intent", "Missing required param: payment_intent.");
        Ok((form.get("payment_intent").ok_or_else(missing)?, window, paging::limit(form)?))
    });
    let (intent, window, limit) = match asked {
        Ok(asked) => asked,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let Some(id) = IntentId::parse(intent) else { return Ok(Err(no_such_intent(intent))) };
    let charges = gateway.books.charges(id).await?;
    let oldest_first = charges.iter().rev().map(AsRef::<Charge>::as_ref);
    let data = window.among(oldest_first, |charge| charge.id).collect();
    Ok(Ok(Reply::ok(&List::page(data, limit, window.edge, "/v1/charges"))))
}

#[derive(Serialize)]
struct SearchResult<'a> {
    object: &'static str,
    data: Vec<Expanded<'a>>,
    has_more: bool,
    next_page: Option<IntentId>,
    url: &'static str,
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
