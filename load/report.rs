//! What a run found, for people and for programs. Question: what does grouping commits buy, in one table?

use std::{collections::BTreeMap, fmt::Write as _};

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

impl Report {
    /// The phases in which an order cost the harness more than `most_us`.
    pub(crate) fn too_expensive(&self, most_us: f64) -> Vec<String> {
        let phases = self.sides.iter().flat_map(|side| &side.phases);
        let costs = phases.filter_map(|phase| Some((phase, phase.cpu.ms_per_order.get("harness")? * 1000.0)));
        let dear = costs.filter(|(_, us)| *us > most_us);
        dear.map(|(phase, us)| format!("{}: {us:.1} µs of CPU per order, at most {most_us}", phase.name)).collect()
    }
}

/// A phase in a few lines.
pub(crate) fn phase_text(report: &PhaseReport) -> String {
    let (counted, latency, cpu) = (&report.counted, report.counted.latency_ms, &report.cpu);
    let mut text = String::new();
    let mut line = |label: &str, what: String| {
        // Writing to a string cannot fail.
        let _infallible = writeln!(text, "  {label:<13}{what}");
    };
    line(&report.name, String::new());
    line("  orders", format!("{} /s, {} answered 201 in all", thousands(counted.orders_per_s), counted.orders));
    let ms = |of: f64| format!("{of:.1} ms");
    line("  latency", format!("p50 {}  p99 {}  max {}", ms(latency.p50), ms(latency.p99), ms(latency.max)));
    if report.open_rate_per_s.is_some() {
        let (lag, ticker) = (counted.send_lag_ms, counted.ticker_lag_ms);
        let send = format!("p50 {}  p99 {}  max {}", ms(lag.p50), ms(lag.p99), ms(lag.max));
        line("  send lag", format!("{send}  (the ticker's part: p99 {})", ms(ticker.p99)));
        line("  dropped", counted.dropped.to_string());
    }
    let errors: Vec<_> = counted.errors.iter().map(|(ended, count)| format!("{ended}: {count}")).collect();
    let errors = if errors.is_empty() { "none".to_owned() } else { errors.join(", ") };
    line("  errors", format!("{errors}; {} unanswered", counted.unanswered));
    let parts: Vec<_> = cpu.ms_per_order.iter().map(|(name, ms)| format!("{name} {ms:.3}")).collect();
    line("  CPU/order", format!("{:.3} ms = {}", cpu.ms_per_order_total, parts.join(" + ")));
    let machine = format!("{:.0} % busy, {:.0} % with other things", cpu.machine_busy_percent, cpu.others_percent);
    line("  machine", format!("{machine}, {:.1} % stolen", cpu.stolen_percent));
    if let Some(books) = report.books {
        let word = if books.agrees() { "agree" } else { "DO NOT AGREE" };
        let told = format!("{} answered, {} orders", books.answered, books.orders_in_database);
        line("  books", format!("{told}, {} captures: {word}", books.captures_at_gateway));
    }
    text
}

/// All sides beside each other; with two or more, the last one against the first.
pub(crate) fn table(report: &Report) -> String {
    let mut text = String::new();
    let compared = report.sides.len() > 1;
    let mut row = |label: &str, cells: Vec<String>, ratio: Option<f64>| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>18}")).collect();
        let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:>9.2}x"));
        let _infallible = writeln!(text, "{label:<34}{cells}{ratio}");
    };
    row("", report.sides.iter().map(|side| side.name.clone()).collect(), None);
    let phases = report.sides.iter().map(|side| side.phases.len()).min().unwrap_or(0);
    for number in 0..phases {
        let phases: Vec<&PhaseReport> = report.sides.iter().map(|side| &side.phases[number]).collect();
        row(&phases[0].name, Vec::new(), None);
        for (label, value, decimals) in figures(phases[0]) {
            let values: Vec<f64> = phases.iter().map(|phase| value(phase)).collect();
            let ratio = match (values.first(), values.last()) {
                (Some(first), Some(last)) if compared && *first > 0.0 => Some(last / first),
                _ => None,
            };
            row(&format!("  {label}"), values.iter().map(|value| format!("{value:.decimals$}")).collect(), ratio);
        }
    }
    text
}

type Figure = Box<dyn Fn(&PhaseReport) -> f64>;

/// The rows of a phase: label, value, decimals.
fn figures(phase: &PhaseReport) -> Vec<(String, Figure, usize)> {
    fn figure(label: &str, value: impl Fn(&PhaseReport) -> f64 + 'static, decimals: usize) -> (String, Figure, usize) {
        (label.to_owned(), Box::new(value), decimals)
    }
    let mut rows = vec![
        figure("orders/s", |phase| phase.counted.orders_per_s, 0),
        figure("latency p50, ms", |phase| phase.counted.latency_ms.p50, 1),
        figure("latency p99, ms", |phase| phase.counted.latency_ms.p99, 1),
        figure("latency max, ms", |phase| phase.counted.latency_ms.max, 1),
    ];
    if phase.open_rate_per_s.is_some() {
        rows.push(figure("dropped", |phase| phase.counted.dropped as f64, 0));
    }
    rows.push(figure("CPU ms/order", |phase| phase.cpu.ms_per_order_total, 3));
    for &name in phase.cpu.ms_per_order.keys() {
        let value = move |phase: &PhaseReport| phase.cpu.ms_per_order.get(name).copied().unwrap_or(0.0);
        rows.push(figure(&format!("  {name}"), value, 3));
    }
    rows
}

/// 12345.6 is `12,346`.
fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
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
    fn the_table_compares_the_last_side_with_the_first() {
        let side = |name: &str, rate| Side {
            name: name.to_owned(),
            phases: vec![phase_report(rate, Loop::Closed), phase_report(rate, Loop::Open { rate_per_s: 3500 })],
        };
        let report = Report {
            connections: 1,
            seconds: 1.0,
            warmup_seconds: 1.0,
            processors: 2,
            sides: vec![side("batch limit 1", 1400.0), side("batch limit 256", 4900.0)],
        };
        let text = table(&report);
        assert!(text.contains("batch limit 1") && text.contains("open loop at 3500/s"), "{text}");
        let rates = text.lines().find(|line| line.contains("orders/s")).unwrap();
        assert!(rates.contains("1400") && rates.contains("4900") && rates.ends_with("3.50x"), "{rates}");
        assert_eq!(text.matches("dropped").count(), 1, "nothing can be dropped in a closed loop");
    }

    #[test]
    fn thousands_are_separated() {
        assert_eq!([0.0, 999.4, 1000.0, 1_234_567.0].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn books_agree_only_when_all_three_do() {
        let books = BooksCheck { answered: 7, orders_in_database: 7, captures_at_gateway: 7 };
        assert!(books.agrees());
        assert!(!BooksCheck { orders_in_database: 8, ..books }.agrees());
        assert!(!BooksCheck { captures_at_gateway: 8, ..books }.agrees());
    }
}
