use time::{
    ext::NumericalDuration,
    macros::{date, datetime},
};

use uuid::Uuid;

use super::*;
use crate::{
    idempotency::{
        fingerprint::{Compared, Fingerprint},
        key::Operation,
        record::State,
    },
    ids::AttemptId,
};

const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);
const EXPIRY: Duration = Duration::from_secs(72 * 3600);
const BOUGHT: Uuid = Uuid::from_u128(7);
const LOCATION: &str = "/v1/orders/7";
const MINE: AttemptId = AttemptId(Uuid::from_u128(1));
const OTHER: AttemptId = AttemptId(Uuid::from_u128(2));

fn fingerprints(body: &str) -> Fingerprints {
    Fingerprints::of(Compared { method: "POST", path: "/v1/orders", query: "", canonical_body: body.as_bytes() })
}

fn response() -> StoredResponse {
    StoredResponse { status: 201, content_type: "application/json".into(), location: None, body: b"{}".to_vec() }
}

fn record(holding: Holding, age: time::Duration) -> Record {
    Record {
        operation: Operation::CreateOrder,
        fingerprint: fingerprints("4299").current,
        holding,
        day: date!(2026 - 03 - 01),
        fence: 1,
        attempt: OTHER,
        tries: 0,
        resource_id: BOUGHT,
        frozen: String::new(),
        first_sent_at: Some(NOW - age),
        created_at: NOW - age,
        finished_at: None,
    }
}

fn in_flight(lease_left: time::Duration) -> Holding {
    Holding::InFlight { lease_until: NOW + lease_left }
}

fn decided(body: &str, record: Option<&Record>, bought: Option<&str>) -> Decision {
    let asked = Asked { fingerprints: &fingerprints(body), attempt: MINE, admit_new: true };
    decide(asked, Known { now: NOW, expiry: EXPIRY, record, bought })
}

/// Every state, on both sides of the expiry and of the lease, for the same and for another request.
#[test]
fn the_whole_table() {
    use Decision::*;
    let (young, old, edge) = (1.minutes(), 73.hours(), 72.hours());
    let second = Duration::from_secs(1);
    let expired = Expired { location: LOCATION.to_owned() };
    let table = [
        // holding, age, bought by the scope, same request, another request
        (Holding::Completed(response()), young, true, Replay(response()), Mismatch),
        (Holding::Completed(response()), edge - 1.microseconds(), true, Replay(response()), Mismatch),
        (Holding::Completed(response()), edge, true, expired.clone(), expired.clone()),
        (Holding::Completed(response()), old, true, expired.clone(), expired),
        (Holding::Failed(response()), young, false, Replay(response()), Mismatch),
        (Holding::Failed(response()), edge, false, Insert, Insert),
        (Holding::Failed(response()), old, false, Insert, Insert),
        (in_flight(9.seconds()), young, false, InFlight { retry_after: second }, Mismatch),
        (in_flight(300.milliseconds()), young, false, InFlight { retry_after: second * 3 / 10 }, Mismatch),
        (in_flight(1.microseconds()), old, false, InFlight { retry_after: Duration::from_micros(1) }, Mismatch),
        (in_flight(0.seconds()), young, false, TakeOver, Mismatch),
        (in_flight((-1).hours()), old, false, TakeOver, Mismatch),
        (Holding::Unknown, young, false, TakeOver, Mismatch),
        (Holding::Unknown, old, false, TakeOver, Mismatch),
        (Holding::NeedsReview, young, false, NeedsReview, Mismatch),
        (Holding::NeedsReview, old, false, NeedsReview, Mismatch),
    ];
    for (holding, age, bought, same, other) in table {
        let (record, bought) = (record(holding, age), bought.then_some(LOCATION));
        assert_eq!(decided("4299", Some(&record), bought), same, "same request, {record:?}");
        assert_eq!(decided("9999", Some(&record), bought), other, "another request, {record:?}");
    }
}

#[test]
fn a_key_nobody_used_is_claimed_and_one_that_bought_before_its_record_was_dropped_is_refused() {
    assert_eq!(decided("4299", None, None), Decision::Insert);
    assert_eq!(decided("4299", None, Some(LOCATION)), Decision::Expired { location: LOCATION.to_owned() });
}

#[test]
fn an_answer_that_took_days_is_replayed_as_long_as_any_other() {
    let late =
        |finished| Record { finished_at: Some(NOW - finished), ..record(Holding::Failed(response()), 80.hours()) };
    assert_eq!(decided("4299", Some(&late(1.minutes())), None), Decision::Replay(response()));
    assert_eq!(decided("9999", Some(&late(1.minutes())), None), Decision::Mismatch);
    assert_eq!(decided("4299", Some(&late(72.hours())), None), Decision::Insert);
}

#[test]
fn what_was_released_unsent_is_resumed_by_a_retry_and_free_after_its_expiry() {
    let unsent = |age| Record { first_sent_at: None, ..record(in_flight((-1).seconds()), age) };
    assert_eq!(decided("4299", Some(&unsent(1.minutes())), None), Decision::TakeOver);
    assert_eq!(decided("9999", Some(&unsent(1.minutes())), None), Decision::Mismatch);
    assert_eq!(decided("9999", Some(&unsent(72.hours())), None), Decision::Insert);
    let owned = Record { holding: in_flight(1.seconds()), ..unsent(72.hours()) };
    assert!(matches!(decided("4299", Some(&owned), None), Decision::InFlight { .. }));
}

#[test]
fn an_attempt_recognises_the_claim_whose_commit_nobody_acknowledged() {
    let mut mine = record(in_flight(9.seconds()), 1.seconds());
    mine.attempt = MINE;
    assert_eq!(decided("4299", Some(&mine), None), Decision::Own);
}

#[test]
fn the_moment_refuses_only_what_would_be_new() {
    let asked = |record: Option<&Record>, bought| {
        let asked = Asked { fingerprints: &fingerprints("4299"), attempt: MINE, admit_new: false };
        decide(asked, Known { now: NOW, expiry: EXPIRY, record, bought })
    };
    assert_eq!(asked(None, None), Decision::NotAdmitted);
    assert_eq!(asked(Some(&record(Holding::Failed(response()), 72.hours())), None), Decision::NotAdmitted);
    for holding in
        [Holding::Completed(response()), Holding::Failed(response()), Holding::Unknown, in_flight(0.seconds())]
    {
        assert_ne!(asked(Some(&record(holding, 1.minutes())), None), Decision::NotAdmitted);
    }
    assert_eq!(asked(None, Some(LOCATION)), Decision::Expired { location: LOCATION.to_owned() });
}

#[test]
fn a_fingerprint_of_an_older_version_still_matches_while_it_is_computed() {
    let mut old = record(Holding::Completed(response()), 1.minutes());
    old.fingerprint = Fingerprint { version: 0, digest: [9; 32] };
    let mut both = fingerprints("4299");
    let asked = |fingerprints: &Fingerprints| {
        decide(
            Asked { fingerprints, attempt: MINE, admit_new: true },
            Known { now: NOW, expiry: EXPIRY, record: Some(&old), bought: None },
        )
    };
    assert_eq!(asked(&both), Decision::Mismatch);
    both.earlier.push(old.fingerprint);
    assert_eq!(asked(&both), Decision::Replay(response()));
}

#[test]
fn states_have_names_that_read_back() {
    for state in State::ALL {
        assert_eq!(State::from_name(state.name()), Some(state));
    }
}
