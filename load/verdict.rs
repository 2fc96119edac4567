//! May the figures be believed, and are they good enough? Question: what does the exit code of a run mean?

use std::process::ExitCode;

use crate::report::{PhaseReport, Report, Side};

/// Held when this share of the rate was answered in time: the last orders of a window are answered just after it.
const HELD_SHARE: f64 = 0.99;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Valid, and no objective missed.
    Held,
    /// Valid figures that miss an objective, each with its reason.
    Missed(Vec<String>),
    /// The figures mean nothing, for these reasons.
    Invalid(Vec<String>),
}

impl Verdict {
    /// Judges a run. The rate is expected of the last side: the ones before it are there to be compared with.
    pub(crate) fn of(report: &Report, expected_rate_per_s: Option<u32>) -> Self {
        let reasons: Vec<String> = report.sides.iter().flat_map(invalid).collect();
        if !reasons.is_empty() {
            return Self::Invalid(reasons);
        }
        let missed = match (expected_rate_per_s, report.sides.last()) {
            (Some(expected), Some(side)) => missed(side, expected),
            _ => Vec::new(),
        };
        if missed.is_empty() { Self::Held } else { Self::Missed(missed) }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Held => ExitCode::SUCCESS,
            Self::Missed(_) => ExitCode::from(1),
            Self::Invalid(_) => ExitCode::from(3),
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Held => f.write_str("valid"),
            Self::Missed(reasons) => write!(f, "MISSED: {}", reasons.join("; ")),
            Self::Invalid(reasons) => write!(f, "INVALID: {}", reasons.join("; ")),
        }
    }
}

fn invalid(side: &Side) -> Vec<String> {
    let mut reasons = Vec::new();
    for phase in &side.phases {
        let place = format!("{}, {}", side.name, phase.name);
        if phase.counted.orders_in_window == 0 {
            reasons.push(format!("{place}: not one order was answered"));
        }
        if let Some(books) = phase.books.filter(|books| !books.agrees()) {
            reasons.push(format!(
                "{place}: {} orders answered 201, {} in the database, {} captures at the gateway",
                books.answered, books.orders_in_database, books.captures_at_gateway
            ));
        }
    }
    reasons
}

fn missed(side: &Side, expected_rate_per_s: u32) -> Vec<String> {
    let open = side.phases.iter().filter(|phase| phase.open_rate_per_s.is_some());
    open.flat_map(|phase| missed_in(side, phase, expected_rate_per_s)).collect()
}

fn missed_in(side: &Side, phase: &PhaseReport, expected_rate_per_s: u32) -> Vec<String> {
    let counted = &phase.counted;
    let mut reasons = Vec::new();
    if counted.orders_per_s < HELD_SHARE * f64::from(expected_rate_per_s) {
        reasons.push(format!("{}: {:.0} orders/s of {expected_rate_per_s}", side.name, counted.orders_per_s));
    }
    if counted.dropped > 0 {
        reasons.push(format!("{}: {} orders dropped", side.name, counted.dropped));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        drive::Loop,
        report::{BooksCheck, tests::phase_report},
    };

    fn report(edit: impl Fn(&mut PhaseReport)) -> Report {
        let mut slow = phase_report(1400.0, Loop::Open { rate_per_s: 3500 });
        slow.counted.dropped = 1000;
        let mut phase = phase_report(3480.0, Loop::Open { rate_per_s: 3500 });
        edit(&mut phase);
        let side = |name: &str, phase| Side { name: name.to_owned(), phases: vec![phase] };
        let sides = vec![side("batch limit 1", slow), side("batch limit 256", phase)];
        Report { connections: 1, seconds: 1.0, warmup_seconds: 0.0, processors: 2, build: "release", sides }
    }

    #[test]
    fn the_rate_is_expected_of_the_last_side_only() {
        assert_eq!(Verdict::of(&report(|_| {}), Some(3500)), Verdict::Held);
        let too_slow = report(|phase| phase.counted.orders_per_s = 3400.0);
        assert!(matches!(Verdict::of(&too_slow, Some(3500)), Verdict::Missed(reasons) if reasons.len() == 1));
        let dropping = report(|phase| phase.counted.dropped = 1);
        assert!(matches!(Verdict::of(&dropping, Some(3500)), Verdict::Missed(reasons) if reasons.len() == 1));
        assert_eq!(Verdict::of(&dropping, None), Verdict::Held, "nothing was expected");
    }

    #[test]
    fn books_that_do_not_agree_invalidate_even_a_fast_run() {
        let books = BooksCheck { answered: 100, orders_in_database: 101, captures_at_gateway: 101 };
        let wrong = report(|phase| phase.books = Some(books));
        assert!(matches!(Verdict::of(&wrong, Some(3500)), Verdict::Invalid(_)));
        let silent = report(|phase| phase.counted.orders_in_window = 0);
        assert!(matches!(Verdict::of(&silent, None), Verdict::Invalid(_)));
    }
}
