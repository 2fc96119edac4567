//! What somebody sees while a run goes on. Question: how far is it, and what has been seen so far?
//!
//! A bar for a terminal; for a log a line every few seconds.

use std::{
    fmt::Write as _,
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

/// Of a log.
const LINE_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Progress {
    name: String,
    total: u64,
    /// What is counted, as in "purchases ended".
    what: &'static str,
    since: Instant,
    last_line: Instant,
    /// Only for a terminal.
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(crate) fn new(name: String, total: u64, what: &'static str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| bar(&name, total));
        Self { name, total, what, since: Instant::now(), last_line: Instant::now(), bar }
    }

    pub(crate) fn show(&mut self, ended: u64, seen: &str) {
        if let Some(bar) = &self.bar {
            bar.set_position(ended);
            bar.set_message(seen.to_owned());
        } else if self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            let Self { name, total, what, since, .. } = self;
            let mut line = format!("  {name}: {} s, {ended} of {total} {what}", since.elapsed().as_secs());
            if !seen.is_empty() {
                // Writing to a string does not fail.
                let _ = write!(line, ", {seen}");
            }
            eprintln!("{line}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(name: &str, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("  {prefix} {bar:30} {pos}/{len} {elapsed} {msg}");
    let bar = ProgressBar::new(total).with_prefix(name.to_owned());
    // A template that does not parse leaves the usual style.
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
