//! The table as people read it.

use std::io::Write;

use super::{Seen, rows::Trial};

/// A row as it ended: what was seen, or why it failed.
pub(super) type Outcome = Result<Seen, String>;

/// Prints it past the test harness, which keeps the words of a test that passed to itself.
pub(super) fn print(rows: &[(Trial, Outcome, f64)], seconds: f64) {
    let mut lines = vec![heading()];
    lines.extend(rows.iter().map(|(trial, outcome, seconds)| cells(trial, outcome, *seconds)));
    let widths: Vec<usize> =
        (0..heading().len()).map(|n| lines.iter().map(|line| line[n].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::from("\n");
    for line in &lines {
        let padded: Vec<String> = line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    for (trial, outcome, _) in rows {
        if let Err(why) = outcome {
            text.push_str(&format!("\n{}: {why}\n", trial.name()));
        }
    }
    let failed = rows.iter().filter(|(_, outcome, _)| outcome.is_err()).count();
    text.push_str(&format!(
        "\ncrash matrix: {} trials, {} with the fault seen and every promise kept, {failed} failed, {seconds:.0} s\n",
        rows.len(),
        rows.len() - failed
    ));
    let _stdout_is_gone = std::io::stdout().write_all(text.as_bytes());
}

const COLUMNS: usize = 15;

fn heading() -> [String; COLUMNS] {
    [
        "where",
        "what",
        "fired",
        "first answer",
        "attempts",
        "end",
        "orders",
        "charges",
        "captured",
        "events",
        "in log",
        "booked",
        "mails",
        "recognised",
        "s",
    ]
    .map(str::to_owned)
}

fn cells(trial: &Trial, outcome: &Outcome, seconds: f64) -> [String; COLUMNS] {
    let (place, fault, seconds) = (trial.place.name(), trial.fault.name(), format!("{seconds:.1}"));
    match outcome {
        Ok(seen) => [
            place,
            fault,
            seen.fired.clone(),
            seen.first.clone(),
            seen.attempts.to_string(),
            seen.end.to_string(),
            seen.orders.to_string(),
            seen.charges.to_string(),
            seen.captures.to_string(),
            seen.events.to_string(),
            seen.delivered.in_log.to_string(),
            seen.delivered.booked.to_string(),
            seen.delivered.mails.to_string(),
            seen.delivered.recognised.to_string(),
            seconds,
        ],
        Err(_) => {
            let mut cells = std::array::from_fn(|_| "-".to_owned());
            (cells[0], cells[1], cells[2], cells[COLUMNS - 1]) = (place, fault, "FAILED".to_owned(), seconds);
            cells
        }
    }
}
