//! The report: one file that needs nothing but a browser. Question: what would somebody see who was not there?
//!
//! It is made from what `--json` writes and from nothing else. No script, no font and no image from elsewhere; light and dark.

mod chart; // lines and bars, as SVG
mod plots; // which figures are drawn, and how
mod sentences; // the verdict, in words
mod sequence; // one purchase, as a diagram

use askama::Template;

use crate::{
    figures,
    found::{Compared, ModeFound},
};

/// Everything that the template asks for. What is marked as safe there was made here, with every foreign word escaped.
#[derive(Template)]
#[template(path = "load_report.html")]
struct Page<'a> {
    found: &'a Compared,
    invalid: Vec<String>,
    verdicts: Vec<(String, String)>,
    rows: Vec<Row>,
    plots: Vec<plots::Plot>,
    week: Vec<[String; 4]>,
    worst: Option<plots::Plot>,
    network: String,
    command: String,
}

/// A line of the table: what is counted, and a cell for each client.
struct Row {
    label: &'static str,
    cells: Vec<String>,
}

/// The whole page.
pub(crate) fn render(found: &Compared) -> askama::Result<String> {
    Page {
        invalid: sentences::invalid(found),
        verdicts: found.modes.iter().map(|mode| (mode.mode.clone(), sentences::verdict(found, mode))).collect(),
        rows: rows(found),
        plots: plots::all(found),
        week: sentences::week(found),
        worst: worst(found),
        network: sentences::network(found),
        command: sentences::command(found),
        found,
    }
    .render()
}

/// Of the client that doubles most: the right one has no story to tell.
fn worst(found: &Compared) -> Option<plots::Plot> {
    let mode = found.modes.iter().max_by_key(|mode| mode.judged.duplicate_orders)?;
    let story = mode.judged.worst.as_ref()?;
    Some(plots::Plot {
        title: format!("One purchase of {}", mode.mode),
        says: format!(
            "Intent {}: {} attempts, {} orders, {} captures; in the end the customer believes: {}.",
            story.intent,
            story.attempts.len(),
            story.orders.len(),
            story.captures,
            story.belief
        ),
        svg: sequence::diagram(story),
    })
}

fn rows(found: &Compared) -> Vec<Row> {
    type Cell = fn(&ModeFound) -> String;
    let rows: [(&'static str, Cell); 20] = [
        ("purchases meant", |mode| figures::whole(mode.judged.intents as f64)),
        ("orders", |mode| figures::whole(mode.judged.orders as f64)),
        ("duplicate orders", |mode| figures::whole(mode.judged.duplicate_orders as f64)),
        ("foreseen from the seed", |mode| figures::whole(mode.judged.predicted_duplicate_orders as f64)),
        ("Δ observed − foreseen", |mode| mode.judged.difference().to_string()),
        ("duplicate charges", |mode| figures::whole(mode.judged.duplicate_charges as f64)),
        ("lost orders", |mode| figures::whole(mode.judged.lost_orders as f64)),
        ("orphan charges", |mode| figures::whole(mode.judged.orphan_charges as f64)),
        ("stuck keys", |mode| figures::whole(mode.stuck_keys as f64)),
        ("sales missed", |mode| figures::whole(mode.judged.missed_sales as f64)),
        ("charged, and not told", |mode| figures::whole(mode.judged.charged_untold as f64)),
        ("attempts", |mode| figures::whole(mode.attempts as f64)),
        ("of them with a key", |mode| figures::whole(mode.requests_with_key as f64)),
        ("replays", |mode| figures::whole(mode.replays as f64)),
        ("deliveries repeated", |mode| figures::whole(mode.repeated_deliveries as f64)),
        ("mails sent", |mode| figures::whole(mode.mails as f64)),
        ("first attempt p50, ms", |mode| figures::ms(mode.first_attempt_ms_p50)),
        ("first attempt p99, ms", |mode| figures::ms(mode.first_attempt_ms_p99)),
        ("send lag p99, ms", |mode| figures::ms(mode.send_lag_ms_p99)),
        ("CPU per order, ms", |mode| format!("{:.3}", mode.cpu_ms_per_order.values().sum::<f64>())),
    ];
    let row = |(label, cell): (&'static str, Cell)| Row { label, cells: found.modes.iter().map(cell).collect() };
    rows.into_iter().map(row).collect()
}

/// What may stand between tags and in attributes.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests;
