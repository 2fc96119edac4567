//! Lists: windows of time, cursors, and the envelope of one page.
//!
//! Promise: names sort by creation, so a window of time is a range of names, and paging with the last name of a page, or
//! backwards with its first, meets everything once, whatever is written meanwhile.

use std::collections::BTreeMap;

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

/// Things whose names lie in `from..below`, looked at from one edge inwards.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window<Id> {
    pub(super) from: Id,
    pub(super) below: Id,
    pub(super) edge: Edge,
}

/// Where a page begins when the window holds more than one. Either way the page itself shows the newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edge {
    Newest,
    /// Of somebody who pages backwards: the page ends before the name they gave.
    Oldest,
}

impl<Id: Ord + Copy> Window<Id> {
    /// What lies in the window, from its edge inwards.
    pub(super) fn of<T>(self, all: &BTreeMap<Id, T>) -> Box<dyn Iterator<Item = &T> + '_> {
        if self.from >= self.below {
            return Box::new(std::iter::empty());
        }
        self.inwards(all.range(self.from..self.below).map(|(_, thing)| thing))
    }

    /// The same, of things that are few.
    pub(super) fn among<'a, T>(
        self,
        oldest_first: impl DoubleEndedIterator<Item = T> + 'a,
        id: impl Fn(&T) -> Id + 'a,
    ) -> Box<dyn Iterator<Item = T> + 'a>
    where
        Id: 'a,
    {
        self.inwards(oldest_first.filter(move |thing| (self.from..self.below).contains(&id(thing))))
    }

    fn inwards<'a, T>(self, oldest_first: impl DoubleEndedIterator<Item = T> + 'a) -> Box<dyn Iterator<Item = T> + 'a> {
        match self.edge {
            Edge::Newest => Box::new(oldest_first.rev()),
            Edge::Oldest => Box::new(oldest_first),
        }
    }
}

#[derive(Serialize)]
pub(super) struct List<T> {
    object: &'static str,
    data: Vec<T>,
    has_more: bool,
    url: &'static str,
}

impl<T> List<T> {
    /// `found` is sorted from the edge inwards, and holds one more than the page if there is more.
    pub(super) fn page(mut found: Vec<T>, limit: usize, edge: Edge, url: &'static str) -> Self {
        let has_more = found.len() > limit;
        found.truncate(limit);
        if edge == Edge::Oldest {
            found.reverse();
        }
        Self { object: "list", data: found, has_more, url }
    }
}

/// The part of a list that is asked for. Other parameters this list has are `known`.
pub(super) fn window<Id: Name>(form: &Form<'_>, known: &[&str]) -> Result<Window<Id>, Refusal> {
    let every_list = ["created", "ending_before", "limit", "starting_after"];
    let all: Vec<&str> = every_list.into_iter().chain(known.iter().copied()).collect();
    form.only(&all)?;
    let windows = ["created", "created[gt]", "created[gte]", "created[lt]", "created[lte]"];
    if let Some((name, _)) = form.pairs().find(|(name, _)| name.starts_with("created") && !windows.contains(name)) {
        return Err(Refusal::parameter("parameter_unknown", name, format!("Received unknown parameter: {name}")));
    }
    let at = |name, plus_s| Ok(created(form, name)?.map(|s| first_name_at((s + plus_s) * 1000)));
    // From its first second to before the second after it.
    let after = cursor::<Id>(form, "starting_after")?.map(Name::number);
    let before = cursor::<Id>(form, "ending_before")?.map(Name::number);
    if after.is_some() && before.is_some() {
        let message = "You may only specify one of these parameters: starting_after, ending_before.";
        return Err(Refusal::invalid(message).about("ending_before"));
    }
    // A list runs from new to old: what comes before a name is newer.
    let newer = before.map(|name| name.saturating_add(1));
    let from = [at("created", 0)?, at("created[gte]", 0)?, at("created[gt]", 1)?, newer];
    let from = from.into_iter().flatten().max().unwrap_or(0);
    let until = [at("created", 1)?, at("created[lte]", 1)?, at("created[lt]", 0)?, after];
    let below = until.into_iter().flatten().min().unwrap_or(u128::MAX);
    let edge = if before.is_some() { Edge::Oldest } else { Edge::Newest };
    Ok(Window { from: Id::of(from), below: Id::of(below), edge })
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
