//! Lists: windows of time, cursors, and the envelope of one page.
//!
//! Promise: names sort by creation, so a window of time is a range of names, and paging with the last name of a page meets
//! everything once, whatever is written meanwhile.

use http::StatusCode;
use serde::Serialize;

use super::{
    clock::{Name, first_name_at},
    form::Form,
    reply::Refusal,
};

const LIMIT_DEFAULT: i64 = 10;
const LIMIT_MAX: i64 = 100;
/// Past any time a client can mean, and far from overflow when turned into milliseconds.
const CREATED_S_MAX: i64 = 1 << 37;

/// Things whose names lie in `from..below`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window<Id> {
    pub(super) from: Id,
    pub(super) below: Id,
}

#[derive(Serialize)]
pub(super) struct List<T> {
    object: &'static str,
    data: Vec<T>,
    has_more: bool,
    url: &'static str,
}

impl<T> List<T> {
    /// `found` holds one more than the page if there is more.
    pub(super) fn page(mut found: Vec<T>, limit: usize, url: &'static str) -> Self {
        let has_more = found.len() > limit;
        found.truncate(limit);
        Self { object: "list", data: found, has_more, url }
    }
}

/// The part of a list that is asked for. Other parameters this list has are `known`.
pub(super) fn window<Id: Name>(form: &Form<'_>, known: &[&str]) -> Result<Window<Id>, Refusal> {
    let all: Vec<&str> = ["created", "limit", "starting_after"].into_iter().chain(known.iter().copied()).collect();
    form.only(&all)?;
    let windows = ["created", "created[gt]", "created[gte]", "created[lt]", "created[lte]"];
    if let Some((name, _)) = form.pairs().find(|(name, _)| name.starts_with("created") && !windows.contains(name)) {
        return Err(Refusal::parameter("parameter_unknown", name, format!("Received unknown parameter: {name}")));
    }
    let at = |name, plus_s| Ok(created(form, name)?.map(|s| first_name_at((s + plus_s) * 1000)));
    // From its first second to before the second after it.
    let from = [at("created", 0)?, at("created[gte]", 0)?, at("created[gt]", 1)?];
    let from = from.into_iter().flatten().max().unwrap_or(0);
    let after = cursor::<Id>(form, "starting_after")?.map(Name::number);
    let until = [at("created", 1)?, at("created[lte]", 1)?, at("created[lt]", 0)?, after];
    let below = until.into_iter().flatten().min().unwrap_or(u128::MAX);
    Ok(Window { from: Id::of(from), below: Id::of(below) })
}

fn created(form: &Form<'_>, name: &str) -> Result<Option<i64>, Refusal> {
    Ok(form.integer(name)?.map(|s| s.clamp(0, CREATED_S_MAX)))
}

pub(super) fn limit(form: &Form<'_>) -> Result<usize, Refusal> {
    let limit = form.integer("limit")?.unwrap_or(LIMIT_DEFAULT);
    match usize::try_from(limit) {
        Ok(size @ 1..) if limit <= LIMIT_MAX => Ok(size),
        _ => Err(Refusal::parameter("parameter_invalid_integer", "limit", "limit lies between 1 and 100.")),
    }
}

pub(super) fn cursor<Id: Name>(form: &Form<'_>, name: &str) -> Result<Option<Id>, Refusal> {
    let missing = |text| Refusal::missing(StatusCode::BAD_REQUEST, name, format!("No such {}: '{text}'", Id::THING));
    form.get(name).map(|text| Id::read(text).ok_or_else(|| missing(text))).transpose()
}
