//! What a run found, for people. Question: what does grouping commits buy, in one table?

use std::fmt::Write as _;

use crate::{
    figures::whole,
    measure::ON_TIME,
    report::{PhaseReport, Report, Server, Side},
};

/// How a server of ours is set.
pub(crate) fn server(server: &Server) -> String {
    let Server { setting, connections, postgresql } = server;
    let (limit, lanes) = (setting.batch_limit, setting.batch_lanes);
    let api =
        format!("batch limit {limit}, lanes {lanes} for claims and {lanes} for settling, {connections} connections");
    format!("  api: {api}; PostgreSQL {postgresql}")
}

/// A phase in a few lines.
pub(crate) fn phase(report: &PhaseReport) -> String {
    let (counted, latency, cpu) = (&report.counted, report.counted.latency_ms, &report.cpu);
    let mut text = String::new();
    let mut line = |label: &str, what: String| {
        // Writing to a string cannot fail.
        let _infallible = writeln!(text, "  {label:<13}{what}");
    };
    line(&report.name, String::new());
    line("  orders", format!("{} /s, {} answered 201 in all", whole(counted.orders_per_s), counted.orders));
    let ms = |of: f64| format!("{of:.1} ms");
    // The longest waits are those that were not waited out.
    let lost = counted.dropped + counted.unanswered;
    let but = if lost == 0 { String::new() } else { format!("  (without {} that got no answer)", whole(lost as f64)) };
    line("  latency", format!("p50 {}  p99 {}  max {}{but}", ms(latency.p50), ms(latency.p99), ms(latency.max)));
    if report.open_rate_per_s.is_some() {
        let (lag, ticker) = (counted.send_lag_ms, counted.ticker_lag_ms);
        let send = format!("p50 {}  p99 {}  max {}", ms(lag.p50), ms(lag.p99), ms(lag.max));
        line("  send lag", format!("{send}  (the ticker's part: p99 {})", ms(ticker.p99)));
        let (due, held) = (counted.due_in_window, counted.held_per_s);
        let late_ms = ON_TIME.as_millis();
        let on_time = format!("{} of {due} due were bought within {late_ms} ms of the window", counted.due_on_time);
        line("  held", format!("{} /s: {on_time}", whole(held)));
        let backlog = counted.backlog;
        let left = format!("{} queued, {} unanswered when the window ended", backlog.queued, backlog.unanswered);
        line("  backlog", format!("{left}; {} dropped", counted.dropped));
    }
    let errors: Vec<_> = counted.errors.iter().map(|(ended, count)| format!("{ended}: {count}")).collect();
    let errors = if errors.is_empty() { "none".to_owned() } else { errors.join(", ") };
    line("  errors", format!("{errors}; {} unanswered", counted.unanswered));
    let parts: Vec<_> = cpu.ms_per_order.iter().map(|(name, ms)| format!("{name} {ms:.3}")).collect();
    line("  CPU/order", format!("{:.3} ms = {}", cpu.ms_per_order_total, parts.join(" + ")));
    let machine = format!("{:.0} % busy, {:.0} % with other things", cpu.machine_busy_percent, cpu.others_percent);
    line("  machine", format!("{machine}, {:.1} % stolen", cpu.stolen_percent));
    if let Some(pipeline) = &report.pipeline {
        let (end, growth) = (pipeline.at_end, pipeline.growth_per_s);
        let behind = format!("outbox {}, ledger {}, receipts {}", end.outbox, end.ledger, end.receipts);
        let drained =
            pipeline.drained_s.map_or("NOT DELIVERED IN TIME".to_owned(), |s| format!("all delivered {s:.1} s later"));
        line(
            "  pipeline",
            format!("behind at the end: {behind} (most {}, trend {growth:+.0}/s); {drained}", pipeline.most),
        );
    }
    if let Some(books) = report.books {
        let word = if books.agrees() { "agree" } else { "DO NOT AGREE" };
        line("  books", format!("{books}: {word}"));
    }
    text
}

/// All sides beside each other; with two or more, the last one against the first.
pub(crate) fn table(report: &Report) -> String {
    let mut text = String::new();
    let mut row = |label: &str, cells: Vec<String>, ratio: Option<f64>| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>20}")).collect();
        let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:>9.2}x"));
        let line = format!("{label:<24}{cells}{ratio}");
        let _infallible = writeln!(text, "{}", line.trim_end());
    };
    row("", report.sides.iter().map(|side| side.name.clone()).collect(), None);
    let connections = |side: &Side| side.server.as_ref().map(|server| server.connections.to_string());
    if let Some(cells) = report.sides.iter().map(connections).collect() {
        row("api's connections", cells, None);
    }
    let phases = report.sides.iter().map(|side| side.phases.len()).max().unwrap_or(0);
    for number in 0..phases {
        let phases: Vec<Option<&PhaseReport>> = report.sides.iter().map(|side| side.phases.get(number)).collect();
        let Some(any) = phases.iter().flatten().next() else { continue };
        let skipped = |phase: &Option<&PhaseReport>| if phase.is_none() { "skipped".to_owned() } else { String::new() };
        row(&any.name, phases.iter().map(skipped).collect(), None);
        for (label, value, decimals) in figures(any) {
            let values: Vec<Option<f64>> = phases.iter().map(|phase| phase.map(&value)).collect();
            let cell = |value: &Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"));
            row(&format!("  {label}"), values.iter().map(cell).collect(), ratio(&values));
        }
    }
    text
}

/// The last side by the first, where there are two and both have the figure.
fn ratio(values: &[Option<f64>]) -> Option<f64> {
    match values {
        [Some(first), .., Some(last)] if *first > 0.0 => Some(last / first),
        _ => None,
    }
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
        rows.push(figure("held/s", |phase| phase.counted.held_per_s, 0));
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
#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        drive::Loop,
        report::tests::{phase_report, report},
    };

    const OPEN: Loop = Loop::Open { rate_per_s: 3500 };

    #[test]
    fn the_table_compares_the_last_side_with_the_first() {
        let phases = |rate| vec![phase_report(rate, Loop::Closed), phase_report(rate, OPEN)];
        let report = report(vec![("batch 1, lanes 8", phases(1400.0)), ("batch 256, lanes 1", phases(4900.0))]);
        let text = table(&report);
        assert!(text.contains("batch 1, lanes 8") && text.contains("open loop at 3500/s"), "{text}");
        let rates = text.lines().find(|line| line.contains("orders/s")).unwrap();
        assert!(rates.contains("1400") && rates.contains("4900") && rates.ends_with("3.50x"), "{rates}");
        assert_eq!(text.matches("dropped").count(), 1, "nothing can be dropped in a closed loop");
    }

    #[test]
    fn a_phase_that_one_side_skipped_is_shown_for_the_other_and_compared_with_nothing() {
        let grouped = vec![phase_report(4900.0, Loop::Closed), phase_report(3500.0, OPEN)];
        let plain = vec![phase_report(900.0, Loop::Closed)];
        let text = table(&report(vec![("batch 1, lanes 8", plain), ("batch 256, lanes 1", grouped)]));
        let (_, open) = text.split_once("open loop at 3500/s").unwrap();
        assert!(open.lines().next().unwrap().contains("skipped"), "{text}");
        let rates = open.lines().find(|line| line.contains("orders/s")).unwrap();
        assert!(rates.contains(" - ") && rates.ends_with("3500"), "{rates}");
    }
}
