//! What a run found, for people. Question: what does grouping commits buy, in one table?

use std::fmt::Write as _;

use crate::report::{PhaseReport, Report};

/// A phase in a few lines.
pub(crate) fn phase(report: &PhaseReport) -> String {
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
mod tests {
    use super::*;
    use crate::{
        drive::Loop,
        report::{Side, tests::phase_report},
    };

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
            build: "release",
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
}
