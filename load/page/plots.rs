//! Which figures are drawn, and how.

use super::chart::{Axis, Scale, Series, bars, dots, lines, log_ticks, round_ticks, stacked};
use crate::{
    figures::{ms, whole},
    found::{Compared, Curve, ModeFound},
};

/// A picture with its title, and a sentence on what is to be seen.
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) says: String,
    pub(super) svg: String,
}

pub(super) fn all(found: &Compared) -> Vec<Plot> {
    [over_time(found), expected(found), gaps(found), latencies(found), by_second(found), cpu(found)]
        .into_iter()
        .flatten()
        .collect()
}

/// Of the page's style: a client has its colour everywhere.
fn class(mode: &ModeFound) -> String {
    let known = ["none", "per-attempt", "per-tap", "per-intent", "never-retry", "sticky"];
    known.iter().position(|name| *name == mode.mode).map_or_else(|| "m9".to_owned(), |place| format!("m{place}"))
}

fn series(mode: &ModeFound, points: Vec<(f64, f64)>) -> Series {
    // What lies upon another line must let it be seen.
    Series { name: mode.mode.clone(), class: class(mode), dashed: mode.mode == "per-attempt", points }
}

fn most(series: &[Series], of: fn(&(f64, f64)) -> f64) -> f64 {
    series.iter().flat_map(|one| one.points.iter().map(of)).fold(0.0, f64::max)
}

fn linear<'a>(label: &'a str, most: f64, named: fn(f64) -> String) -> Axis<'a> {
    let ticks = round_ticks(most, named);
    let to = ticks.last().map_or(1.0, |(tick, _)| *tick);
    Axis { label, scale: Scale::Linear, from: 0.0, to, ticks }
}

fn over_time(found: &Compared) -> Option<Plot> {
    let doubled = |mode: &ModeFound| {
        let mut sum = 0;
        let mut points = vec![(0.0, 0.0)];
        for (second, count) in mode.judged.duplicates_by_second.iter().enumerate() {
            sum += count;
            points.push((second as f64 + 1.0, sum as f64));
        }
        series(mode, points)
    };
    let all: Vec<Series> = found.modes.iter().map(doubled).collect();
    if most(&all, |point| point.1) == 0.0 {
        return None;
    }
    let (across, up) = (
        linear("seconds since the start", most(&all, |point| point.0), whole),
        linear("duplicate orders so far", most(&all, |point| point.1), whole),
    );
    let same = match found.none_doubles_as_per_attempt {
        Some(true) => {
            " The dashed line of the client with a new key per attempt lies upon that of the client without keys."
        }
        _ => "",
    };
    Some(Plot {
        title: "Duplicates over time".to_owned(),
        says: format!("Orders beyond the first of a purchase, added up.{same}"),
        svg: lines("Duplicate orders over time, by client", &across, &up, &all),
    })
}

/// What chance alone lets one expect, what the seed foretells, and what was found.
fn expected(found: &Compared) -> Option<Plot> {
    let answer_lost = found.network.get("answer_lost").copied().unwrap_or_default();
    let others = found.network.iter().filter(|(name, _)| !matches!(name.as_str(), "answer_lost" | "request_lost"));
    if others.map(|(_, chance)| chance).sum::<f64>() > 0.0 || !(0.0..0.5).contains(&answer_lost) || answer_lost == 0.0 {
        return None;
    }
    let doubling: Vec<&ModeFound> =
        found.modes.iter().filter(|mode| matches!(mode.mode.as_str(), "none" | "per-attempt")).collect();
    let first = doubling.first()?;
    // A geometric number of lost answers for each purchase: mean p/(1-p), variance p/(1-p)².
    let intents = first.judged.intents as f64;
    let mean = intents * answer_lost / (1.0 - answer_lost);
    let spread = 1.96 * (intents * answer_lost).sqrt() / (1.0 - answer_lost);
    let each: Vec<_> = doubling
        .iter()
        .map(|mode| {
            let judged = &mode.judged;
            format!("{}: {} found, {} foreseen", mode.mode, judged.duplicate_orders, judged.predicted_duplicate_orders)
        })
        .collect();
    let rows: Vec<_> =
        doubling.iter().map(|mode| (mode.mode.clone(), class(mode), mode.judged.duplicate_orders as f64)).collect();
    let least = rows.iter().map(|row| row.2).fold(mean - 2.0 * spread, f64::min).max(0.0);
    let most = rows.iter().map(|row| row.2).fold(mean + 2.0 * spread, f64::max);
    let ticks = round_ticks(most - least, whole);
    let step = ticks.get(1).map_or(1.0, |tick| tick.0);
    let from = (least / step).floor() * step;
    let ticks = ticks.into_iter().map(|(tick, _)| (from + tick, whole(from + tick)));
    let across = Axis { label: "duplicate orders", scale: Scale::Linear, from, to: most, ticks: ticks.collect() };
    Some(Plot {
        title: "Expected and found".to_owned(),
        says: format!(
            "Chance alone lets one expect {:.0} ± {:.0} on {} purchases. {}.",
            mean,
            spread,
            whole(intents),
            each.join("; ")
        ),
        svg: dots(
            "Duplicates expected by chance, and found",
            &across,
            ((mean - spread).max(from), mean + spread),
            &rows,
        ),
    })
}

fn gaps(found: &Compared) -> Option<Plot> {
    let bin_s = found.modes.first()?.judged.gap_bin_ms / 1000.0;
    let of = |mode: &ModeFound| {
        let bins = mode.judged.duplicate_gaps.iter().enumerate();
        series(mode, bins.map(|(bin, count)| (bin as f64 * bin_s, *count as f64)).collect())
    };
    let all: Vec<Series> = found.modes.iter().filter(|mode| mode.judged.duplicate_orders > 0).map(of).collect();
    if all.is_empty() {
        return None;
    }
    let timeout_s = found.client_timeout_ms / 1000.0;
    let (across, up) = (
        linear("seconds between an order and its duplicate", most(&all, |point| point.0), |tick| format!("{tick:.0}")),
        linear("duplicates", most(&all, |point| point.1), whole),
    );
    Some(Plot {
        title: "The bug's fingerprint".to_owned(),
        says: format!(
            "How long after an order its duplicate was made. A spike just behind the client's time-out of {timeout_s:.1} s says \
             that somebody above the network asks again under another name."
        ),
        svg: bars("Gap between duplicate orders", &across, &up, &all, Some((timeout_s, "client time-out"))),
    })
}

fn latencies(found: &Compared) -> Option<Plot> {
    // By how rare it is: one in ten, in a hundred, in a thousand, each as far from the one before.
    let rare = |share: f64| 1.0 / (1.0 - share).max(1e-5);
    let points = |curve: &Curve| -> Vec<(f64, f64)> {
        curve.points.iter().filter(|(_, ms)| *ms > 0.0).map(|(share, ms)| (rare(*share), *ms)).collect()
    };
    let mut all = Vec::new();
    for mode in &found.modes {
        all.push(Series { dashed: false, ..series(mode, points(&mode.first_attempt_ms)) });
        let outcome = series(mode, points(&mode.tap_to_outcome_ms));
        all.push(Series { name: String::new(), dashed: true, ..outcome });
    }
    all.retain(|one| !one.points.is_empty());
    let slowest = most(&all, |point| point.1);
    if slowest == 0.0 {
        return None;
    }
    let quickest = all.iter().flat_map(|one| one.points.iter().map(|point| point.1)).fold(slowest, f64::min);
    let ticks = [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (0.9999, "p99.99")];
    let across = Axis {
        label: "share of attempts, by how rare the rest is",
        scale: Scale::Log,
        from: 1.0,
        to: 100_000.0,
        ticks: ticks.into_iter().map(|(share, name)| (rare(share), name.to_owned())).collect(),
    };
    let ticks = log_ticks(quickest, slowest, ms);
    let (from, to) = (ticks.first().map_or(1.0, |tick| tick.0), ticks.last().map_or(10.0, |tick| tick.0));
    let up = Axis { label: "milliseconds", scale: Scale::Log, from, to: to.max(from * 10.0), ticks };
    Some(Plot {
        title: "How long it took".to_owned(),
        says: "Solid: a first attempt, from the moment its tap was due. Dashed: from the tap to the outcome, all waits included; \
               its steps are the clients' time-outs."
            .to_owned(),
        svg: lines("Latency by percentile", &across, &up, &all),
    })
}

fn by_second(found: &Compared) -> Option<Plot> {
    let of = |mode: &ModeFound| {
        let seconds = mode.seconds.iter().map(|second| (second.second as f64, second.p99_ms)).collect();
        Series { dashed: false, ..series(mode, seconds) }
    };
    let all: Vec<Series> = found.modes.iter().map(of).filter(|one| !one.points.is_empty()).collect();
    if all.is_empty() {
        return None;
    }
    let (across, up) = (
        linear("seconds since the start", most(&all, |point| point.0), whole),
        linear("p99 of first attempts, milliseconds", most(&all, |point| point.1), whole),
    );
    Some(Plot {
        title: "Second by second".to_owned(),
        says: "The 99th percentile of first attempts, by the second in which their tap was due.".to_owned(),
        svg: lines("p99 of first attempts over time", &across, &up, &all),
    })
}

fn cpu(found: &Compared) -> Option<Plot> {
    let rows: Vec<_> = found
        .modes
        .iter()
        .map(|mode| (mode.mode.clone(), mode.cpu_ms_per_order.iter().map(|(name, ms)| (name.clone(), *ms)).collect()))
        .collect();
    if found.modes.iter().all(|mode| mode.cpu_ms_per_order.is_empty()) {
        return None;
    }
    Some(Plot {
        title: "What an order cost".to_owned(),
        says: "CPU time by process, the phones among them.".to_owned(),
        svg: stacked("CPU per order by process", "ms", &rows),
    })
}
