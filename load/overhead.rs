//! `load overhead`: keys off and keys on. Question: what does it cost that nobody pays twice?
//!
//! The same orders, phones and machine. One side sells without keys, as long as nobody sends twice; the other is the api as it is.

use std::process::ExitCode;

use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::{
    bench::{LoadArgs, publish, side},
    report::{Report, Side},
    setting::Setting,
    stand::{RelayFate, Sells, Stand},
    verdict::Verdict,
};

pub(crate) const OVERHEAD_HELP: &str = "\
Side one is a checkout without keys, built from the same rooms: it charges, stores and publishes as the api does, and keeps no
records. Side two is the api. The ratio is what keys cost.

Examples:
  load overhead --rate 2000 --seconds 30
  load overhead --closed
  load overhead --expect-cpu-percent 25

Exit code: 0 held, 1 the audit found something, 2 --expect-cpu-percent missed, 3 no valid figures.";

#[derive(Debug, Args)]
pub(crate) struct OverheadArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// How both sides group their commits: most requests in a transaction and, after an x, transactions at once.
    #[arg(long, default_value = "256x1", value_name = "LIMIT[xLANES]")]
    batch_limit: Setting,
    /// Exit with 2 when an order with a key costs this many percent more CPU time than one without, or more.
    #[arg(long, value_name = "N")]
    expect_cpu_percent: Option<f64>,
}

pub(crate) async fn overhead(args: OverheadArgs, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    args.load.introduce();
    eprintln!("  a stack without keys:");
    let without = Stand::stack(Sells::WithoutKeys, args.batch_limit, RelayFate::Lives, &stop).await?;
    let mut without = side(without, &args.load, &stop).await?;
    without.name = "keys off".to_owned();
    eprintln!("  a stack with keys:");
    let with = Stand::stack(Sells::WithKeys, args.batch_limit, RelayFate::Lives, &stop).await?;
    let mut with = side(with, &args.load, &stop).await?;
    with.name = "keys on".to_owned();
    let report = args.load.report(vec![without, with]);
    let verdict = match (Verdict::of(&report, None), args.expect_cpu_percent) {
        (Verdict::Held, Some(most)) => too_dear(&report, most),
        (verdict, _) => verdict,
    };
    publish(&report, &verdict, args.load.json)
}

fn too_dear(report: &Report, most_percent: f64) -> Verdict {
    let missed: Vec<_> = more(report)
        .filter(|(_, percent)| *percent > most_percent)
        .map(|(phase, percent)| format!("{phase}: keys cost {percent:.0} % more CPU, at most {most_percent} %"))
        .collect();
    if missed.is_empty() { Verdict::Held } else { Verdict::Missed(missed) }
}

/// By phase, how many percent more CPU time an order costs on the last side than on the first.
fn more(report: &Report) -> impl Iterator<Item = (&str, f64)> {
    let phases =
        |side: &'_ Side| side.phases.iter().map(|phase| (phase.name.clone(), phase.cpu.ms_per_order_total)).collect();
    let without: std::collections::BTreeMap<String, f64> = report.sides.first().map(phases).unwrap_or_default();
    let with = report.sides.last().map(|side| side.phases.as_slice()).unwrap_or_default();
    with.iter().filter_map(move |phase| {
        let without = without.get(&phase.name).copied().filter(|ms| *ms > 0.0)?;
        Some((phase.name.as_str(), (phase.cpu.ms_per_order_total / without - 1.0) * 100.0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        drive::Loop,
        report::tests::{phase_report, report},
    };

    #[test]
    fn what_keys_cost_is_the_last_side_by_the_first() {
        let (without, mut with) = (phase_report(1000.0, Loop::Closed), phase_report(1000.0, Loop::Closed));
        with.cpu.ms_per_order_total = without.cpu.ms_per_order_total * 1.25;
        let both = report(vec![("keys off", vec![without]), ("keys on", vec![with])]);
        let (phase, percent) = more(&both).next().unwrap();
        assert_eq!((phase, percent.round() as i64), ("closed loop", 25));
        assert_eq!(too_dear(&both, 26.0), Verdict::Held);
        assert!(matches!(too_dear(&both, 24.0), Verdict::Missed(reasons) if reasons[0].contains("25 %")));
        assert_eq!(more(&report(vec![])).count(), 0);
    }
}
