//! What a run found, as it is written to `--json`. Question: which figures does a run consist of?

use std::collections::BTreeMap;

use checkout::audit;
use serde::Serialize;

use crate::{
    cpu::Spent,
    drive::{Driven, Loop, Phase},
    machine::Machine,
    measure::Counted,
    pipeline::Pipeline,
    setting::Setting,
};

/// Everything one run found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) connections: usize,
    pub(crate) seconds: f64,
    pub(crate) warmup_seconds: f64,
    #[serde(flatten)]
    pub(crate) machine: Machine,
    /// `release`, or `debug`: then the figures are about the compiler.
    pub(crate) build: &'static str,
    /// One per server, in the order they ran.
    pub(crate) sides: Vec<Side>,
}

/// One server, and each phase it was put through.
#[derive(Debug, Serialize)]
pub(crate) struct Side {
    pub(crate) name: String,
    /// `None` where the server is not ours.
    pub(crate) server: Option<Server>,
    pub(crate) phases: Vec<PhaseReport>,
    /// Why the open loop was left out.
    pub(crate) skipped: Option<String>,
    /// `None` where the server's books are out of reach.
    pub(crate) audit: Option<AuditFound>,
}

/// What was under load, as far as it matters for its figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Server {
    #[serde(flatten)]
    pub(crate) setting: Setting,
    /// The api's pool.
    pub(crate) connections: usize,
    pub(crate) postgresql: String,
}

/// What the audit of the whole stack found behind the last phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct AuditFound {
    /// How many of each kind that was found; empty is clean.
    pub(crate) anomalies: BTreeMap<&'static str, u64>,
    pub(crate) orders: u64,
    pub(crate) captures: u64,
}

impl From<&audit::Report> for AuditFound {
    fn from(report: &audit::Report) -> Self {
        Self {
            anomalies: report.kinds().into_iter().map(|kind| (kind.name(), report.found(kind))).collect(),
            orders: report.counted.orders,
            captures: report.counted.captures,
        }
    }
}

impl AuditFound {
    /// What is found now and was not before.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        for (kind, count) in &mut self.anomalies {
            *count = count.saturating_sub(before.anomalies.get(kind).copied().unwrap_or_default());
        }
        self.anomalies.retain(|_, count| *count > 0);
        Self { orders: self.orders - before.orders, captures: self.captures - before.captures, ..self }
    }
}

impl std::fmt::Display for AuditFound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let among = format!("{} orders, {} captures", self.orders, self.captures);
        if self.anomalies.is_empty() {
            return write!(f, "clean ({} invariants over {among})", audit::Kind::ALL.len());
        }
        let named: Vec<_> = self.anomalies.iter().map(|(name, count)| format!("{count} {name}")).collect();
        write!(f, "FAIL {} ({among})", named.join(", "))
    }
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct PhaseReport {
    pub(crate) name: String,
    pub(crate) open_rate_per_s: Option<u32>,
    #[serde(flatten)]
    pub(crate) counted: Counted,
    pub(crate) cpu: Cpu,
    /// `None` where the server's books are out of reach.
    pub(crate) books: Option<BooksCheck>,
    pub(crate) pipeline: Option<Pipeline>,
}

/// CPU time in the window, divided by the orders answered in it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Cpu {
    pub(crate) ms_per_order: BTreeMap<&'static str, f64>,
    pub(crate) ms_per_order_total: f64,
    /// Share of all processors' time that anything at all used.
    pub(crate) machine_busy_percent: f64,
    /// Share used by processes that are no part of this run, and by the kernel on nobody's account.
    pub(crate) others_percent: f64,
    pub(crate) stolen_percent: f64,
}

/// What the phones were told, beside what was written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct BooksCheck {
    pub(crate) answered: u64,
    pub(crate) orders_in_database: u64,
    pub(crate) captures_at_gateway: u64,
    pub(crate) booked_in_ledger: u64,
    pub(crate) mails: u64,
}

impl BooksCheck {
    pub(crate) fn agrees(&self) -> bool {
        let written = [self.orders_in_database, self.captures_at_gateway, self.booked_in_ledger, self.mails];
        written.iter().all(|count| *count == self.answered)
    }
}

impl std::fmt::Display for BooksCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { answered, orders_in_database, captures_at_gateway, booked_in_ledger, mails } = self;
        write!(
            f,
            "{answered} answered 201, {orders_in_database} orders, {captures_at_gateway} captures, {booked_in_ledger} booked, {mails} mails"
        )
    }
}

impl PhaseReport {
    pub(crate) fn new(phase: &Phase, driven: Driven, books: Option<BooksCheck>, pipeline: Option<Pipeline>) -> Self {
        Self {
            pipeline,
            name: phase.looped.to_string(),
            open_rate_per_s: match phase.looped {
                Loop::Closed => None,
                Loop::Open { rate_per_s } => Some(rate_per_s),
            },
            cpu: Cpu::new(&driven.spent, driven.counted.orders_in_window),
            counted: driven.counted,
            books,
        }
    }
}

impl Cpu {
    fn new(spent: &Spent, orders: u64) -> Self {
        let per_order = |seconds: f64| seconds * 1000.0 / (orders.max(1) as f64);
        let ours: f64 = spent.processes.iter().map(|(_, time)| time.as_secs_f64()).sum();
        let share = |seconds: f64| 100.0 * seconds / spent.available.as_secs_f64().max(f64::MIN_POSITIVE);
        Self {
            ms_per_order: spent.processes.iter().map(|(name, time)| (*name, per_order(time.as_secs_f64()))).collect(),
            ms_per_order_total: per_order(ours),
            machine_busy_percent: share(spent.machine.as_secs_f64()),
            others_percent: share((spent.machine.as_secs_f64() - ours).max(0.0)),
            stolen_percent: share(spent.stolen.as_secs_f64()),
        }
    }
}

/// How this program was built, and the servers beside it with it.
pub(crate) const BUILD: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

/// More than this for others, and the server was not alone with its load.
const OTHERS_MAX_PERCENT: f64 = 10.0;

impl Report {
    /// What a reader must know before comparing these figures with others.
    pub(crate) fn cautions(&self) -> Vec<String> {
        let mut cautions = Vec::new();
        if self.build == "debug" {
            cautions.push("a debug build, several times slower than `cargo build --release --bins`".to_owned());
        }
        let phases = self.sides.iter().flat_map(|side| side.phases.iter().map(move |phase| (side, phase)));
        for (side, phase) in phases.filter(|(_, phase)| phase.cpu.others_percent > OTHERS_MAX_PERCENT) {
            let others = phase.cpu.others_percent;
            cautions.push(format!(
                "{}, {}: {others:.0} % of the machine was busy with other things",
                side.name, phase.name
            ));
        }
        cautions
    }

    /// The phases in which an order cost the harness more than `most_us`.
    pub(crate) fn too_expensive(&self, most_us: f64) -> Vec<String> {
        let phases = self.sides.iter().flat_map(|side| &side.phases);
        let costs = phases.filter_map(|phase| Some((phase, phase.cpu.ms_per_order.get("harness")? * 1000.0)));
        let dear = costs.filter(|(_, us)| *us > most_us);
        dear.map(|(phase, us)| format!("{}: {us:.1} µs of CPU per order, at most {most_us}", phase.name)).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::measure::{Tally, window};

    /// A run of sides with these names and phases.
    pub(crate) fn report(sides: Vec<(&str, Vec<PhaseReport>)>) -> Report {
        let side = |(name, phases): (&str, _)| Side {
            name: name.to_owned(),
            server: None,
            phases,
            skipped: None,
            audit: None,
        };
        let machine = Machine { processor: "A Processor".to_owned(), processors: 2, kernel: "Linux 6.1".to_owned() };
        let sides = sides.into_iter().map(side).collect();
        Report { connections: 1, seconds: 1.0, warmup_seconds: 0.0, machine, build: "release", sides }
    }

    pub(crate) fn phase_report(orders_per_s: f64, looped: Loop) -> PhaseReport {
        let second = Duration::from_secs(1);
        let tally = Tally::new(window(Instant::now(), second, second)).unwrap();
        let counted = Counted { orders_per_s, orders_in_window: 1000, ..tally.close(0) };
        let spent = Spent {
            processes: vec![("api", Duration::from_millis(120)), ("postgres", Duration::from_millis(270))],
            machine: Duration::from_millis(500),
            available: 2 * second,
            stolen: Duration::from_millis(20),
        };
        let phase = Phase { looped, connections: 1, warmup: second, lasting: second, queue_limit: 1 };
        PhaseReport::new(&phase, Driven { counted, spent }, None, None)
    }

    #[test]
    fn cost_is_divided_by_the_orders_of_the_window_and_strangers_are_named() {
        let cpu = phase_report(1000.0, Loop::Closed).cpu;
        assert!((cpu.ms_per_order["api"] - 0.12).abs() < 1e-9);
        assert!((cpu.ms_per_order_total - 0.39).abs() < 1e-9);
        assert!((cpu.machine_busy_percent - 25.0).abs() < 1e-9);
        assert!((cpu.others_percent - 5.5).abs() < 1e-9);
        assert!((cpu.stolen_percent - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_reader_is_warned_of_a_debug_build_and_of_a_machine_that_others_used() {
        let mut report = report(vec![("batch 256, lanes 1", vec![phase_report(1000.0, Loop::Closed)])]);
        assert!(report.cautions().is_empty());
        report.build = "debug";
        report.sides[0].phases[0].cpu.others_percent = 30.0;
        assert_eq!(report.cautions().len(), 2);
    }

    #[test]
    fn an_audit_says_clean_or_what_it_found() {
        let mut found = AuditFound { anomalies: BTreeMap::new(), orders: 7, captures: 8 };
        assert_eq!(found.to_string(), "clean (22 invariants over 7 orders, 8 captures)");
        found.anomalies.insert("orphan_charge", 1);
        assert_eq!(found.to_string(), "FAIL 1 orphan_charge (7 orders, 8 captures)");
    }

    #[test]
    fn books_agree_only_when_all_of_them_do() {
        let books =
            BooksCheck { answered: 7, orders_in_database: 7, captures_at_gateway: 7, booked_in_ledger: 7, mails: 7 };
        assert!(books.agrees());
        assert!(!BooksCheck { booked_in_ledger: 6, ..books }.agrees());
        assert!(!BooksCheck { mails: 8, ..books }.agrees());
        assert!(!BooksCheck { orders_in_database: 8, ..books }.agrees());
        assert!(!BooksCheck { captures_at_gateway: 8, ..books }.agrees());
    }
}
