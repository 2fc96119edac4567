//! What an audit found, in two forms that say the same: JSON for machines, one line per invariant for people.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use serde::{Serialize, ser::SerializeMap};

use super::anomaly::{Among, Anomaly, Kind};

/// Most anomalies of one kind that are spelled out. All of them are counted.
pub const EXAMPLES_MAX: usize = 100;

/// Findings while they come in.
#[derive(Debug, Default)]
pub(super) struct Found {
    kinds: BTreeMap<Kind, (u64, Vec<Anomaly>)>,
}

/// A batch of findings of one kind: some of them spelled out, all of them counted.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) total: u64,
    pub(super) examples: Vec<Example>,
}

#[derive(Debug)]
pub(super) struct Example {
    pub(super) key: Option<String>,
    pub(super) ids: Vec<String>,
    pub(super) detail: String,
}

impl Found {
    pub(super) fn add(&mut self, kind: Kind, batch: Batch) {
        let (total, anomalies) = self.kinds.entry(kind).or_default();
        *total += batch.total;
        let room = EXAMPLES_MAX.saturating_sub(anomalies.len());
        anomalies.extend(batch.examples.into_iter().take(room).map(|Example { key, ids, detail }| Anomaly {
            kind,
            key,
            ids,
            detail,
        }));
    }

    /// Counts one more; its text is only made while there is room for it.
    pub(super) fn add_one(&mut self, kind: Kind, example: impl FnOnce() -> Example) {
        let full = self.kinds.get(&kind).is_some_and(|(_, anomalies)| anomalies.len() >= EXAMPLES_MAX);
        let examples = if full { Vec::new() } else { vec![example()] };
        self.add(kind, Batch { total: 1, examples });
    }
}

/// Captures that no charge of ours names, and that are no anomaly all the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Leftover {
    /// Their record is still open, or reconciliation is giving them back.
    pub(super) pending: u64,
    /// They went back in full.
    pub(super) refunded: u64,
}

/// How much was looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    pub orders: u64,
    pub charges: u64,
    pub refunds: u64,
    pub captures: u64,
    pub events: u64,
    pub entries: u64,
    pub receipts: u64,
    /// What the mail service delivered; `None` if it was not asked.
    pub mails: Option<u64>,
    /// Records by state; every state is there.
    pub records: BTreeMap<&'static str, u64>,
    /// Captures whose record is still open, which retries or recovery will settle, and those that reconciliation is refunding.
    pub pending: u64,
    /// Captures that no charge of ours names and that went back in full: nobody has lost anything.
    pub refunded: u64,
    /// Events that failed, and those behind them, that will be tried again without a person.
    pub held: u64,
    /// Records that wait for a person.
    pub needs_review: u64,
    /// Claims that were released before anything was sent: nothing was charged, and only their client resumes them.
    pub released: u64,
    /// Since when the oldest record that is in flight or unknown may have charged somebody; `None` if there is none.
    pub oldest_open_s: Option<u64>,
}

impl Counted {
    pub(super) fn with_ledger(self, captures: usize, Leftover { pending, refunded }: Leftover) -> Self {
        Self { captures: captures as u64, pending, refunded, ..self }
    }

    fn among(&self, among: Among) -> u64 {
        match among {
            Among::Orders => self.orders,
            Among::Charges => self.charges,
            Among::Refunds => self.refunds,
            Among::Captures => self.captures,
            Among::Records => self.records.values().sum(),
            Among::Events => self.events,
            Among::Entries => self.entries,
        }
    }
}

/// The outcome of one audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// In the order of [`Kind::ALL`], at most [`EXAMPLES_MAX`] of each kind.
    pub anomalies: Vec<Anomaly>,
    pub counted: Counted,
    found: BTreeMap<Kind, u64>,
}

impl Report {
    pub(super) fn new(found: Found, counted: Counted) -> Self {
        let totals = found.kinds.iter().map(|(kind, (total, _))| (*kind, *total)).collect();
        // A BTreeMap hands the kinds out in the order in which the enum declares them.
        let anomalies = found.kinds.into_values().flat_map(|(_, anomalies)| anomalies).collect();
        Self { anomalies, counted, found: totals }
    }

    /// How many anomalies of a kind there are, spelled out or not.
    pub fn found(&self, kind: Kind) -> u64 {
        self.found.get(&kind).copied().unwrap_or(0)
    }

    /// The kinds that were found at least once.
    pub fn kinds(&self) -> Vec<Kind> {
        Kind::ALL.into_iter().filter(|kind| self.found(*kind) > 0).collect()
    }

    pub fn is_clean(&self) -> bool {
        self.kinds().is_empty()
    }

    /// Whether the mail service's own list was compared with our receipts.
    pub fn mails_checked(&self) -> bool {
        self.counted.mails.is_some()
    }
}

/// Every kind by name, in order, found or not: a reader never has to ask whether an invariant was looked at.
#[derive(Debug)]
struct Totals<'a>(&'a Report);

impl Serialize for Totals<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Kind::ALL.len()))?;
        for kind in Kind::ALL {
            map.serialize_entry(kind.name(), &self.0.found(kind))?;
        }
        map.end()
    }
}

impl Serialize for Report {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(5))?;
        map.serialize_entry("clean", &self.is_clean())?;
        map.serialize_entry("mails_checked", &self.mails_checked())?;
        map.serialize_entry("found", &Totals(self))?;
        map.serialize_entry("anomalies", &self.anomalies)?;
        map.serialize_entry("counted", &self.counted)?;
        map.end()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in Kind::ALL {
            let (found, among) = (self.found(kind), kind.among());
            let verdict = if found == 0 { "ok  " } else { "FAIL" };
            writeln!(f, "{verdict}  {:<24} {found} of {} {}", kind.name(), self.counted.among(among), among.name())?;
            if found == 0 {
                continue;
            }
            writeln!(f, "      {}", kind.meaning())?;
            let examples: Vec<_> = self.anomalies.iter().filter(|anomaly| anomaly.kind == kind).collect();
            for anomaly in &examples {
                writeln!(f, "      - {}", line(anomaly))?;
            }
            if found > examples.len() as u64 {
                writeln!(f, "      … and {} more", found - examples.len() as u64)?;
            }
        }
        let records: Vec<_> = self.counted.records.iter().map(|(state, count)| format!("{count} {state}")).collect();
        writeln!(f, "records: {}", records.join(", "))?;
        let Counted { pending, refunded, released, needs_review, held, mails, entries, receipts, .. } = self.counted;
        let in_state = |state| self.counted.records.get(state).copied().unwrap_or(0);
        let (unknown, in_flight) = (in_state("unknown"), in_state("in_flight").saturating_sub(released));
        let oldest =
            self.counted.oldest_open_s.map_or(String::new(), |seconds| format!(", the oldest for {}", age(seconds)));
        writeln!(
            f,
            "not judged yet: {unknown} keys unknown, {in_flight} in flight{oldest}; {pending} captures pending (their record is open, or they are being refunded)"
        )?;
        writeln!(
            f,
            "waiting: {needs_review} keys for a person, {released} for their client (released, nothing was charged); {held} events for their next try"
        )?;
        writeln!(f, "refunded: {refunded} captures that no charge of ours names, each in full")?;
        write!(f, "what followed: {entries} ledger entries, {receipts} receipts, ")?;
        match mails {
            Some(mails) => write!(f, "{mails} mails delivered"),
            None => write!(f, "mails NOT CHECKED: no mail service was named (--mail-url), so no mail was counted"),
        }
    }
}

/// In the largest unit that leaves a number to think about.
fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

fn line(anomaly: &Anomaly) -> String {
    // Ids and references come from customers: escaped, so that none of them can move the cursor of a terminal.
    let mut line: String = anomaly.detail.chars().flat_map(printable).collect();
    if !anomaly.ids.is_empty() {
        let ids: String = anomaly.ids.join(", ").chars().flat_map(printable).collect();
        // Writing to a String cannot fail.
        let _ = write!(line, " [{ids}]");
    }
    if let Some(key) = &anomaly.key {
        let _ = write!(line, " (key digest {key})");
    }
    line
}

fn printable(c: char) -> impl Iterator<Item = char> {
    let escaped = c.is_control().then(|| c.escape_unicode());
    let plain = escaped.is_none().then_some(c);
    escaped.into_iter().flatten().chain(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_not_judged_yet_are_shown_with_the_age_of_the_oldest() {
        let mut report = Report::new(Found::default(), Counted::default());
        report.counted.records.insert("unknown", 2);
        for (seconds, said) in [(59, "59 s"), (900, "15 min"), (7199, "119 min"), (86_400, "24 h")] {
            report.counted.oldest_open_s = Some(seconds);
            let text = report.to_string();
            assert!(report.is_clean());
            assert!(text.contains(&format!("2 keys unknown, 0 in flight, the oldest for {said};")), "{text}");
        }
        report.counted.oldest_open_s = None;
        assert!(!report.to_string().contains("oldest"), "{report}");
    }
}
