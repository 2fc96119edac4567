//! The page over findings that were made up, the strange ones among them.

use std::collections::BTreeMap;

use super::*;
use crate::{
    found::{AttemptMade, Curve, OrderMade, Second, Story},
    judge::Judged,
    machine::Machine,
};

fn curve(count: u64, slow: f64) -> Curve {
    let points = vec![(0.0, 2.0), (0.5, 8.0), (0.9, 20.0), (0.99, 60.0), (0.999, slow), (1.0, slow * 1.5)];
    Curve { count, p50: 8.0, p90: 20.0, p99: 60.0, p999: slow, max: slow * 1.5, points }
}

fn mode(name: &str, duplicates: u64) -> ModeFound {
    let each_second = duplicates / 60;
    let mut gaps = vec![0; 121];
    gaps[20] = duplicates * 9 / 10;
    gaps[21] = duplicates - gaps[20];
    let attempt = |attempt, fate: &str, heard: &str, began_s| AttemptMade {
        touch: 1,
        attempt,
        key: (name != "none").then(|| format!("key-{attempt}")),
        fate: fate.to_owned(),
        heard: heard.to_owned(),
        began_s,
        took_s: if fate == "Answered" { 0.02 } else { 10.0 },
    };
    ModeFound {
        mode: name.to_owned(),
        valid: true,
        invalid_because: vec![],
        broken_promises: vec![],
        judged: Judged {
            intents: 180_000,
            orders: 180_000 + duplicates,
            captures: 180_000 + duplicates,
            duplicate_orders: duplicates,
            predicted_duplicate_orders: duplicates,
            duplicate_charges: duplicates,
            duplicates_by_second: (0..60).map(|second| each_second + second % 3).collect(),
            duplicate_gaps: gaps,
            gap_bin_ms: 500.0,
            worst: Some(Story {
                intent: 7,
                belief: "paid".to_owned(),
                attempts: vec![
                    attempt(1, "RequestLost", "no answer: no answer in time", 1.0),
                    attempt(2, "AnswerLost", "no answer: no answer in time", 11.3),
                    attempt(3, "Answered", "201", 22.0),
                ],
                orders: vec![
                    OrderMade { id: "one".to_owned(), at_s: 11.31 },
                    OrderMade { id: "two".to_owned(), at_s: 22.01 },
                ],
                captures: 2,
            }),
            ..Judged::default()
        },
        stuck_keys: 0,
        attempts: 181_800,
        requests_with_key: if name == "none" { 0 } else { 181_800 },
        replays: 729,
        conflicts: 0,
        timed_out: 0,
        dropped: 0,
        heard: BTreeMap::from([("201".to_owned(), 180_000)]),
        repeated_deliveries: 12,
        booked_orders: 180_000,
        mails: 180_000,
        audit: BTreeMap::new(),
        offered_per_s: 3000.0,
        achieved_per_s: 3000.0,
        send_lag_ms_p99: 1.2,
        first_attempt_ms_p50: 8.0,
        first_attempt_ms_p99: 60.0,
        send_lag_ms: curve(180_000, 2.0),
        first_attempt_ms: curve(180_000, 90.0),
        replay_ms: curve(700, 40.0),
        tap_to_outcome_ms: curve(180_000, 10_100.0),
        cpu_ms_per_order: ["api", "gateway", "harness", "mail", "postgres", "worker"]
            .map(|name| (name.to_owned(), 0.08))
            .into(),
        seconds: (5..65).map(|second| Second { second, answered: 3000, p50_ms: 8.0, p99_ms: 50.0 }).collect(),
    }
}

fn compared(modes: Vec<ModeFound>) -> Compared {
    Compared {
        seed: 42,
        fate_hash: "19e1a04f1b4be80b".to_owned(),
        machine: Machine { processor: "A Processor".to_owned(), processors: 2, kernel: "Linux 6.1".to_owned() },
        build: "release".to_owned(),
        version: "0.1.0".to_owned(),
        rate_per_s: 3000,
        warmup_s: 5,
        seconds: 60,
        arrivals: "even".to_owned(),
        network: BTreeMap::from([("answer_lost".to_owned(), 0.004), ("request_lost".to_owned(), 0.006)]),
        manual_retap: 0.0,
        time_scale: 1,
        client_timeout_ms: 10_000.0,
        modes,
        none_doubles_as_per_attempt: None,
    }
}

fn four() -> Compared {
    let modes = vec![mode("none", 732), mode("per-attempt", 732), mode("per-intent", 0), mode("never-retry", 0)];
    Compared { none_doubles_as_per_attempt: Some(true), ..compared(modes) }
}

/// What holds for every page.
#[track_caller]
fn assert_sound(page: &str) {
    for foreign in ["http://", "https://", "<script", "NaN", "inf\"", "inf,", ">inf"] {
        assert!(!page.contains(foreign), "{foreign} is in it");
    }
    let count = |text: &str| page.matches(text).count();
    assert_eq!((count("<svg"), count("<figure>")), (count("</svg>"), count("</figure>")));
    assert!(page.len() < 500_000, "{} bytes", page.len());
}

#[test]
fn a_comparison_says_what_it_costs_to_keep_a_key_badly() {
    let page = render(&four()).unwrap();
    assert_sound(&page);
    for said in [
        "732 extra orders on 180,000 purchases (732 foreseen from the seed)",
        "the header changed nothing",
        "180,000 purchases and no duplicate, 0 lost, 0 orphans, 0 stuck keys; 729 retries",
        "lies upon that of the client without keys",
        "client time-out",
        "load compare --modes none,per-attempt,per-intent,never-retry --rate 3000 --seconds 60",
    ] {
        assert!(page.contains(said), "{said} is not in it");
    }
    assert!(!page.contains("INVALID") && !page.contains("Time scale"));
    assert_eq!(page.matches("<svg").count(), 7);
}

#[test]
fn what_coincides_is_said_only_if_it_does() {
    for other in [None, Some(false)] {
        let page = render(&Compared { none_doubles_as_per_attempt: other, ..four() }).unwrap();
        assert!(!page.contains("changed nothing") && !page.contains("lies upon"), "{other:?}");
    }
}

#[test]
fn an_invalid_run_says_so_before_anything_else() {
    let mut found = four();
    found.time_scale = 10;
    found.modes[0].invalid_because = vec!["3 taps were dropped".to_owned()];
    let page = render(&found).unwrap();
    assert!(page.find("INVALID").unwrap() < page.find("extra orders").unwrap());
    assert!(page.contains("none: 3 taps were dropped") && page.contains("Time scale 10"));
}

#[test]
fn findings_of_nothing_and_hostile_words_are_shown_as_they_are() {
    assert_sound(&render(&compared(vec![])).unwrap());
    let mut nothing = mode("per-intent", 0);
    nothing.judged = Judged::default();
    for curve in [&mut nothing.first_attempt_ms, &mut nothing.tap_to_outcome_ms] {
        *curve = Curve::default();
    }
    (nothing.seconds, nothing.cpu_ms_per_order) = (vec![], BTreeMap::new());
    assert_sound(&render(&compared(vec![nothing])).unwrap());
    let mut hostile = mode("<b>none", 3);
    hostile.judged.worst.as_mut().unwrap().attempts[0].heard = "<script>\"&'".to_owned();
    let page = render(&compared(vec![hostile])).unwrap();
    assert_sound(&page);
    assert!(!page.contains("<b>none") && page.contains("&lt;script&gt;"));
}

#[test]
fn ticks_are_round_and_reach_as_far_as_the_values() {
    for most in [0.0, 0.003, 1.0, 7.0, 763.0, 195_000.0] {
        let ticks = chart::round_ticks(most, figures::whole);
        assert!((2..=12).contains(&ticks.len()) && ticks.last().unwrap().0 >= most, "{most}: {ticks:?}");
    }
    let ticks: Vec<_> = chart::log_ticks(3.0, 450.0, figures::ms).into_iter().map(|tick| tick.1).collect();
    assert_eq!(ticks, ["1.0", "10.0", "100", "1,000"]);
}
