//! What somebody sees while a run goes on. Question: how far is it, and what went wrong on the way?
//!
//! A bar for a terminal; for a log a line at each tenth of the way. A line that was not simply charged is named at once.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

use super::{
    line::Line,
    say,
    till::{End, Kind},
};

#[derive(Debug)]
pub(super) struct Progress {
    total: usize,
    done: usize,
    /// Only for a terminal.
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn new(total: usize) -> Self {
        Self { total, done: 0, bar: (total > 0 && std::io::stderr().is_terminal()).then(|| bar(total)) }
    }

    pub(super) fn done(&mut self, line: &Line, end: &End) {
        self.done += 1;
        if !matches!(end.kind, Kind::ChargedNow | Kind::ChargedBefore) {
            self.say(&format!("line {}: {}: {} ({line})", line.number, end.kind.name(), end.detail));
        }
        match &self.bar {
            Some(bar) => bar.inc(1),
            None if self.done * 10 / self.total > (self.done - 1) * 10 / self.total => {
                say(&format!("{} of {} lines", self.done, self.total));
            }
            None => {}
        }
    }

    pub(super) fn end(&self, stopped: bool, given_up: bool) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let left = self.total - self.done;
        match (stopped, given_up) {
            (true, _) if left > 0 => say(&format!("stopped: {} lines were sent, {left} were not", self.done)),
            (_, true) if left > 0 => {
                say(&format!("given up: too many lines in a row without an outcome, {left} were not sent"))
            }
            _ => true,
        };
    }

    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say(line)),
            None => say(line),
        };
    }
}

fn bar(total: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} lines, {eta} left");
    let bar = ProgressBar::new(total as u64);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
