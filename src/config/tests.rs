//! Knobs out of range and knobs at odds are refused before anything starts.

use clap::Command;

use super::*;

/// Every option of these roles whose default is a number, whoever adds the next one.
#[test]
fn every_number_has_a_least_and_a_largest_value() {
    for role in [ApiArgs::augment_args(Command::new("api")), WorkerArgs::augment_args(Command::new("worker"))] {
        let needed = ["role", "--database-url=postgres://", "--secret=s"];
        let needed = &needed[..needed.len() - usize::from(role.get_name() == "worker")];
        role.clone().try_get_matches_from(needed).expect("the defaults are good");
        let mut numbers = 0;
        for option in role.get_arguments() {
            let usual = option.get_default_values().first().and_then(|usual| usual.to_str()?.parse::<u64>().ok());
            let (Some(_), Some(name)) = (usual, option.get_long()) else { continue };
            for wrong in ["0".to_owned(), u64::MAX.to_string(), "-1".to_owned(), "many".to_owned()] {
                let given = needed.iter().map(ToString::to_string).chain([format!("--{name}={wrong}")]);
                role.clone().try_get_matches_from(given).expect_err(&format!("--{name}={wrong}"));
            }
            numbers += 1;
        }
        assert!(numbers >= 8, "only {numbers} numbers found at {}", role.get_name());
    }
}

#[test]
fn knobs_that_contradict_each_other_are_refused_by_name() {
    let usual = Timing {
        lease_ms: 15_000,
        answer_ms: 8_000,
        gateway_budget_ms: 6_000,
        key_expiry_hours: 72,
        resend_hours: 23,
        events_kept_days: 7,
    };
    assert!(usual.clone().checked().is_ok());
    let least = Timing { lease_ms: 2_100, answer_ms: 200, gateway_budget_ms: 100, ..usual.clone() };
    assert!(least.checked().is_ok());
    for (contradicting, named) in [
        (Timing { gateway_budget_ms: 8_000, ..usual.clone() }, "gateway budget"),
        (Timing { gateway_budget_ms: 0, ..usual.clone() }, "gateway budget"),
        (Timing { lease_ms: 13_999, ..usual.clone() }, "lease"),
        (Timing { lease_ms: 0, ..usual.clone() }, "lease"),
        (Timing { lease_ms: 2_099, answer_ms: 200, gateway_budget_ms: 100, ..usual.clone() }, "to settle in"),
    ] {
        let refused = contradicting.checked().unwrap_err().to_string();
        assert!(refused.contains(named), "{refused}");
    }
}
