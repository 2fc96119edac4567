//! May the figures be believed, is everything as it was promised, and is it good enough? Question: what does an exit code mean?

use std::process::ExitCode;

use crate::{
    measure::ON_TIME,
    report::{PhaseReport, Report, Side},
};

/// The worst that can be said of a run, with the reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Held,
    /// An objective was missed.
    Missed(Vec<String>),
    /// A promise of the system was broken.
    AuditFailed(Vec<String>),
    /// The figures mean nothing.
    Invalid(Vec<String>),
}

impl Verdict {
    /// Everything that speaks against a run; the worst kind decides.
    pub(crate) fn weigh(invalid: Vec<String>, broken: Vec<String>, missed: Vec<String>) -> Self {
        match (invalid.is_empty(), broken.is_empty(), missed.is_empty()) {
            (false, ..) => Self::Invalid(invalid),
            (true, false, _) => Self::AuditFailed(broken),
            (true, true, false) => Self::Missed(missed),
            (true, true, true) => Self::Held,
        }
    }

    /// Judges a benchmark. The rate is expected of the last side: the ones before it are there to be compared with.
    ///
    /// It was held when every single order that was due in the window was bought in time and none was dropped. A share of them
    /// would let a server pass that falls behind a little more every second.
    pub(crate) fn of(report: &Report, expected_rate_per_s: Option<u32>) -> Self {
        let missed = match (expected_rate_per_s, report.sides.last()) {
            (Some(expected), Some(side)) => missed(side, expected),
            _ => Vec::new(),
        };
        let each = |of: fn(&Side) -> Vec<String>| report.sides.iter().flat_map(of).collect();
        Self::weigh(each(invalid), each(broken), missed)
    }

    /// The last line of a run. Nobody reads the verdict without what speaks against it.
    pub(crate) fn with_cautions(&self, cautions: &[String]) -> String {
        if cautions.is_empty() { self.to_string() } else { format!("{self} (CAUTION: {})", cautions.join("; ")) }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Held => 0,
            Self::AuditFailed(_) => 1,
            Self::Missed(_) => 2,
            Self::Invalid(_) => 3,
        })
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Held => f.write_str("every promise held"),
            Self::AuditFailed(reasons) => write!(f, "FAIL: {}", reasons.join("; ")),
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
    }
    reasons
}

fn broken(side: &Side) -> Vec<String> {
    let mut reasons = Vec::new();
    for phase in &side.phases {
        if let Some(books) = phase.books.filter(|books| !books.agrees()) {
            reasons.push(format!("{}, {}: {books}", side.name, phase.name));
        }
    }
    if let Some(audit) = side.audit.as_ref().filter(|audit| !audit.anomalies.is_empty()) {
        reasons.push(format!("{}: audit: {audit}", side.name));
    }
    reasons
}

fn missed(side: &Side, expected_rate_per_s: u32) -> Vec<String> {
    if let Some(why) = &side.skipped {
        return vec![format!("{}: open loop {why}", side.name)];
    }
    let open = side.phases.iter().filter(|phase| phase.open_rate_per_s.is_some());
    open.flat_map(|phase| missed_in(side, phase, expected_rate_per_s)).collect()
}

fn missed_in(side: &Side, phase: &PhaseReport, expected_rate_per_s: u32) -> Vec<String> {
    let counted = &phase.counted;
    let mut reasons = Vec::new();
    let late = counted.due_in_window - counted.due_on_time;
    if late > 0 {
        reasons.push(format!(
            "{}: {late} of the {} orders due in the window were not bought by {} ms after it",
            side.name,
            counted.due_in_window,
            ON_TIME.as_millis()
        ));
    }
    if counted.held_per_s < f64::from(expected_rate_per_s) {
        reasons.push(format!("{}: {:.0} orders/s held of {expected_rate_per_s}", side.name, counted.held_per_s));
    }
    if counted.dropped > 0 {
        reasons.push(format!("{}: {} orders dropped", side.name, counted.dropped));
    }
    if let Some(pipeline) = phase.pipeline.as_ref().filter(|pipeline| !pipeline.keeps_up(counted.held_per_s)) {
        reasons.push(format!(
            "{}: the pipeline does not keep up: {} events behind at the end, growing by {:.0}/s",
            side.name,
            pipeline.at_end.events(),
            pipeline.growth_per_s
        ));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        drive::Loop,
        report::{
            AuditFound, BooksCheck,
            tests::{phase_report, report as report_of},
        },
    };

    fn report(edit: impl Fn(&mut Side)) -> Report {
        let mut slow = phase_report(1400.0, Loop::Open { rate_per_s: 3500 });
        slow.counted.dropped = 1000;
        let mut phase = phase_report(3490.0, Loop::Open { rate_per_s: 3500 });
        let counted = &mut phase.counted;
        (counted.due_in_window, counted.due_on_time, counted.held_per_s) = (3500, 3500, 3500.0);
        let mut report = report_of(vec![("batch 1, lanes 8", vec![slow]), ("batch 256, lanes 1", vec![phase])]);
        edit(&mut report.sides[1]);
        report
    }

    #[track_caller]
    fn assert_missed(report: &Report, because: &str) {
        let verdict = Verdict::of(report, Some(3500));
        assert!(matches!(&verdict, Verdict::Missed(reasons) if reasons.join(" ").contains(because)), "{verdict}");
    }

    #[test]
    fn a_rate_is_held_when_every_order_due_in_the_window_was_bought_in_time() {
        // Of the answers within the window some are always due to orders of before, and some of the last are missing.
        assert_eq!(Verdict::of(&report(|_| {}), Some(3500)), Verdict::Held);
        assert_missed(&report(|side| side.phases[0].counted.due_on_time = 3499), "1 of the 3500 orders");
        assert_missed(&report(|side| side.phases[0].counted.held_per_s = 3499.9), "held of 3500");
        assert_missed(&report(|side| side.phases[0].counted.dropped = 1), "1 orders dropped");
    }

    #[test]
    fn a_rate_is_expected_of_the_last_side_only_and_cannot_be_held_by_skipping() {
        let lossy = report(|side| side.phases[0].counted.dropped = 1);
        assert_eq!(Verdict::of(&lossy, None), Verdict::Held, "nothing was expected");
        let skipping = |side: &mut Side| {
            side.phases[0] = phase_report(900.0, Loop::Closed);
            side.skipped = Some("skipped: capacity 900/s is below the rate".to_owned());
        };
        assert_missed(&report(skipping), "capacity 900/s");
    }

    #[test]
    fn books_that_do_not_agree_or_an_anomaly_fail_even_a_fast_run() {
        let books = BooksCheck {
            answered: 100,
            orders_in_database: 101,
            captures_at_gateway: 101,
            booked_in_ledger: 101,
            mails: 101,
        };
        let found = |anomalies| Some(AuditFound { anomalies, orders: 100, captures: 100 });
        let clean = report(|side| side.audit = found(BTreeMap::new()));
        assert_eq!(Verdict::of(&clean, Some(3500)), Verdict::Held);
        let idle = report(|side| side.phases[0].counted.orders_in_window = 0);
        assert!(matches!(Verdict::of(&idle, Some(3500)), Verdict::Invalid(_)));
        for wrong in [
            report(|side| side.phases[0].books = Some(books)),
            report(|side| side.audit = found(BTreeMap::from([("duplicate_charge", 1)]))),
        ] {
            assert!(matches!(Verdict::of(&wrong, Some(3500)), Verdict::AuditFailed(_)));
        }
    }

    #[test]
    fn a_caution_stands_in_the_same_line_as_the_verdict() {
        assert_eq!(Verdict::Held.with_cautions(&[]), "every promise held");
        let cautions = ["30 % of the machine was busy with other things".to_owned()];
        assert_eq!(
            Verdict::Held.with_cautions(&cautions),
            "every promise held (CAUTION: 30 % of the machine was busy with other things)"
        );
    }
}
