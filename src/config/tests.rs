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
            let given = |value: &str| needed.iter().map(ToString::to_string).chain([format!("--{name}={value}")]);
            for wrong in [u64::MAX.to_string(), "-1".to_owned(), "many".to_owned()] {
                role.clone().try_get_matches_from(given(&wrong)).expect_err(&format!("--{name}={wrong}"));
            }
            // Where zero switches something off, the help says so.
            let off = option.get_help().is_some_and(|help| help.to_string().contains(" 0 "));
            assert_eq!(role.clone().try_get_matches_from(given("0")).is_ok(), off, "--{name}=0");
            numbers += 1;
        }
        assert!(numbers >= 8, "only {numbers} numbers found at {}", role.get_name());
    }
}

/// What is meant to be logged some day, by somebody who looks for something else.
#[test]
fn no_role_prints_a_secret_of_its_own() {
    const URL: &str = "--database-url=postgres://me:canary-1@localhost/checkout";
    let api = ["api", URL, "--secret=canary-2", "--gateway-key=canary-3", "--webhook-secret=canary-4"];
    let worker = ["worker", URL, "--gateway-key=canary-3", "--mail-key=canary-5"];
    let console = ["console", URL, "--secret=canary-2"];
    let gateway = ["gateway", URL, "--webhook-secret=canary-4", "--webhook-url=http://me:canary-6@localhost"];
    let mail = ["mail", URL];
    let printed = [
        printed::<ApiArgs>(&api),
        printed::<WorkerArgs>(&worker),
        printed::<ConsoleArgs>(&console),
        printed::<MockGatewayArgs>(&gateway),
        printed::<MockMailArgs>(&mail),
    ];
    for args in printed {
        assert!(!args.contains("canary"), "{args}");
    }
}

fn printed<A: Args + std::fmt::Debug>(line: &[&str]) -> String {
    let given = A::augment_args(Command::new("role")).try_get_matches_from(line).unwrap();
    format!("{:?}", A::from_arg_matches(&given).unwrap())
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
