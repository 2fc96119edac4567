//! The audit must be able to say no: one healthy purchase, one corruption, and exactly that anomaly named. A corruption that
//! the schema forbids first takes the constraint away, in the database of its own test.

use std::sync::Once;

use checkout::{
    audit::{self, AuditOptions, Capture, EXAMPLES_MAX, Kind, Ledger, Mail},
    idempotency::key::ScopeDigest,
};
use serde_json::json;
use time::OffsetDateTime;
use uuid::Uuid;
use wiremock::{Mock, MockServer, ResponseTemplate, matchers};

use crate::{
    audit_world::{CUSTOMER, Shop, capture, digest_of},
    support::{self, fresh_key, grinder, wait_for},
};

#[tokio::test]
async fn two_orders_under_one_key_are_a_duplicate_order() {
    let (mut shop, sale) = Shop::with_a_sale().await;
    shop.execute("ALTER TABLE orders DROP CONSTRAINT orders_one_per_key").await;
    let second = Uuid::now_v7();
    shop.execute(&format!(
        "INSERT INTO orders SELECT '{second}', customer_id, charge_id, key_digest, status, total_minor, currency, items, NULL, created_at FROM orders"
    ))
    .await;
    shop.follow_up(second).await;
    shop.assert_names(Kind::DuplicateOrder, &second.to_string()).await;
    shop.assert_names(Kind::DuplicateOrder, &sale.order.to_string()).await;
}

#[tokio::test]
async fn one_client_reference_bought_under_two_keys_is_a_duplicate_order_and_a_duplicate_charge() {
    let (mut shop, first) = Shop::with_a_sale().await;
    let second = shop.sell("a-fresh-key-for-the-same-tap", Some("tap-1")).await;
    let report = shop.audit().await;
    assert_eq!(report.kinds(), [Kind::DuplicateOrder, Kind::DuplicateCharge], "{report}");
    assert_eq!(report.anomalies[0].ids, [first.order.to_string(), second.order.to_string()]);
    assert_eq!(report.anomalies[1].ids, [first.capture.payment_intent, second.capture.payment_intent]);
}

#[tokio::test]
async fn two_customers_may_use_one_client_reference() {
    let (mut shop, _) = Shop::with_a_sale().await;
    shop.sell_to(CUSTOMER + 1, "first-key", Some("tap-1")).await;
    shop.execute("UPDATE charges SET customer_id = o.customer_id FROM orders AS o WHERE charge_id = charges.id").await;
    shop.sell("no-reference", None).await;
    shop.sell("no-reference-either", None).await;
    shop.assert_clean().await;
}

#[tokio::test]
async fn two_captures_under_one_key_are_a_duplicate_charge() {
    let (mut shop, sale) = Shop::with_a_sale().await;
    let again = capture(sale.digest, Some("tap-1"));
    shop.captures.push(again.clone());
    shop.assert_names(Kind::DuplicateCharge, &again.payment_intent).await;
}

#[tokio::test]
async fn a_second_capture_for_one_client_reference_without_our_key_is_a_duplicate_charge() {
    let (mut shop, _) = Shop::with_a_sale().await;
    let again = Capture { idempotency_key: None, ..capture(ScopeDigest([1; 32]), Some("tap-1")) };
    shop.captures.push(again.clone());
    shop.assert_names(Kind::DuplicateCharge, &again.payment_intent).await;
}

#[tokio::test]
async fn two_succeeded_charges_under_one_key_are_a_duplicate_charge() {
    let (shop, sale) = Shop::with_a_sale().await;
    shop.execute("DROP INDEX charges_one_success_per_key").await;
    let second = Uuid::now_v7();
    shop.insert_charge(second, sale.digest, &sale.capture.payment_intent).await;
    shop.assert_names(Kind::DuplicateCharge, &second.to_string()).await;
}

#[tokio::test]
async fn a_capture_nobody_knows_is_an_orphan_charge() {
    let (mut shop, _) = Shop::with_a_sale().await;
    let orphan = capture(digest_of(7, "forgotten"), Some("tap-9"));
    shop.captures.push(orphan.clone());
    shop.assert_names(Kind::OrphanCharge, &orphan.payment_intent).await;
    // A final record does not explain it either: nobody will come back to it.
    shop.insert_record(digest_of(7, "forgotten"), 7, "forgotten", Uuid::now_v7(), "failed").await;
    shop.assert_names(Kind::OrphanCharge, &orphan.payment_intent).await;
}

#[tokio::test]
async fn a_capture_whose_record_is_open_is_pending_and_no_anomaly() {
    let (mut shop, _) = Shop::with_a_sale().await;
    for (count, state) in ["in_flight", "unknown", "needs_review"].into_iter().enumerate() {
        let digest = digest_of(CUSTOMER, state);
        shop.insert_record(digest, CUSTOMER, state, Uuid::now_v7(), state).await;
        shop.captures.push(capture(digest, None));
        let report = shop.audit().await;
        assert!(report.is_clean(), "{report}");
        assert_eq!(report.counted.pending, count as u64 + 1);
        assert_eq!(report.counted.records[state], 1);
    }
    assert_eq!(shop.audit().await.counted.needs_review, 1);
}

#[tokio::test]
async fn a_booked_charge_the_gateway_does_not_list_is_uncaptured_unless_it_is_newer_than_the_ledger() {
    let (mut shop, sale) = Shop::with_a_sale().await;
    let before =
        sqlx::query_scalar("SELECT created_at - interval '1 ms' FROM charges").fetch_one(&shop.pool).await.unwrap();
    shop.captures.clear();
    shop.assert_names(Kind::UncapturedCharge, &sale.charge.to_string()).await;
    let report = shop.audit_asked_at(before).await;
    assert!(report.is_clean(), "{report}");
}

#[tokio::test]
async fn one_capture_booked_for_two_keys_is_a_shared_capture() {
    let (mut shop, sale) = Shop::with_a_sale().await;
    let second = shop.sell("second-key", None).await;
    shop.captures.pop();
    shop.execute(&format!(
        "UPDATE charges SET gateway_id = '{}' WHERE id = '{}'",
        sale.capture.payment_intent, second.charge
    ))
    .await;
    shop.assert_names(Kind::SharedCapture, &second.charge.to_string()).await;
}

#[tokio::test]
async fn a_purchase_without_its_order_is_one_lost_order() {
    let (shop, sale) = Shop::with_a_sale().await;
    shop.execute("DELETE FROM orders; DELETE FROM outbox; DELETE FROM event_log; DELETE FROM ledger_entries").await;
    // Both the charge and the record tell of it, and still it is one.
    shop.assert_names(Kind::LostOrder, &sale.charge.to_string()).await;
    shop.execute("DELETE FROM idempotency_records").await;
    shop.assert_names(Kind::LostOrder, &sale.charge.to_string()).await;
}

#[tokio::test]
async fn a_stored_answer_that_names_another_order_is_a_lost_order() {
    let (shop, sale) = Shop::with_a_sale().await;
    let (other, order) = (Uuid::now_v7(), sale.order);
    for (column, promised) in [
        ("response_location", format!("'/v1/orders/{other}'")),
        ("response_body", format!("'{{\"id\":\"{other}\"}}'::bytea")),
        ("response_location", "NULL".to_owned()),
    ] {
        shop.execute(&format!("UPDATE idempotency_records SET {column} = {promised}")).await;
        shop.assert_names(Kind::LostOrder, &order.to_string()).await;
        shop.execute(&format!(
            "UPDATE idempotency_records SET response_location = '/v1/orders/{order}', response_body = '{order}'::bytea"
        ))
        .await;
        shop.assert_clean().await;
    }
}

#[tokio::test]
async fn an_order_on_a_declined_or_missing_charge_is_uncharged() {
    let (mut shop, sale) = Shop::with_a_sale().await;
    shop.captures.clear();
    shop.execute("UPDATE charges SET status = 'declined', decline_code = 'card_declined'").await;
    shop.assert_names(Kind::UnchargedOrder, &sale.order.to_string()).await;
    shop.execute("ALTER TABLE orders DROP CONSTRAINT orders_charge_exists; DELETE FROM charges").await;
    shop.assert_names(Kind::UnchargedOrder, &sale.order.to_string()).await;
}

#[tokio::test]
async fn an_order_whose_record_says_declined_is_unrecorded_but_one_whose_record_was_dropped_is_not() {
    let (shop, sale) = Shop::with_a_sale().await;
    shop.execute("UPDATE idempotency_records SET state = 'failed'").await;
    shop.assert_names(Kind::UnrecordedOrder, &sale.order.to_string()).await;
    shop.execute("DELETE FROM idempotency_records").await;
    shop.assert_clean().await;
}

#[tokio::test]
async fn a_key_that_is_due_beyond_the_grace_is_stuck() {
    for state in ["in_flight", "unknown"] {
        let (shop, _) = Shop::with_a_sale().await;
        let order = Uuid::now_v7();
        shop.insert_record(digest_of(CUSTOMER, "left"), CUSTOMER, "left", order, state).await;
        for (due_s, stuck) in [(-59, false), (-61, true)] {
            shop.execute(&format!(
                "UPDATE idempotency_records
                 SET lease_until = CASE WHEN state = 'in_flight' THEN db_clock() + interval '{due_s} s' END,
                     next_attempt_at = CASE WHEN state = 'unknown' THEN db_clock() + interval '{due_s} s' END
                 WHERE key = 'left'"
            ))
            .await;
            match stuck {
                true => shop.assert_names(Kind::StuckKey, &order.to_string()).await,
                false => shop.assert_clean().await,
            }
        }
    }
}

#[tokio::test]
async fn a_key_that_was_taken_over_before_is_given_the_pause_that_recovery_gives_it() {
    let (shop, _) = Shop::with_a_sale().await;
    let order = Uuid::now_v7();
    shop.insert_record(digest_of(CUSTOMER, "left"), CUSTOMER, "left", order, "in_flight").await;
    shop.execute(
        "UPDATE idempotency_records SET tries = 15, lease_until = db_clock() - interval '90 s' WHERE key = 'left'",
    )
    .await;
    shop.assert_clean().await;
    shop.execute("UPDATE idempotency_records SET tries = 5 WHERE key = 'left'").await;
    shop.assert_names(Kind::StuckKey, &order.to_string()).await;
}

#[tokio::test]
async fn a_key_whose_lease_is_renewed_in_vain_is_past_its_deadline_once_nothing_may_be_sent_again() {
    for state in ["in_flight", "unknown", "needs_review"] {
        let (shop, _) = Shop::with_a_sale().await;
        let order = Uuid::now_v7();
        shop.insert_record(digest_of(CUSTOMER, "left"), CUSTOMER, "left", order, state).await;
        // A person has three days more, and needs no grace.
        let (in_time, late) = match state {
            "needs_review" => ("96 hours 59 min", "97 hours 1 min"),
            _ => ("25 hours 59 s", "25 hours 61 s"),
        };
        for (ago, is_late) in [(in_time, false), (late, true)] {
            shop.execute(&format!(
                "UPDATE idempotency_records SET first_sent_at = db_clock() - interval '{ago}' WHERE key = 'left'"
            ))
            .await;
            match is_late {
                true => shop.assert_names(Kind::UnresolvedPastDeadline, &order.to_string()).await,
                false => shop.assert_clean().await,
            }
        }
    }
}

/// A key nobody looks at for so long is both, and named once.
#[tokio::test]
async fn a_key_past_its_deadline_is_not_stuck_as_well() {
    let (shop, _) = Shop::with_a_sale().await;
    let order = Uuid::now_v7();
    shop.insert_record(digest_of(CUSTOMER, "left"), CUSTOMER, "left", order, "unknown").await;
    shop.execute(
        "UPDATE idempotency_records SET first_sent_at = db_clock() - interval '30 hours',
                next_attempt_at = db_clock() - interval '29 hours' WHERE key = 'left'",
    )
    .await;
    shop.assert_names(Kind::UnresolvedPastDeadline, &order.to_string()).await;
}

#[tokio::test]
async fn a_claim_that_was_released_unsent_is_counted_and_never_stuck() {
    let (shop, _) = Shop::with_a_sale().await;
    shop.insert_record(digest_of(CUSTOMER, "left"), CUSTOMER, "left", Uuid::now_v7(), "in_flight").await;
    shop.execute(
        "UPDATE idempotency_records SET first_sent_at = NULL, lease_until = db_clock() - interval '30 hours',
                created_at = db_clock() - interval '30 hours' WHERE key = 'left'",
    )
    .await;
    let report = shop.audit().await;
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.counted.released, report.counted.oldest_open_s), (1, None));
    assert!(
        report.to_string().contains("0 in flight;") && report.to_string().contains("1 for their client"),
        "{report}"
    );
}

#[tokio::test]
async fn a_clean_report_still_says_how_long_the_oldest_unknown_key_has_been_open() {
    let (shop, _) = Shop::with_a_sale().await;
    for (key, minutes) in [("left", 15), ("left-later", 3)] {
        shop.insert_record(digest_of(CUSTOMER, key), CUSTOMER, key, Uuid::now_v7(), "unknown").await;
        shop.execute(&format!(
            "UPDATE idempotency_records SET first_sent_at = db_clock() - interval '{minutes} min' WHERE key = '{key}'"
        ))
        .await;
    }
    let report = shop.audit().await;
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.counted.records["unknown"], 2);
    assert!(report.counted.oldest_open_s.is_some_and(|seconds| (900..960).contains(&seconds)), "{report}");
    assert!(report.to_string().contains("2 keys unknown, 0 in flight, the oldest for 15 min;"), "{report}");
}

/// The claim is older than the question, the capture and its booking are younger: a busy checkout is always like that.
#[tokio::test]
async fn a_charge_captured_after_the_ledger_was_asked_is_no_anomaly() {
    let shop = support::Shop::open().await;
    shop.fault("latency_before", 1, 1_500).await;
    let (key, body) = (fresh_key(), grinder("pm_card_visa"));
    let asked = async {
        wait_for("the claim is committed", async || shop.count("idempotency_records").await == 1).await;
        Ledger::fetch(&shop.pool, &shop.gateway_url).await.expect("a ledger")
    };
    let (answer, ledger) = tokio::join!(shop.order(&key, &body), asked);
    answer.expect_order();
    assert_eq!(ledger.captures, [], "the gateway was slower than the question");
    let report = audit::run_over(&shop.pool, &ledger, None, AuditOptions::default()).await.expect("an audit");
    assert!(report.is_clean(), "{report}");
    // With the ledger of afterwards the same charge is found in it.
    shop.close().await;
}

#[tokio::test]
async fn order_charge_and_capture_must_agree_on_amount_and_currency() {
    let (mut shop, sale) = Shop::with_a_sale().await;
    for (wrong, right) in [("total_minor = 1", "total_minor = 4299"), ("currency = 'usd'", "currency = 'eur'")] {
        shop.execute(&format!("UPDATE orders SET {wrong}")).await;
        shop.assert_names(Kind::AmountMismatch, &sale.order.to_string()).await;
        shop.execute(&format!("UPDATE orders SET {right}")).await;
    }
    shop.captures[0].amount = 8598;
    shop.assert_names(Kind::AmountMismatch, &sale.capture.payment_intent).await;
    shop.captures[0] = Capture { currency: "usd".to_owned(), ..sale.capture.clone() };
    shop.assert_names(Kind::AmountMismatch, &sale.capture.payment_intent).await;
}

/// Whoever gave back what nobody bought has repaired it; what was bought must not go back behind our back.
#[tokio::test]
async fn a_capture_that_went_back_in_full_is_no_orphan_and_no_duplicate_but_an_order_must_keep_its_own() {
    let (mut shop, sale) = Shop::with_a_sale().await;
    shop.captures.push(Capture { amount_refunded: 4299, ..capture(digest_of(7, "forgotten"), Some("tap-9")) });
    shop.captures.push(Capture { amount_refunded: 4299, ..capture(sale.digest, Some("tap-1")) });
    let report = shop.audit().await;
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.counted.refunded, 2);
    assert!(report.to_string().contains("2 captures that no charge of ours names, each in full"), "{report}");

    shop.captures[1].amount_refunded = 4298;
    shop.assert_names(Kind::OrphanCharge, &shop.captures[1].payment_intent).await;
    shop.captures[1].amount_refunded = 4299;
    shop.captures[2].amount_refunded = 1;
    shop.assert_names(Kind::DuplicateCharge, &shop.captures[2].payment_intent).await;
    shop.captures.truncate(1);
    for refunded in [1, 4299] {
        shop.captures[0].amount_refunded = refunded;
        shop.assert_names(Kind::RefundMismatch, &sale.charge.to_string()).await;
    }
}

/// A refund that is promised and looked after is on its way; one that nobody looks after is nobody's money again.
#[tokio::test]
async fn a_capture_that_is_being_given_back_is_pending_while_somebody_is_at_it() {
    let (mut shop, sale) = Shop::with_a_sale().await;
    let surplus = Capture { amount_refunded: 0, ..capture(sale.digest, None) };
    shop.captures.push(surplus.clone());
    shop.assert_names(Kind::DuplicateCharge, &surplus.payment_intent).await;
    shop.execute(&format!(
        "INSERT INTO reconciliation_findings (payment_intent, kind, gateway_key, key_digest, amount_minor, currency, created_at)
         VALUES ('{}', 'surplus', 'chk_{}', '\\x{}', 4299, 'eur', db_clock())",
        surplus.payment_intent, sale.digest, sale.digest
    ))
    .await;
    shop.assert_names(Kind::DuplicateCharge, &surplus.payment_intent).await;

    shop.execute("UPDATE reconciliation_findings SET state = 'refunding', looked_at = db_clock()").await;
    let report = shop.audit().await;
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.counted.pending, report.counted.refunded), (1, 0));
    shop.execute("UPDATE reconciliation_findings SET looked_at = db_clock() - interval '61 s'").await;
    shop.assert_names(Kind::DuplicateCharge, &surplus.payment_intent).await;

    // Refunded after the gateway was asked: its list did not know yet. Before that it must have known.
    shop.execute("UPDATE reconciliation_findings SET state = 'refunded', looked_at = db_clock()").await;
    let report = shop.audit_asked_at(OffsetDateTime::now_utc() - time::Duration::MINUTE).await;
    assert!(report.is_clean(), "{report}");
    shop.assert_names(Kind::DuplicateCharge, &surplus.payment_intent).await;
}

#[tokio::test]
async fn an_order_without_its_first_event_is_named() {
    let (shop, sale) = Shop::with_a_sale().await;
    shop.execute("UPDATE outbox SET sequence = 2").await;
    shop.assert_names(Kind::MissingEvent, &sale.order.to_string()).await;
}

#[tokio::test]
async fn an_event_of_no_order_is_named() {
    let (shop, _) = Shop::with_a_sale().await;
    let nobody = Uuid::now_v7();
    shop.insert_event(nobody, 1).await;
    shop.assert_names(Kind::EventWithoutOrder, &nobody.to_string()).await;
}

#[tokio::test]
async fn a_hundred_anomalies_of_a_kind_are_spelled_out_and_all_are_counted() {
    let (mut shop, _) = Shop::with_a_sale().await;
    for _ in 0..150 {
        shop.insert_event(Uuid::now_v7(), 1).await;
        shop.captures.push(Capture { idempotency_key: None, ..capture(ScopeDigest([1; 32]), None) });
    }
    let report = shop.audit().await;
    assert_eq!(report.kinds(), [Kind::OrphanCharge, Kind::EventWithoutOrder]);
    for kind in report.kinds() {
        assert_eq!(report.found(kind), 150);
        assert_eq!(report.anomalies.iter().filter(|anomaly| anomaly.kind == kind).count(), EXAMPLES_MAX);
    }
    assert!(report.to_string().contains("… and 50 more"), "{report}");
}

#[tokio::test]
async fn a_ledger_read_over_http_gives_a_report_in_json() {
    let (shop, sale) = Shop::with_a_sale().await;
    let gateway = gateway_that_lists(&shop.captures, 1).await;
    let mail = mail_service_that_lists(&shop.mails, 1).await;
    let report = audit::run(&shop.pool, &gateway.uri(), Some(&mail.uri()), AuditOptions::default()).await.unwrap();
    assert!(report.is_clean(), "{report}");
    let found: serde_json::Map<_, _> = Kind::ALL.iter().map(|kind| (kind.name().to_owned(), json!(0))).collect();
    let counted = json!({
        "orders": 1, "charges": 1, "refunds": 0, "captures": 1, "events": 1, "entries": 2, "receipts": 1, "mails": 1, "pending": 0, "refunded": 0,
        "held": 0, "needs_review": 0, "released": 0, "oldest_open_s": null,
        "records": {"completed": 1, "failed": 0, "in_flight": 0, "needs_review": 0, "unknown": 0},
    });
    let clean = json!({"clean": true, "mails_checked": true, "found": found, "anomalies": [], "counted": counted});
    assert_eq!(serde_json::to_value(&report).unwrap(), clean);

    let empty = gateway_that_lists(&[], 0).await;
    let report = audit::run(&shop.pool, &empty.uri(), None, AuditOptions::default()).await.unwrap();
    let anomaly = &serde_json::to_value(&report).unwrap()["anomalies"][0];
    assert_eq!(anomaly["anomaly"], "uncaptured_charge");
    assert_eq!(anomaly["key"], sale.digest.to_string());
    assert_eq!(anomaly["ids"], json!([sale.charge.to_string(), sale.capture.payment_intent]));
}

#[tokio::test]
async fn a_ledger_that_cannot_be_read_or_contradicts_itself_is_no_verdict() {
    let (shop, _) = Shop::with_a_sale().await;
    for gateway in [MockServer::start().await, gateway_that_lists(&shop.captures, 2).await] {
        let outcome = audit::run(&shop.pool, &gateway.uri(), None, AuditOptions::default()).await;
        assert!(outcome.unwrap_err().to_string().contains("ledger"));
    }
    let gateway = gateway_that_lists(&shop.captures, 1).await;
    for mail in [MockServer::start().await, mail_service_that_lists(&shop.mails, 2).await] {
        let outcome = audit::run(&shop.pool, &gateway.uri(), Some(&mail.uri()), AuditOptions::default()).await;
        assert!(outcome.unwrap_err().to_string().contains("list of mails"));
    }
}

async fn mail_service_that_lists(mails: &[Mail], count: usize) -> MockServer {
    let listed: Vec<_> = mails
        .iter()
        .map(|mail| json!({"id": mail.id, "tags": {"event_id": mail.event, "order_id": mail.aggregate}}))
        .collect();
    let service = MockServer::start().await;
    Mock::given(matchers::path("/_mock/mails"))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({"mails": listed, "count": count})))
        .mount(&service)
        .await;
    service
}

async fn gateway_that_lists(captures: &[Capture], count: usize) -> MockServer {
    static TLS: Once = Once::new();
    TLS.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    let listed: Vec<_> = captures
        .iter()
        .map(|c| {
            json!({
                "payment_intent": c.payment_intent, "idempotency_key": c.idempotency_key, "reference": c.reference, "amount": c.amount,
                "currency": c.currency, "amount_refunded": c.amount_refunded, "executions": 1, "replays": 0, "created": 1_700_000_000,
            })
        })
        .collect();
    let amount: i64 = captures.iter().map(|capture| capture.amount).sum();
    let gateway = MockServer::start().await;
    Mock::given(matchers::path("/_mock/ledger"))
        .respond_with(
            ResponseTemplate::new(200).set_body_json(json!({"captures": listed, "count": count, "amount": amount})),
        )
        .mount(&gateway)
        .await;
    gateway
}
