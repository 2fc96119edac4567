//! The page as values: what is shown, already in the words of a reader. The template escapes every one of them.

use askama::Template;
use time::{OffsetDateTime, format_description::well_known::Rfc3339, macros::format_description};

use super::{
    after::{After, after},
    request_log::LoggedRequest,
    store::{self, Books},
};
use crate::idempotency::record::State;

/// How often a live page reloads itself.
const REFRESH_S: u32 = 5;

#[derive(Debug, Template)]
#[template(path = "overview.html")]
pub(super) struct Overview<'a> {
    live: bool,
    refresh_s: u32,
    books: Result<BooksShown, Unreadable>,
    requests: Result<Vec<LoggedRequest>, Unreadable>,
    api_url: &'a str,
}

/// The reader is told that something is down; why is in our log.
#[derive(Debug)]
struct Unreadable;

#[derive(Debug)]
struct BooksShown {
    counts: Vec<Count>,
    open: Vec<Open>,
    orders: Vec<Order>,
    after: After,
}

#[derive(Debug)]
struct Count {
    state: &'static str,
    count: i64,
    shown: String,
    tone: &'static str,
}

#[derive(Debug)]
struct Open {
    state: String,
    tone: &'static str,
    age: String,
    next: String,
    customer: i64,
    operation: String,
    key: String,
    fence: i32,
    tries: i32,
    maybe_sent: bool,
}

#[derive(Debug)]
struct Order {
    id: String,
    customer: i64,
    reference: String,
    total: String,
    created: String,
    created_at: String,
    key: Option<String>,
    record: Option<(String, &'static str)>,
    charge: String,
    charge_tone: &'static str,
    gateway_id: String,
}

impl<'a> Overview<'a> {
    pub(super) fn new(
        live: bool,
        books: anyhow::Result<Books>,
        requests: anyhow::Result<Vec<LoggedRequest>>,
        api_url: &'a str,
    ) -> Self {
        Self {
            live,
            refresh_s: REFRESH_S,
            books: books.map(shown).map_err(|_| Unreadable),
            requests: requests.map_err(|_| Unreadable),
            api_url,
        }
    }
}

pub(super) fn render(page: &Overview<'_>) -> askama::Result<String> {
    page.render()
}

fn shown(books: Books) -> BooksShown {
    let more = books.counts.more;
    let count = |(state, count): (State, i64)| Count {
        state: state.name(),
        count,
        shown: if more && state.is_final() { format!("{}+", grouped(count)) } else { grouped(count) },
        tone: if state.is_final() { "" } else { tone_of(state) },
    };
    BooksShown {
        counts: books.counts.by_state.into_iter().map(count).collect(),
        open: books.open.into_iter().map(open).collect(),
        orders: books.orders.into_iter().map(order).collect(),
        after: after(&books.health, books.parked),
    }
}

fn open(record: store::OpenRecord) -> Open {
    let state = State::from_name(&record.state);
    let next = match (state, record.due_in_s) {
        (Some(State::NeedsReview), _) => "a person decides".to_owned(),
        (Some(State::InFlight), Some(due)) if due > 0.0 => format!("lease ends in {}", duration(due)),
        (_, Some(due)) if due > 0.0 => format!("looked at in {}", duration(due)),
        (_, Some(due)) => format!("due for {}", duration(-due)),
        (_, None) => String::new(),
    };
    Open {
        tone: state.map_or("", tone_of),
        age: duration(record.age_s),
        next,
        state: record.state,
        customer: record.customer_id,
        operation: record.operation,
        key: record.key,
        fence: record.fence,
        tries: record.tries,
        maybe_sent: record.maybe_sent,
    }
}

fn order(order: store::Order) -> Order {
    let charge = order.charge_status.unwrap_or_else(|| "missing".to_owned());
    Order {
        id: order.id.to_string(),
        customer: order.customer_id,
        reference: order.client_reference.unwrap_or_default(),
        total: money(order.total_minor, &order.currency),
        created: short(order.created_at),
        created_at: order.created_at.format(&Rfc3339).unwrap_or_default(),
        key: order.key,
        record: order.record_state.map(|state| {
            let tone = State::from_name(&state).map_or("", tone_of);
            (state, tone)
        }),
        charge_tone: if charge == "succeeded" { "good" } else { "bad" },
        charge,
        gateway_id: order.gateway_id.unwrap_or_default(),
    }
}

impl LoggedRequest {
    fn tone(&self) -> &'static str {
        match self.status {
            200..=299 => "good",
            500.. => "bad",
            _ => "wait",
        }
    }

    fn took(&self) -> String {
        format!("{:.0} ms", self.took_ms)
    }

    /// The time in the form of the orders' column, or as the api wrote it.
    fn clock(&self) -> String {
        OffsetDateTime::parse(&self.at, &Rfc3339).map_or_else(|_| self.at.clone(), short)
    }
}

fn tone_of(state: State) -> &'static str {
    match state {
        State::Completed => "good",
        State::InFlight | State::Unknown => "wait",
        // A declined card is an answer like any other.
        State::Failed => "",
        State::NeedsReview => "bad",
    }
}

pub(super) fn short(at: OffsetDateTime) -> String {
    let format = format_description!("[month]-[day] [hour]:[minute]:[second]");
    at.to_offset(time::UtcOffset::UTC).format(format).unwrap_or_default()
}

/// Every currency sold here has two decimals.
fn money(minor: i64, currency: &str) -> String {
    format!("{}.{:02} {}", grouped(minor / 100), minor % 100, currency.to_uppercase())
}

pub(super) fn grouped(number: i64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The two largest units that matter: `12 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`.
pub(super) fn duration(seconds: f64) -> String {
    // Saturates on nonsense; a fraction of a second is not worth showing.
    let s = seconds.max(0.0) as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3_600 => format!("{} min {} s", s / 60, s % 60),
        3_600..86_400 => format!("{} h {} min", s / 3_600, s % 3_600 / 60),
        _ => format!("{} d {} h", s / 86_400, s % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_counts_and_durations_read_well() {
        assert_eq!(money(4299, "eur"), "42.99 EUR");
        assert_eq!(money(123_456_705, "eur"), "1,234,567.05 EUR");
        assert_eq!([0, 12, 999, 1_000, 100_000].map(grouped), ["0", "12", "999", "1,000", "100,000"]);
        assert_eq!(
            [0.4, 59.9, 200.0, 7_500.0, 273_600.0].map(duration),
            ["0 s", "59 s", "3 min 20 s", "2 h 5 min", "3 d 4 h"]
        );
        assert_eq!(duration(-3.0), "0 s");
    }
}
