//! `load worked-example`: the story that is told in every interview, with figures. Question: is it true on this machine?
//!
//! Phones buy at a peak of 3,000 orders per second and give an answer up after 10 s; 0.4 % of answers are lost after the order
//! was placed. First nobody has keys. Then there are keys. Then the bug that shipped anyway: a new key with every retry. And the
//! fix, one line in the client. All four meet the same network.

use std::{fmt::Write as _, process::ExitCode};

use checkout::phone::Mode;
use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::{
    compare::Comparison,
    found::{Compared, ModeFound},
    run::OutcomeArgs,
    tale,
    trial::TrialArgs,
    week::{Week, duplicates_per_s},
};

pub(crate) const WORKED_EXAMPLE_HELP: &str = "\
Examples:
  load worked-example
  load worked-example --rate 500 --seconds 20 --time-scale 5    # in two minutes, on a slower machine

Exit code: 0 every promise held, 1 the audit found something, 2 --expect-p99-ms missed, 3 the figures mean nothing.";

const PEAK_PER_S: f64 = 3000.0;
const COLUMN: usize = 34;

#[derive(Debug, Args)]
pub(crate) struct WorkedExampleArgs {
    /// Taps due per second: the peak of the story, or what this machine can take.
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// How long each act is measured, in seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Everything that chance decides.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Divides the clients' own waits, never the server's work.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    time_scale: u32,
    #[command(flatten)]
    outcome: OutcomeArgs,
}

/// In the order in which it happened.
const ACTS: [(Mode, &str); 4] = [
    (
        Mode::None,
        "Without keys. A phone that hears nothing asks again, and nobody can tell that from another purchase.",
    ),
    (Mode::PerIntent, "With keys. The phone makes one for the purchase and sends it with every attempt."),
    (
        Mode::PerAttempt,
        "The bug that shipped anyway. The header is there, the server is right, and each attempt has a new key.",
    ),
    (
        Mode::PerTap,
        "The fix, one line in the client: the key is made when the button is tapped, not when a request is.",
    ),
];

pub(crate) async fn worked_example(args: WorkedExampleArgs, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    let trial = TrialArgs::of_the_story(args.rate, args.seconds, args.seed, args.time_scale);
    let mut compared = trial.compared();
    print!("{}", tale::setting(&compared));
    let mut comparison = Comparison::default();
    for (act, (mode, tells)) in (1..).zip(ACTS) {
        println!("\n{act}. {tells}");
        let found = comparison.run(&trial, mode, &stop).await?;
        println!("{}", in_one_line(found));
    }
    comparison.end(&mut compared);
    print!("\n{}\n", beside_the_story(&compared));
    args.outcome.publish(&compared)
}

fn in_one_line(found: &ModeFound) -> String {
    let judged = &found.judged;
    format!(
        "   {} purchases, {} orders: {} charged twice ({} foreseen from the seed); {} of {} requests had a key, {} were replayed",
        judged.intents,
        judged.orders,
        judged.duplicate_charges,
        judged.predicted_duplicate_orders,
        found.requests_with_key,
        found.attempts,
        found.replays
    )
}

/// What the story says, and what was found here.
fn beside_the_story(compared: &Compared) -> String {
    let mut text = String::new();
    let mut row = |what: &str, says: &str, here: String| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{what:<44} {says:<COLUMN$} {here}");
    };
    row("", "the story", "here".to_owned());
    let of = |mode: Mode| compared.modes.iter().find(|found| found.mode == mode.name());
    let (Some(none), Some(keys)) = (of(Mode::None), of(Mode::PerIntent)) else { return text };
    let (Some(bug), Some(fixed)) = (of(Mode::PerAttempt), of(Mode::PerTap)) else { return text };
    // At another rate than the story's, the same share of its peak.
    let at_peak = duplicates_per_s(compared, none) * PEAK_PER_S / f64::from(compared.rate_per_s);
    let week = Week::of(at_peak);

    row("orders per second at peak", "3,000", format!("{:.0}", none.achieved_per_s));
    let share = 100.0 * none.judged.duplicate_orders as f64 / none.judged.intents.max(1) as f64;
    row("placed, and the answer lost", "0.4 %", format!("{share:.2} % of purchases were doubled by it"));
    row("duplicate orders per second at peak", "12", format!("{at_peak:.1}"));
    row(
        "  a week of it",
        "roughly 1 million",
        format!("{:.2} million with an hour a day at peak and 23 at a tenth", week.flash / 1e6),
    );
    row("", "", format!("{:.2} million if every hour were the peak", week.constant / 1e6));
    row("with keys: duplicates", "none", keys.judged.duplicate_orders.to_string());
    row("  retries of a placed order", "the original 201 again", format!("{} replays", keys.replays));
    row("the bug: requests with a key", "all", format!("{} of {}", bug.requests_with_key, bug.attempts));
    let same = if compared.none_doubles_as_per_attempt == Some(true) { "the very same ones" } else { "OTHER ones" };
    row(
        "  duplicate rate",
        "did not move",
        format!("{} against {}: {same}", bug.judged.duplicate_orders, none.judged.duplicate_orders),
    );
    row("the fix: duplicates", "none", fixed.judged.duplicate_orders.to_string());
    let cpu = |found: &ModeFound| found.cpu_ms_per_order.values().sum::<f64>();
    row(
        "what keys cost",
        "an extra write and an extra read",
        format!("{:.3} ms of CPU per order, {:.3} without", cpu(keys), cpu(none)),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_of_which_an_act_is_missing_has_no_figures() {
        let nothing = TrialArgs::of_the_story(3000, 1, 42, 1).compared();
        assert_eq!(beside_the_story(&nothing).lines().count(), 1);
    }
}
