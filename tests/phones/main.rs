//! Phones in a bad network against whole stacks, in short. Alone in a process of their own: a machine that is busy with other
//! tests answers too late, and a run whose answers come too late says itself that it means nothing.

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::{Mutex, PoisonError},
};

use serde_json::Value;

/// One at a time.
static MACHINE: Mutex<()> = Mutex::new(());
/// How often a run may say that the machine was too busy for its figures to mean anything.
const RUNS_MAX: u32 = 3;
const INVALID: i32 = 3;

fn load(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_load")).args(arguments).output().expect("load runs")
}

/// Runs it to a valid end, and returns its exit code, what it said and what it wrote.
fn found(arguments: &[&str]) -> (i32, String, Value) {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let (file, page) = (folder.path().join("found.json"), folder.path().join("page.html"));
    let outcome = ["--json", file.to_str().expect("a path"), "--report", page.to_str().expect("a path")];
    let arguments = [arguments, &outcome].concat();
    for _ in 1..RUNS_MAX {
        let ran = load(&arguments);
        if ran.status.code() != Some(INVALID) {
            return read(&ran, &file, &page);
        }
    }
    read(&load(&arguments), &file, &page)
}

fn read(ran: &Output, file: &Path, page: &Path) -> (i32, String, Value) {
    let said = [&ran.stdout[..], &ran.stderr[..]].map(String::from_utf8_lossy).join("\n");
    let written = std::fs::read(file).unwrap_or_else(|error| panic!("{error}: {said}"));
    let page = std::fs::read_to_string(page).expect("a page");
    assert!(page.contains("<svg") && page.ends_with("</html>"), "{page}");
    (ran.status.code().expect("an exit code"), said, serde_json::from_slice(&written).expect("JSON"))
}

fn mode<'a>(found: &'a Value, name: &str) -> &'a Value {
    let modes = found["modes"].as_array().expect("modes");
    modes.iter().find(|mode| mode["mode"] == name).unwrap_or_else(|| panic!("no {name} in {found}"))
}

#[track_caller]
fn assert_none(mode: &Value, counts: &[&str]) {
    for count in counts {
        assert_eq!(mode[count], 0, "{count} of {}", mode["mode"]);
    }
}

/// The subject in one test: no keys and a new key for every attempt double the very same purchases, as many as the seed says; one
/// key doubles none; and who never retries pays in other ways.
#[test]
fn clients_in_one_network_get_what_their_keys_deserve() {
    let (code, said, found) = found(&[
        "compare",
        "--rate=40",
        "--seconds=8",
        "--warmup-seconds=2",
        "--time-scale=3",
        "--manual-retap=0.5",
        "--profile=request_lost=0.05,answer_lost=0.08",
    ]);
    assert_eq!(code, 0, "{said}");

    let schema = load(&["schema"]);
    let schema = serde_json::from_slice(&schema.stdout).expect("a schema");
    let schema = jsonschema::validator_for(&schema).expect("a schema that can be checked against");
    let wrong: Vec<_> = schema.iter_errors(&found).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{wrong:?}");

    let modes = ["none", "per-attempt", "per-intent", "never-retry"].map(|name| mode(&found, name));
    let [none, per_attempt, per_intent, never] = modes;
    for mode in modes {
        assert_eq!((&mode["valid"], &mode["intents"]), (&true.into(), &400.into()), "{said}");
        assert_none(mode, &["lost_orders", "orphan_charges", "stuck_keys", "surprises", "strangers", "dropped"]);
        // At least once on the way: the relay was killed between its delivery and its mark. Once at the end, all the same.
        assert!(mode["repeated_deliveries"].as_u64() > Some(0), "{said}");
        assert_eq!((&mode["booked_orders"], &mode["mails"]), (&mode["orders"], &mode["orders"]), "{said}");
    }
    for doubling in [none, per_attempt] {
        assert!(doubling["duplicate_orders"].as_u64() > Some(10), "{said}");
        assert_eq!(doubling["duplicate_orders"], doubling["predicted_duplicate_orders"], "{said}");
        assert_eq!(doubling["duplicate_orders"], doubling["duplicate_charges"], "{said}");
    }
    assert_eq!(found["none_doubles_as_per_attempt"], true, "{said}");
    assert_eq!((&none["requests_with_key"], &per_attempt["requests_with_key"]), (&0.into(), &per_attempt["attempts"]));
    assert_none(per_intent, &["duplicate_orders", "duplicate_charges", "missed_sales", "charged_untold"]);
    // Whom the bug charged more than once, the right client was told the same again.
    assert_eq!(per_intent["replays"], per_attempt["audit"]["duplicate_order"], "{said}");
    assert_eq!(per_intent["audit"], serde_json::json!({}));
    assert!(never["missed_sales"].as_u64() > Some(0) && never["charged_untold"].as_u64() > Some(0), "{said}");
    assert_eq!(never["duplicate_orders"], never["predicted_duplicate_orders"], "{said}");
}

/// Hang-ups, resets, double sends and taps, killed apps, tunnels: who races whom is not foreseen, and still one key is one order.
#[test]
fn one_key_is_one_order_through_everything_that_can_go_wrong() {
    let (code, said, found) = found(&[
        "compare",
        "--modes=per-intent,per-tap",
        "--rate=30",
        "--seconds=8",
        "--warmup-seconds=2",
        "--time-scale=3",
        "--profile=stress",
        "--arrivals=poisson",
    ]);
    assert_eq!(code, 0, "{said}");
    let [right, per_tap] = ["per-intent", "per-tap"].map(|name| mode(&found, name));
    assert!(right["raced"].as_u64() > Some(20) && right["replays"].as_u64() > Some(20), "{said}");
    assert_none(right, &["duplicate_orders", "duplicate_charges", "lost_orders", "orphan_charges", "stuck_keys"]);
    assert_none(right, &["surprises", "strangers"]);
    assert_eq!(right["audit"], serde_json::json!({}));
    // A second touch, and an app that comes back, have another key.
    assert!(per_tap["duplicate_orders"].as_u64() > Some(5), "{said}");
    assert_none(per_tap, &["surprises", "lost_orders", "orphan_charges", "stuck_keys"]);
}

/// A demo of its own, ended by closing what it reads: that is what stops it when its starter is gone.
struct Demo(Child);

impl Demo {
    fn start(folder: &Path) -> Self {
        let base = (20_000..30_000)
            .step_by(5)
            .find(|base| (*base..*base + 5).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()));
        let mut child = Command::new(env!("CARGO_BIN_EXE_checkout"))
            .args(["demo", "--base-port", &base.expect("five free ports").to_string(), "--data-dir"])
            .arg(folder)
            .env(checkout::stop::STOP_ON_STDIN_EOF, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a demo");
        let lines = BufReader::new(child.stdout.take().expect("its words")).lines().map_while(Result::ok);
        assert!(lines.into_iter().any(|line| line.contains("Ready.")), "the demo is not ready");
        Self(child)
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It is waited for: its database goes down in order, and its folder is removed after that.
        let _ = self.0.wait();
    }
}

/// A stack that others bought at before has their duplicates in its books; they are not this client's.
#[test]
fn a_client_on_a_running_stack_answers_for_itself_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    // PostgreSQL's user walks through it.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("an open folder");
    let _demo = Demo::start(folder.path());
    let at = |mode| {
        found(&[
            "run",
            mode,
            "--rate=30",
            "--seconds=4",
            "--warmup-seconds=1",
            "--time-scale=5",
            "--profile=answer_lost=0.2",
            "--data-dir",
            folder.path().to_str().expect("a path"),
        ])
    };
    let (_, said, bug) = at("--mode=per-attempt");
    let bug = mode(&bug, "per-attempt");
    assert!(bug["duplicate_orders"].as_u64() > Some(5), "{said}");
    assert_eq!(bug["duplicate_orders"], bug["predicted_duplicate_orders"], "{said}");
    let (code, said, right) = at("--mode=per-intent");
    let right = mode(&right, "per-intent");
    assert_eq!((code, &right["orders"], &right["intents"]), (0, &150.into(), &150.into()), "{said}");
    assert_none(right, &["duplicate_orders", "duplicate_charges", "lost_orders", "orphan_charges", "stuck_keys"]);
    assert_eq!(right["audit"], serde_json::json!({}));
}

/// Three seconds without a gateway: whoever retries at once sends most, and whatever is sent, one key is one order.
#[test]
fn a_storm_of_retries_costs_the_server_work_and_no_customer_money() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("storm.json");
    let storm = || {
        load(&[
            "storm",
            "--policies=at-once,obedient,budget",
            "--rate=30",
            "--seconds=18",
            "--stall-at=2",
            "--stall-seconds=11",
            "--json",
            file.to_str().expect("a path"),
        ])
    };
    let mut ran = storm();
    for _ in 1..RUNS_MAX {
        if ran.status.code() == Some(INVALID) {
            ran = storm();
        }
    }
    let said = [&ran.stdout[..], &ran.stderr[..]].map(String::from_utf8_lossy).join("\n");
    assert_eq!(ran.status.code(), Some(0), "{said}");
    let found: Value = serde_json::from_slice(&std::fs::read(&file).expect("findings")).expect("JSON");
    let of = |policy: &str, count: &str| {
        let storms = found["storms"].as_array().expect("storms");
        let storm = storms.iter().find(|storm| storm["policy"] == policy).expect("a storm");
        storm[count].as_u64().unwrap_or_else(|| panic!("no {count} of {policy}: {said}"))
    };
    for policy in ["at-once", "obedient", "budget"] {
        assert_eq!(of(policy, "taps"), 540, "{said}");
        for count in ["duplicate_orders", "duplicate_charges", "lost_orders", "orphan_charges", "stuck_keys"] {
            assert_eq!(of(policy, count), 0, "{count} of {policy}: {said}");
        }
    }
    assert!(of("at-once", "most_attempts_per_s") > of("obedient", "most_attempts_per_s"), "{said}");
    assert!(of("budget", "attempts") < of("obedient", "attempts"), "{said}");
    // Patience buys what haste does not.
    assert!(of("obedient", "confirmed") > of("at-once", "confirmed"), "{said}");
}

#[test]
fn what_cannot_be_run_is_said_in_one_line() {
    for (arguments, says) in [
        (&["run", "--mode=per-click"][..], "per-attempt"),
        (&["run", "--profile=lost=0.1"][..], "answer_lost"),
        (&["run", "--manual-retap=2"][..], "from 0 to 1"),
        (&["run", "--data-dir=/nowhere"][..], "no running demo found"),
        (&["run", "--mode=none", "--data-dir=/nowhere"][..], "without keys"),
        (&["storm", "--seconds=5"][..], "before the taps do"),
        (&["storm", "--policies=panic"][..], "at-once"),
        (&["growth", "--keys=5,1"][..], "from small to large"),
    ] {
        let ran = load(arguments);
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(!ran.status.success() && ran.stdout.is_empty() && said.contains(says), "{arguments:?}: {said}");
    }
}
