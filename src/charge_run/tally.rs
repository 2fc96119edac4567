//! What a run came to. Question: how many lines, and how much money, ended how?

use std::{collections::BTreeMap, fmt};

use super::{
    file::Rejected,
    line::Line,
    till::{End, Kind},
};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    lines: u64,
    amount_minor: i64,
}

/// One sum per way to end and currency. A rejected row may have no amount: it counts as a line only.
#[derive(Debug, Default)]
pub(super) struct Tally {
    sums: BTreeMap<(Kind, &'static str), Sum>,
}

impl Tally {
    pub(super) fn count(&mut self, line: &Line, end: &End) {
        self.add(end.kind, line);
    }

    pub(super) fn repeat(&mut self, line: &Line) {
        self.add(Kind::Repeated, line);
    }

    /// Not sent, for whatever reason.
    pub(super) fn leave(&mut self, line: &Line) {
        self.add(Kind::NotSent, line);
    }

    pub(super) fn reject(&mut self, _rejected: &Rejected) {
        self.sums.entry((Kind::Rejected, "")).or_default().lines += 1;
    }

    fn add(&mut self, kind: Kind, line: &Line) {
        let sum = self.sums.entry((kind, line.amount.currency().code())).or_default();
        sum.lines += 1;
        sum.amount_minor += line.amount.amount_minor();
    }

    fn lines(&self, kind: Kind) -> u64 {
        self.of(kind).map(|(_, sum)| sum.lines).sum()
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = (&'static str, Sum)> {
        self.sums.iter().filter(move |((of, _), _)| *of == kind).map(|((_, currency), sum)| (*currency, *sum))
    }

    /// Every line has its final answer, and none needs a person to correct it.
    pub(super) fn is_settled(&self) -> bool {
        [Kind::Rejected, Kind::Unknown, Kind::NotSent].iter().all(|kind| self.lines(*kind) == 0)
    }

    /// What to do now, if anything.
    pub(super) fn advice(&self) -> Option<&'static str> {
        if self.lines(Kind::Unknown) + self.lines(Kind::NotSent) > 0 {
            Some("run the same command again: what is charged is not charged again, the rest is")
        } else if self.lines(Kind::Rejected) > 0 {
            Some("correct the rejected lines in the file and run it again: what is charged is not charged again")
        } else {
            None
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for kind in Kind::ALL {
            let name = kind.name().replace('_', " ");
            write!(f, "{separator}{name:<15}{:>8}", self.lines(kind))?;
            for (currency, sum) in self.of(kind).filter(|(_, sum)| sum.amount_minor > 0) {
                let amount = format!("{}.{:02}", sum.amount_minor / 100, sum.amount_minor % 100);
                write!(f, "{amount:>16} {currency}")?;
            }
            separator = "\n";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(amount: &str) -> Line {
        Line::read(2, &csv::ByteRecord::from(vec!["42", "A", "2026-11", amount, "eur", "pm_card_visa"])).unwrap()
    }

    #[test]
    fn sums_are_exact_and_every_way_to_end_is_shown() {
        let mut tally = Tally::default();
        let end = |kind| End { kind, charge_id: None, gateway_id: None, attempts: 1, detail: String::new() };
        for amount in ["1", "4299", "99999999", "99999999"] {
            tally.count(&line(amount), &end(Kind::ChargedNow));
        }
        tally.repeat(&line("5"));
        assert!(tally.is_settled() && tally.advice().is_none());
        let shown = tally.to_string();
        let rows: Vec<Vec<&str>> = shown.lines().map(|row| row.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["charged", "now", "4", "2000042.98", "eur"]);
        assert_eq!(rows[1], ["charged", "before", "0"]);
        assert_eq!(rows[5], ["repeated", "1", "0.05", "eur"]);
        assert_eq!(rows.len(), Kind::ALL.len());
    }

    #[test]
    fn nothing_is_settled_while_a_line_is_rejected_unknown_or_not_sent() {
        for kind in Kind::ALL {
            let mut tally = Tally::default();
            tally.add(kind, &line("1"));
            let open = matches!(kind, Kind::Rejected | Kind::Unknown | Kind::NotSent);
            assert_eq!(tally.is_settled(), !open, "{kind:?}");
            assert_eq!(tally.advice().is_some(), open, "{kind:?}");
        }
    }
}
