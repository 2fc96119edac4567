//! `docs/decisions.md` is what the code decides, asked case by case. `UPDATE_DOCS=1 cargo test docs` writes it anew.

use std::{fmt::Write, fs, path::Path, time::Duration};

use checkout::{
    checkout::{
        charge::Charged,
        finish::{Finished, conclude},
        frozen::{Frozen, FrozenOrder},
    },
    gateway::{
        Outcome,
        classify::{Meaning, Situation},
    },
    http::contract::{Presence, headers_of},
    idempotency::{
        decide::{Asked, Decision, Known, decide},
        end_store::Ending,
        fingerprint::{Compared, Fingerprints},
        key::{Operation, ScopeDigest},
        record::{Claim, Holding, Record, State, StoredResponse},
    },
    ids::{AttemptId, ChargeId, CustomerId, OrderId, RequestId},
    wire::{
        order::Line,
        problem::{Code, Problem},
    },
};
use serde_json::{Value, json};
use time::{OffsetDateTime, macros::datetime};
use uuid::Uuid;

const NOW: OffsetDateTime = datetime!(2026-03-02 12:00 UTC);
const EXPIRY: Duration = Duration::from_secs(72 * 3600);
const MINE: AttemptId = AttemptId(Uuid::from_u128(1));
const OTHER: AttemptId = AttemptId(Uuid::from_u128(2));

#[test]
fn docs_of_decisions_are_what_the_code_decides() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/decisions.md");
    let now = document();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, &now).expect("written");
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    let differs = committed.lines().zip(now.lines()).find(|(committed, now)| committed != now);
    let found = committed == now;
    assert!(found, "docs/decisions.md is not what the code decides ({differs:?}): UPDATE_DOCS=1 cargo test docs");
}

fn document() -> String {
    let mut page = String::from(
        "# Decisions\n\n\
         Written by a test that asks the code itself, case by case (`tests/it/docs.rs`); a change of the code that changes an \
         answer changes this page, or the test fails. `UPDATE_DOCS=1 cargo test docs` writes it anew.\n",
    );
    states(&mut page);
    decisions(&mut page);
    situations(&mut page);
    problems(&mut page);
    page
}

fn table(page: &mut String, head: &[&str], rows: Vec<Vec<String>>) {
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    page.push_str(&line(head.to_vec()));
    page.push_str(&line(head.iter().map(|_| "---").collect()));
    for row in rows {
        assert_eq!(row.len(), head.len(), "{row:?}");
        page.push_str(&line(row.iter().map(String::as_str).collect()));
    }
}

fn states(page: &mut String) {
    page.push_str(
        "\n## States of a record\n\nWhat becomes of the same request under the same key, as long as the key lives. A final \
         record replays; an open one never expires.\n\n",
    );
    let rows = State::ALL.into_iter().map(|state| {
        let again = |lease_left| {
            let record = record(holding(state, lease_left), true, time::Duration::MINUTE, OTHER);
            name(&asked("same", true, Some(&record), None))
        };
        let (leased, free) = (again(time::Duration::SECOND), again(-time::Duration::SECOND));
        let again = if leased == free { leased } else { format!("{leased} while the lease runs, then {free}") };
        vec![format!("`{}`", state.name()), yes_or_no(state.is_final()), again]
    });
    table(page, &["State", "Final", "The same request again"], rows.collect());
}

fn holding(state: State, lease_left: time::Duration) -> Holding {
    let answer = || StoredResponse {
        status: 201,
        content_type: "application/json".into(),
        location: None,
        body: b"{}".to_vec(),
    };
    match state {
        State::InFlight => Holding::InFlight { lease_until: NOW + lease_left },
        State::Unknown => Holding::Unknown,
        State::NeedsReview => Holding::NeedsReview,
        State::Completed => Holding::Completed(answer()),
        State::Failed => Holding::Failed(answer()),
    }
}

fn fingerprints(body: &str) -> Fingerprints {
    Fingerprints::of(Compared { method: "POST", path: "/v1/orders", query: "", canonical_body: body.as_bytes() })
}

fn record(holding: Holding, sent: bool, age: time::Duration, attempt: AttemptId) -> Record {
    Record {
        operation: Operation::CreateOrder,
        fingerprint: fingerprints("same").current,
        holding,
        day: NOW.date(),
        fence: 1,
        attempt,
        tries: 0,
        resource_id: Uuid::nil(),
        frozen: String::new(),
        first_sent_at: sent.then_some(NOW - age),
        created_at: NOW - age,
        finished_at: None,
    }
}

fn asked(body: &str, admit_new: bool, record: Option<&Record>, bought: Option<&str>) -> Decision {
    let asked = Asked { fingerprints: &fingerprints(body), attempt: MINE, admit_new };
    decide(asked, Known { now: NOW, expiry: EXPIRY, record, bought })
}

fn name(decision: &Decision) -> String {
    let said = format!("{decision:?}");
    said.split([' ', '(']).next().unwrap_or_default().to_owned()
}

fn yes_or_no(holds: bool) -> String {
    if holds { "yes" } else { "no" }.to_owned()
}

fn decisions(page: &mut String) {
    page.push_str(
        "\n## What a request under a key gets\n\nEvery record, on both sides of its expiry and of its lease, sent to the gateway \
         or not, with and without something that the key bought, for the same and for another request, at a moment that lets \
         new purchases through and at one that does not. \"either\" makes no difference.\n\n",
    );
    let mut rows = Vec::new();
    push(&mut rows, ["none", "", ""], |_, bought| decided(None, bought));
    for state in State::ALL {
        let in_flight = state == State::InFlight;
        let second = time::Duration::SECOND;
        let owners: &[(&str, time::Duration, AttemptId)] = if in_flight {
            &[("of this very attempt", second, MINE), ("lease runs", second, OTHER), ("lease is over", -second, OTHER)]
        } else {
            &[("", second, OTHER)]
        };
        for (owner, lease_left, attempt) in owners {
            for sent in [false, true] {
                // Only what was sent can have an outcome, or an open one.
                if !sent && !in_flight {
                    continue;
                }
                let shown = format!("`{}`{}{owner}", state.name(), if owner.is_empty() { "" } else { ", " });
                push(&mut rows, [&shown, &yes_or_no(sent), ""], |expired, bought| {
                    let age = if expired { time::Duration::hours(73) } else { time::Duration::MINUTE };
                    decided(Some(&record(holding(state, *lease_left), sent, age, *attempt)), bought)
                });
            }
        }
    }
    table(
        page,
        &["Record", "Sent", "Past 72 h", "Bought", "Same request", "… no new ones", "Another request", "… no new ones"],
        rows,
    );
    page.push_str("\nWhat each decision is answered with:\n\n");
    table(page, &["Decision", "What it means", "Answer"], answers());
}

fn decided(record: Option<&Record>, bought: bool) -> [String; 4] {
    let bought = bought.then_some("/v1/orders/1");
    [("same", true), ("same", false), ("another", true), ("another", false)]
        .map(|(body, admit_new)| name(&asked(body, admit_new, record, bought)))
}

/// Adds the rows of one record, and folds those that differ in nothing.
fn push(rows: &mut Vec<Vec<String>>, shown: [&str; 3], decided: impl Fn(bool, bool) -> [String; 4]) {
    let all = [false, true].map(|expired| [false, true].map(|bought| decided(expired, bought)));
    let mut add = |expired: &str, bought: &str, decisions: &[String; 4]| {
        let [record, sent, _] = shown.map(str::to_owned);
        let expired = if record == "none" { String::new() } else { expired.to_owned() };
        rows.push([vec![record, sent, expired, bought.to_owned()], decisions.to_vec()].concat());
    };
    let mut of = |expired: &str, by_bought: &[[String; 4]; 2]| match by_bought {
        [without, with] if without == with => add(expired, "either", without),
        [without, with] => {
            add(expired, "no", without);
            add(expired, "yes", with);
        }
    };
    match &all {
        [young, old] if young == old => of("either", young),
        [young, old] => {
            of("no", young);
            of("yes", old);
        }
    }
}

/// The one column that the decision does not carry in itself. A new decision does not compile without its line.
fn answers() -> Vec<Vec<String>> {
    let response = StoredResponse { status: 201, content_type: String::new(), location: None, body: Vec::new() };
    let all = [
        Decision::Insert,
        Decision::Own,
        Decision::TakeOver,
        Decision::Replay(response),
        Decision::InFlight { retry_after: Duration::from_secs(1) },
        Decision::Mismatch,
        Decision::Expired { location: String::new() },
        Decision::NeedsReview,
        Decision::NotAdmitted,
    ];
    let row = |decision: &Decision| {
        let (meaning, answer) = match decision {
            Decision::Insert => ("claim it and charge", "by the next table".to_owned()),
            Decision::Own => ("this attempt's own claim: go on", "by the next table".to_owned()),
            Decision::TakeOver => ("one fence higher: look first, then go on", "by the next table".to_owned()),
            Decision::Replay(_) => {
                ("the first answer's bytes", "as it was, with `Idempotent-Replayed: true`".to_owned())
            }
            Decision::InFlight { .. } => ("somebody else runs it", told(Code::RequestInProgress)),
            Decision::Mismatch => ("the key belongs to another request", told(Code::IdempotencyKeyReused)),
            Decision::Expired { .. } => ("the key did its work long ago", told(Code::IdempotencyKeyExpired)),
            Decision::NeedsReview => ("only a person can find out", told(Code::OutcomeUnknown)),
            Decision::NotAdmitted => (
                "it would be new, and this moment takes no new ones",
                format!("what the moment says, for example {}", told(Code::Overloaded)),
            ),
        };
        vec![name(decision), meaning.to_owned(), answer]
    };
    all.iter().map(row).collect()
}

fn told(code: Code) -> String {
    format!("{} `{}`", code.status(), code.name())
}

fn situations(page: &mut String) {
    page.push_str(
        "\n## What the gateway's answer means\n\nEvery situation after a send, first when it is the only one, then when an earlier \
         send of the same charge may have arrived: what is certain only of the later send proves nothing of the earlier.\n\n",
    );
    let row = |said: &str, meaning: String, charged: Charged, after: Charged| {
        let ([ending, answer], [ending_after, answer_after]) = (concluded(charged), concluded(after));
        let same = (&ending, &answer) == (&ending_after, &answer_after);
        let after = if same { "the same".to_owned() } else { format!("{ending_after}: {answer_after}") };
        vec![said.to_owned(), meaning, ending, answer, after]
    };
    let mut rows: Vec<_> = Situation::ALL
        .into_iter()
        .map(|situation| {
            let outcome = outcome(situation);
            let after = Charged::Known(outcome.clone().sticky(true));
            row(situation.sentence(), format!("{:?}", situation.meaning()), Charged::Known(outcome), after)
        })
        .collect();
    let nothing = "nothing is found, and the key is too old to be sent again";
    rows.push(row(nothing, "none".to_owned(), Charged::Untellable, Charged::Untellable));
    table(page, &["Situation", "Meaning", "The record becomes", "Answer", "After an earlier send"], rows);
}

fn outcome(situation: Situation) -> Outcome {
    let why = situation.sentence().to_owned();
    match situation.meaning() {
        Meaning::Approved => Outcome::Approved { gateway_id: "pi_1".to_owned() },
        Meaning::Declined => Outcome::Declined {
            gateway_id: Some("pi_1".to_owned()),
            decline_code: "card_declined".to_owned(),
            message: why,
        },
        Meaning::NotSent => Outcome::NotSent { why, retry_after: None },
        Meaning::Unknown => Outcome::Unknown { why, frozen: false },
        Meaning::UnknownRecorded => Outcome::Unknown { why, frozen: true },
        Meaning::Misconfigured => Outcome::Misconfigured { why },
    }
}

/// What the record becomes, and what the customer is told.
fn concluded(charged: Charged) -> [String; 2] {
    let (claim, order) = (claim(), order());
    let (settlement, finished) = conclude(claim, &Frozen::Order(order), charged).expect("a conclusion");
    let ending = match settlement.ending {
        Ending::Completed(_) => format!("`{}`", State::Completed.name()),
        Ending::Failed(_) => format!("`{}`", State::Failed.name()),
        Ending::Unknown { .. } => format!("`{}`", State::Unknown.name()),
        Ending::NeedsReview => format!("`{}`", State::NeedsReview.name()),
        Ending::Released => "released: a retry begins as if first".to_owned(),
    };
    let answer = match finished {
        Finished::Answered(StoredResponse { status, body, .. }) => {
            let body: Value = serde_json::from_slice(&body).expect("JSON");
            let code = body["code"].as_str().map(|code| format!(" `{code}`")).unwrap_or_default();
            format!("{status}{code}, stored")
        }
        Finished::Open(Problem { code, retry_after, .. }) => {
            let wait = retry_after.expect("a wait").as_secs();
            format!("{}, again after {wait} s", told(code))
        }
        Finished::Fenced => "what the other owner answered".to_owned(),
    };
    [ending, answer]
}

fn claim() -> Claim {
    Claim {
        digest: ScopeDigest([0; 32]),
        operation: Operation::CreateOrder,
        day: NOW.date(),
        fence: 1,
        attempt: MINE,
        tries: 0,
        resource_id: Uuid::nil(),
        frozen: String::new(),
        maybe_sent: false,
        lease_until: NOW + Duration::from_secs(15),
        first_sent_at: NOW,
        now: NOW,
    }
}

fn order() -> FrozenOrder {
    FrozenOrder {
        order_id: OrderId(Uuid::nil()),
        charge_id: ChargeId(Uuid::nil()),
        customer_id: CustomerId(42),
        request_id: RequestId(Uuid::nil()),
        lines: vec![Line { sku: "grinder".to_owned(), quantity: 1, unit_price: 4299 }],
        total: 4299,
        currency: "eur".to_owned(),
        payment_method: "pm_card_visa".to_owned(),
        client_reference: None,
    }
}

fn problems(page: &mut String) {
    page.push_str("\n## Problems\n\nThe catalogue. `retry` is what a program may obey.\n\n");
    let rows = Code::ALL.iter().map(|code| {
        let mut headers = String::new();
        for (header, presence) in headers_of(*code) {
            let sometimes = if *presence == Presence::Always { "" } else { " (not always)" };
            write!(headers, "{}{}{sometimes}", if headers.is_empty() { "" } else { ", " }, header.name())
                .expect("text");
        }
        let retry = json!(code.retry()).as_str().expect("a name").to_owned();
        vec![
            format!("`{}`", code.name()),
            code.status().to_string(),
            code.title().to_owned(),
            format!("`{retry}`"),
            headers,
        ]
    });
    table(page, &["Code", "Status", "What happened", "Retry", "Headers"], rows.collect());
}
