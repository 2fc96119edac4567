//! Crash points are armed by name, and a name that does not exist is said at once: a test that arms nothing proves nothing.

use checkout::crash_point::CrashPoint;

use crate::support::Process;

#[test]
fn what_cannot_be_armed_refuses_to_start_in_one_line_that_says_what_there_is() {
    for armed in ["order.nowhere:kill", "order.claimed:explode", "order.claimed:kill,order.claimed"] {
        let mut command = Process::command(&["token", "42", "--secret", "a-secret-of-the-tests-0123456789abcdef"]);
        command.env("CHECKOUT_CRASH", armed);
        let mut process = Process::spawn(command);
        let status = process.ended();
        let complaint = process.stderr();
        assert_eq!((status.code(), complaint.lines().count()), (Some(1), 1), "{armed}: {complaint}");
        let existing = if armed.contains("nowhere") { "maintenance.detached" } else { "kill, stop, pause:<ms>" };
        assert!(complaint.starts_with("checkout: CHECKOUT_CRASH: ") && complaint.contains(existing), "{complaint}");
    }
}

#[test]
fn every_point_is_listed_with_what_is_true_there() {
    let output = Process::command(&["crash-points"]).output().expect("the program under test");
    let listed = String::from_utf8(output.stdout).expect("text");
    assert_eq!(listed.lines().count(), CrashPoint::ALL.len());
    for (line, point) in listed.lines().zip(CrashPoint::ALL) {
        assert!(line.starts_with(point.name()) && line.ends_with(point.meaning()), "{line}");
    }
}
