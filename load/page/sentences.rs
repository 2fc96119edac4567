//! The verdict in words. Question: what would one say of a run in one sentence?

use crate::{
    figures::{large, whole},
    found::{Compared, ModeFound},
    week::{Week, duplicates_per_s},
};

pub(super) fn invalid(found: &Compared) -> Vec<String> {
    let reasons = |mode: &ModeFound| {
        mode.invalid_because.iter().map(|reason| format!("{}: {reason}", mode.mode)).collect::<Vec<_>>()
    };
    found.modes.iter().flat_map(reasons).collect()
}

pub(super) fn verdict(found: &Compared, mode: &ModeFound) -> String {
    let judged = &mode.judged;
    let intents = whole(judged.intents as f64);
    let mut said = if judged.duplicate_orders == 0 {
        format!(
            "{intents} purchases and no duplicate, {} lost, {} orphans, {} stuck keys; {} retries were answered with the first answer.",
            whole(judged.lost_orders as f64),
            whole(judged.orphan_charges as f64),
            whole(mode.stuck_keys as f64),
            whole(mode.replays as f64)
        )
    } else {
        let per_s = duplicates_per_s(found, mode);
        let foreseen = if judged.raced == 0 {
            format!("{} foreseen from the seed", whole(judged.predicted_duplicate_orders as f64))
        } else {
            format!(
                "{} foreseen from the seed, and {} of {} purchases that were races",
                whole(judged.predicted_duplicate_orders as f64),
                whole(judged.duplicate_orders_of_races as f64),
                whole(judged.raced as f64)
            )
        };
        format!(
            "{} extra orders on {intents} purchases ({foreseen}): {per_s:.1} per second, {} in a week with one hour a day at peak.",
            whole(judged.duplicate_orders as f64),
            large(Week::of(per_s).flash)
        )
    };
    if judged.missed_sales + judged.charged_untold > 0 {
        said.push_str(&format!(
            " {} sales were missed, and {} customers were charged without being told.",
            whole(judged.missed_sales as f64),
            whole(judged.charged_untold as f64)
        ));
    }
    if mode.mode == "per-attempt" && found.none_doubles_as_per_attempt == Some(true) {
        said.push_str(" The very same purchases as without any key: the header changed nothing.");
    }
    if !mode.broken_promises.is_empty() {
        said.push_str(&format!(" Promises broken: {}.", mode.broken_promises.join("; ")));
    }
    said
}

/// A client that doubles, and what a week of it is on three days' curves.
pub(super) fn week(found: &Compared) -> Vec<[String; 4]> {
    let doubling = found.modes.iter().filter(|mode| mode.judged.duplicate_orders > 0);
    let row = |mode: &ModeFound| {
        let week = Week::of(duplicates_per_s(found, mode));
        [mode.mode.clone(), large(week.constant), large(week.diurnal), large(week.flash)]
    };
    doubling.map(row).collect()
}

pub(super) fn network(found: &Compared) -> String {
    let faults: Vec<_> =
        found.faults().map(|(name, chance)| format!("{} {:.1} %", name.replace('_', " "), chance * 100.0)).collect();
    if faults.is_empty() { "nothing is lost".to_owned() } else { faults.join(", ") }
}

/// What makes the same figures again.
pub(super) fn command(found: &Compared) -> String {
    let modes: Vec<_> = found.modes.iter().map(|mode| mode.mode.as_str()).collect();
    let chances: Vec<_> = found.faults().map(|(name, chance)| format!("{name}={chance}")).collect();
    let profile = if chances.is_empty() { "none".to_owned() } else { chances.join(",") };
    format!(
        "load compare --modes {} --rate {} --seconds {} --warmup-seconds {} --arrivals {} --seed {} --profile {profile} --manual-retap {} --time-scale {}",
        modes.join(","),
        found.rate_per_s,
        found.seconds,
        found.warmup_s,
        found.arrivals,
        found.seed,
        found.manual_retap,
        found.time_scale
    )
}
