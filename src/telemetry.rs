//! What a process says about itself, on stderr. Question: where do I read what happened?
//!
//! Lines for people by default, JSON with `CHECKOUT_LOG_FORMAT=json`; what is said follows `RUST_LOG` (default `info`).
//! Stdout stays free for answers: the address a role listens on, a minted token, a verdict.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

/// Libraries that log each connection at info, and each retry of a download as a warning, are asked to be brief.
const DEFAULT: &str = "info,sqlx=warn,hyper=warn,reqwest_retry=error";

/// Sets up logging for the life of the process. Called once, first thing in `main`.
pub fn start() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr);
    // A second subscriber in one process (a test that calls main's parts) keeps the first: nothing to report.
    let _already_set = if std::env::var("CHECKOUT_LOG_FORMAT").is_ok_and(|format| format == "json") {
        lines.json().flatten_event(true).try_init()
    } else {
        lines.compact().with_target(false).with_ansi(stderr().is_terminal()).try_init()
    };
    log_panics();
}

/// An error and its causes in one line, whatever line breaks a cause brought with it. Libraries like to say what their own
/// cause says: that is said once.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut said: Vec<String> = Vec::new();
    for cause in error.chain() {
        let cause = cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        if !said.last().is_some_and(|before| before.contains(&cause)) {
            said.push(cause);
        }
    }
    said.join(": ")
}

/// A panic in a task ends that task only, so it must at least be seen, and in the same format as everything else.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let what = panic.payload_as_str().unwrap_or("a panic without words");
        tracing::error!(place, "panicked: {what}");
    }));
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn causes_are_one_line_and_none_is_said_twice_in_a_row() {
        let error = anyhow!("Connection refused\n  (os error 111)")
            .context("error communicating: Connection refused (os error 111)")
            .context("cannot connect")
            .context("cannot connect");
        assert_eq!(one_line(&error), "cannot connect: error communicating: Connection refused (os error 111)");
    }
}
