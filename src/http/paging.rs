//! Lists, page by page: `?limit=&starting_after=`. Newest first, and from behind an id rather than from a number on, so that
//! what is added meanwhile moves nothing.

use std::{borrow::Cow, str::FromStr};

use serde::Serialize;

use crate::wire::{card_number::holds_card_number, json::FieldError, problem::Problem};

/// Entries of a page when nobody says how many.
pub(super) const LIMIT_DEFAULT: usize = 20;
/// Most entries of one page.
pub(super) const LIMIT_MAX: usize = 100;

/// Which page is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Page<Id> {
    limit: usize,
    pub(super) after: Option<Id>,
}

/// One page.
#[derive(Debug, Serialize)]
pub(super) struct List<T, Id> {
    data: Vec<T>,
    has_more: bool,
    /// What to start after for the page behind this one, while there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Id>,
}

impl<Id: FromStr> Page<Id> {
    /// Reads the query. Every parameter that means nothing here is refused: a misspelt one would give another page.
    pub(super) fn read(query: Option<&str>) -> Result<Self, Problem> {
        let mut errors = Vec::new();
        let (mut limit, mut after) = (None, None);
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            let fault = match &*name {
                "limit" if limit.is_some() => Some("is there twice".to_owned()),
                "limit" => {
                    // One spelling per number: `05` and `+5` are none.
                    let read = value.parse().ok().filter(|limit: &usize| limit.to_string() == value);
                    limit = read.filter(|limit| (1..=LIMIT_MAX).contains(limit));
                    limit.is_none().then(|| format!("must be a whole number from 1 to {LIMIT_MAX}"))
                }
                "starting_after" if after.is_some() => Some("is there twice".to_owned()),
                "starting_after" => {
                    after = value.parse().ok();
                    after.is_none().then(|| "must be an id of this list".to_owned())
                }
                _ => Some("is not a parameter of this list".to_owned()),
            };
            errors.extend(fault.map(|detail| FieldError { pointer: told(name), detail }));
        }
        if errors.is_empty() {
            Ok(Self { limit: limit.unwrap_or(LIMIT_DEFAULT), after })
        } else {
            Err(Problem::invalid(errors))
        }
    }

    /// How many rows to ask for: one more than are shown tells whether there are more.
    pub(super) fn rows(&self) -> i64 {
        i64::try_from(self.limit).unwrap_or(0) + 1
    }

    /// The page out of such rows, each with its `id`, as it is `shown`.
    pub(super) fn list<'row, Row, T>(
        &self,
        rows: &'row [Row],
        id: impl Fn(&'row Row) -> Id,
        shown: impl Fn(&'row Row) -> T,
    ) -> List<T, Id> {
        let page = rows.get(..self.limit).unwrap_or(rows);
        let has_more = rows.len() > page.len();
        let next = page.last().filter(|_| has_more).map(id);
        List { data: page.iter().map(shown).collect(), has_more, next }
    }
}

/// A parameter's name as it may be told, in the answer and by whoever logs it: not one that is a card number.
fn told(name: Cow<'_, str>) -> String {
    if name.is_empty() || holds_card_number(&name) { "?".to_owned() } else { name.into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<Page<u32>, Vec<String>> {
        Page::read(Some(query)).map_err(|problem| problem.errors.into_iter().map(|error| error.pointer).collect())
    }

    #[test]
    fn a_page_has_a_size_and_a_place_and_nothing_else() {
        assert_eq!(read(""), Ok(Page { limit: 20, after: None }));
        assert_eq!(read("limit=1&starting_after=7"), Ok(Page { limit: 1, after: Some(7) }));
        assert_eq!(read("limit=100"), Ok(Page { limit: 100, after: None }));
        for (query, wrong) in [
            ("limit=0", "limit"),
            ("limit=101", "limit"),
            ("limit=", "limit"),
            ("limit=05", "limit"),
            ("limit=%2B5", "limit"),
            ("limit=1&limit=1", "limit"),
            ("starting_after=x", "starting_after"),
            ("starting_after=1&starting_after=1", "starting_after"),
            ("ending_before=1", "ending_before"),
            ("=1", "?"),
            ("4242424242424242=1", "?"),
        ] {
            assert_eq!(read(query), Err(vec![wrong.to_owned()]), "{query}");
        }
    }

    #[test]
    fn one_row_more_than_is_shown_says_that_there_are_more() {
        let page = read("limit=2").unwrap();
        assert_eq!(page.rows(), 3);
        let list = |rows: &[u32]| {
            let list = page.list(rows, |row| *row, |row| row * 10);
            (list.data, list.has_more, list.next)
        };
        assert_eq!(list(&[7, 6, 5]), (vec![70, 60], true, Some(6)));
        assert_eq!(list(&[7, 6]), (vec![70, 60], false, None));
        assert_eq!(list(&[]), (vec![], false, None));
    }
}
