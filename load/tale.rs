//! What was found, for people. Question: what does a terminal show of a run and of a comparison?

use std::fmt::Write as _;

use crate::found::{Compared, Curve, ModeFound, Offending};

const LABEL: usize = 26;
const CELL: usize = 12;

/// What every figure below depends on.
pub(crate) fn setting(compared: &Compared) -> String {
    let Compared { seed, fate_hash, machine, build, version, rate_per_s, warmup_s, seconds, arrivals, .. } = compared;
    let mut text = format!(
        "load {version}, {build} build, {machine}\n{rate_per_s} taps/s, {arrivals}, {warmup_s} s of warm-up and {seconds} s \
         measured; seed {seed}, fate {fate_hash}\n"
    );
    let faults: Vec<_> = compared.faults().map(|(name, chance)| format!("{name} {:.1} %", chance * 100.0)).collect();
    let faults = if faults.is_empty() { "without faults".to_owned() } else { faults.join(", ") };
    line(&mut text, format_args!("network: {faults}"));
    if compared.time_scale > 1 {
        let times = compared.time_scale;
        line(&mut text, format_args!("TIME SCALE {times}: the clients' waits are {times} times shorter than in life"));
    }
    text
}

/// One client.
pub(crate) fn mode(found: &ModeFound) -> String {
    let judged = &found.judged;
    let mut text = format!("{}\n", found.mode);
    let mut row = |name: &str, value: String| line(&mut text, format_args!("  {name:<LABEL$} {value}"));
    let (offered, achieved) = (found.offered_per_s, found.achieved_per_s);
    row("taps", format!("{} at {offered:.0}/s, {achieved:.0}/s achieved, {} dropped", judged.intents, found.dropped));
    row(
        "attempts",
        format!(
            "{}, {} with a key; {} replays, {} told to wait, {} timed out unforeseen",
            found.attempts, found.requests_with_key, found.replays, found.conflicts, found.timed_out
        ),
    );
    row("orders", format!("{} for {} intents", judged.orders, judged.intents));
    row(
        "duplicate orders",
        format!(
            "{}; of decided fates {}, {} foreseen, difference {}",
            judged.duplicate_orders,
            judged.duplicate_orders_decided(),
            judged.predicted_duplicate_orders,
            judged.difference()
        ),
    );
    if judged.raced > 0 {
        row(
            "  of races",
            format!(
                "{} of {} intents, {} to {} by what was sent",
                judged.duplicate_orders_of_races,
                judged.raced,
                judged.duplicate_orders_of_races_least,
                judged.duplicate_orders_of_races_most
            ),
        );
    }
    row("duplicate charges", judged.duplicate_charges.to_string());
    row("lost / orphans / stuck", format!("{} / {} / {}", judged.lost_orders, judged.orphan_charges, found.stuck_keys));
    row("charged untold / missed", format!("{} / {}", judged.charged_untold, judged.missed_sales));
    row(
        "deliveries repeated",
        format!("{}; {} orders in the ledger, {} mails", found.repeated_deliveries, found.booked_orders, found.mails),
    );
    row("first attempt", curve(&found.first_attempt_ms));
    row("replay", curve(&found.replay_ms));
    row("tap to outcome", curve(&found.tap_to_outcome_ms));
    row("send lag", curve(&found.send_lag_ms));
    row("CPU ms per order", cpu(found));
    let audit: Vec<_> = found.audit.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    row("audit", if audit.is_empty() { "clean".to_owned() } else { audit.join(", ") });
    for offending in &judged.offending {
        text.push_str(&offence(offending));
    }
    text
}

fn offence(Offending { why, story }: &Offending) -> String {
    let mut text = format!("  intent {}: {why}\n", story.intent);
    for made in &story.attempts {
        let key = made.key.as_deref().unwrap_or("none");
        line(
            &mut text,
            format_args!(
                "    {:8.3} s  touch {} attempt {} key {key}: {}, heard \"{}\" after {:.3} s",
                made.began_s, made.touch, made.attempt, made.fate, made.heard, made.took_s
            ),
        );
    }
    for order in &story.orders {
        line(&mut text, format_args!("    {:8.3} s  order {}", order.at_s, order.id));
    }
    line(&mut text, format_args!("    the customer believes: {}; {} captures", story.belief, story.captures));
    text
}

/// All clients, a column each.
pub(crate) fn side_by_side(compared: &Compared) -> String {
    let mut text = String::new();
    let mut row = |name: &str, cell: &dyn Fn(&ModeFound) -> String| {
        let cells: String = compared.modes.iter().map(|found| format!(" {:>CELL$}", cell(found))).collect();
        line(&mut text, format_args!("{name:<LABEL$}{cells}"));
    };
    row("", &|found| found.mode.clone());
    row("intents", &|found| found.judged.intents.to_string());
    row("orders", &|found| found.judged.orders.to_string());
    row("duplicate orders", &|found| found.judged.duplicate_orders.to_string());
    row("  foreseen", &|found| found.judged.predicted_duplicate_orders.to_string());
    row("duplicate charges", &|found| found.judged.duplicate_charges.to_string());
    row("lost orders", &|found| found.judged.lost_orders.to_string());
    row("orphan charges", &|found| found.judged.orphan_charges.to_string());
    row("stuck keys", &|found| found.stuck_keys.to_string());
    row("missed sales", &|found| found.judged.missed_sales.to_string());
    row("charged untold", &|found| found.judged.charged_untold.to_string());
    row("requests with a key", &|found| found.requests_with_key.to_string());
    row("replays", &|found| found.replays.to_string());
    row("first attempt p50, ms", &|found| format!("{:.1}", found.first_attempt_ms_p50));
    row("first attempt p99, ms", &|found| format!("{:.1}", found.first_attempt_ms_p99));
    row("CPU ms per order", &|found| format!("{:.3}", found.cpu_ms_per_order.values().sum::<f64>()));
    row("valid", &|found| if found.valid { "yes".to_owned() } else { "NO".to_owned() });
    if let Some(same) = compared.none_doubles_as_per_attempt {
        let said = if same { "the very same purchases: the header changed nothing" } else { "DIFFERENT purchases" };
        line(&mut text, format_args!("\nnone and per-attempt doubled {said}"));
    }
    text
}

fn curve(curve: &Curve) -> String {
    if curve.count == 0 {
        return "-".to_owned();
    }
    let Curve { count, p50, p99, p999, max, .. } = curve;
    format!("p50 {p50:.1} ms, p99 {p99:.1} ms, p99.9 {p999:.1} ms, max {max:.1} ms of {count}")
}

fn cpu(found: &ModeFound) -> String {
    let each = found.cpu_ms_per_order.iter().map(|(name, ms)| format!("{name} {ms:.3}"));
    let total: f64 = found.cpu_ms_per_order.values().sum();
    format!("{total:.3}: {}", each.collect::<Vec<_>>().join(", "))
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{what}");
}
