//! What a run found, as it is written to `--json`. Question: which figures does a run consist of?

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    cpu::Spent,
    drive::{Driven, Loop, Phase},
    measure::Counted,
};

/// Everything one run found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) connections: usize,
    pub(crate) seconds: f64,
    pub(crate) warmup_seconds: f64,
    pub(crate) processors: usize,
    /// `release`, or `debug`: then the figures are about the compiler.
    pub(crate) build: &'static str,
    /// One per server, in the order they ran.
    pub(crate) sides: Vec<Side>,
}

/// One server, and each phase it was put through.
#[derive(Debug, Serialize)]
pub(crate) struct Side {
    pub(crate) name: String,
    pub(crate) phases: Vec<PhaseReport>,
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
}

impl BooksCheck {
    pub(crate) fn agrees(&self) -> bool {
        self.answered == self.orders_in_database && self.answered == self.captures_at_gateway
    }
}

impl PhaseReport {
    pub(crate) fn new(phase: &Phase, driven: Driven, books: Option<BooksCheck>) -> Self {
        Self {
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

impl Report {
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
        PhaseReport::new(&phase, Driven { counted, spent }, None)
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
    fn books_agree_only_when_all_three_do() {
        let books = BooksCheck { answered: 7, orders_in_database: 7, captures_at_gateway: 7 };
        assert!(books.agrees());
        assert!(!BooksCheck { orders_in_database: 8, ..books }.agrees());
        assert!(!BooksCheck { captures_at_gateway: 8, ..books }.agrees());
    }
}
