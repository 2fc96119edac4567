//! The audit of refunds: what goes back must be in our books, at the gateway and in what follows, once and by the same amount.
//! One healthy refund, one corruption, and exactly that anomaly named.

use checkout::audit::Kind;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::audit_world::Shop;

#[tokio::test]
async fn orders_with_refunds_of_every_kind_and_charges_that_stand_alone_are_clean() {
    let mut shop = Shop::open().await;
    let partly = shop.sell("partly", Some("tap-1")).await;
    let wholly = shop.sell("wholly", Some("tap-2")).await;
    let open = shop.sell("open", None).await;
    shop.sell("kept", None).await;
    shop.refund(&partly, "back-1", 1000).await;
    shop.refund(&partly, "back-2", 299).await;
    shop.refund_refused(&partly, "back-3", 3000).await;
    shop.refund(&wholly, "back-4", 4000).await;
    shop.refund(&wholly, "back-5", 299).await;
    shop.refund_unknown(&open, "back-6", 4299).await;
    shop.charge_alone("alone-1").await;
    shop.charge_declined("alone-2").await;
    shop.assert_clean().await;
    let report = shop.audit_without_mails().await;
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.counted.orders, report.counted.charges, report.counted.refunds), (4, 6, 6));
    // Days later too, when only what is kept for good is left.
    shop.age(60 * 24 * 9).await;
    shop.execute("DELETE FROM outbox; DELETE FROM event_log; DELETE FROM processed").await;
    shop.assert_clean().await;
}

#[tokio::test]
async fn a_completed_record_without_its_refund_is_a_lost_refund() {
    let (shop, sale, back) = Shop::with_a_refund().await;
    let (order, other) = (sale.order, Uuid::now_v7());
    for (column, promised) in [
        ("response_location", format!("'/v1/orders/{order}/refunds/{other}'")),
        ("response_body", format!("'{{\"id\":\"{other}\"}}'::bytea")),
        ("response_location", "NULL".to_owned()),
    ] {
        shop.execute(&format!("UPDATE idempotency_records SET {column} = {promised} WHERE key = 'back-1'")).await;
        shop.assert_names(Kind::LostRefund, &back.refund.to_string()).await;
        shop.execute(&format!(
            "UPDATE idempotency_records SET response_location = '/v1/orders/{order}/refunds/{0}', response_body = '{0}'::bytea
             WHERE key = 'back-1'",
            back.refund
        ))
        .await;
        shop.assert_clean().await;
    }
}

#[tokio::test]
async fn a_succeeded_refund_whose_record_says_refused_is_lost_but_one_whose_record_was_dropped_is_not() {
    let (shop, _, back) = Shop::with_a_refund().await;
    shop.execute("UPDATE idempotency_records SET state = 'failed' WHERE key = 'back-1'").await;
    shop.assert_names(Kind::LostRefund, &back.refund.to_string()).await;
    assert_eq!(shop.audit().await.anomalies[0].key, Some(back.digest.to_string()));
    shop.execute("DELETE FROM idempotency_records WHERE key = 'back-1'").await;
    shop.assert_clean().await;
}

#[tokio::test]
async fn what_the_gateway_gave_back_and_our_refunds_must_agree() {
    let (mut shop, sale, _) = Shop::with_a_refund().await;
    for refunded in [0, 999, 1001, 4299] {
        shop.captures[0].amount_refunded = refunded;
        shop.assert_names(Kind::RefundMismatch, &sale.capture.payment_intent).await;
    }
    let report = shop.audit().await;
    assert!(report.to_string().contains("the gateway gave 4299 eur back, and our refunds say 1000"), "{report}");
}

/// Nobody knows yet whether it went back: both is right, and nothing between or beyond.
#[tokio::test]
async fn a_refund_whose_outcome_is_open_may_have_gone_back_or_not() {
    let (mut shop, sale, _) = Shop::with_a_refund().await;
    shop.refund_unknown(&sale, "back-2", 500).await;
    for (refunded, agrees) in [(999, false), (1000, true), (1500, true), (1501, false)] {
        shop.captures[0].amount_refunded = refunded;
        match agrees {
            true => shop.assert_clean().await,
            false => shop.assert_names(Kind::RefundMismatch, &sale.capture.payment_intent).await,
        }
    }
    let report = shop.audit().await;
    assert!(report.to_string().contains("our refunds say 1000 to 1500"), "{report}");
}

#[tokio::test]
async fn a_refund_that_ended_after_the_ledger_was_asked_may_be_missing_in_it() {
    let (mut shop, sale, _) = Shop::with_a_refund().await;
    let before: OffsetDateTime = sqlx::query_scalar(
        "SELECT least(finished_at, (SELECT min(created_at) FROM charges)) - interval '1 ms' FROM refunds",
    )
    .fetch_one(&shop.pool)
    .await
    .unwrap();
    for (refunded, agrees) in [(0, true), (1000, true), (1001, false)] {
        shop.captures[0].amount_refunded = refunded;
        let report = shop.audit_asked_at(before).await;
        assert_eq!(report.found(Kind::RefundMismatch), u64::from(!agrees), "{report}");
        assert_eq!(report.is_clean(), agrees, "{report}");
    }
    shop.captures[0].amount_refunded = 0;
    shop.assert_names(Kind::RefundMismatch, &sale.charge.to_string()).await;
}

#[tokio::test]
async fn what_an_order_counts_as_given_back_must_be_the_sum_of_its_refunds() {
    for wrong in [
        "refund_reserved_minor = 999",
        "refund_reserved_minor = 1001",
        "refunded_minor = 999",
        "refunded_minor = 0, refund_reserved_minor = 0",
        "status = 'paid'",
        "status = 'refunded'",
    ] {
        let (shop, sale, _) = Shop::with_a_refund().await;
        shop.execute(
            "ALTER TABLE orders DROP CONSTRAINT orders_status_known; ALTER TABLE orders DROP CONSTRAINT orders_refunds_within_total",
        )
        .await;
        shop.execute(&format!("UPDATE orders SET {wrong}")).await;
        shop.assert_names(Kind::RefundMismatch, &sale.order.to_string()).await;
    }
}

#[tokio::test]
async fn no_more_is_given_back_than_was_taken() {
    let (mut shop, sale, _) = Shop::with_a_refund().await;
    shop.execute(
        "ALTER TABLE orders DROP CONSTRAINT orders_status_known; ALTER TABLE orders DROP CONSTRAINT orders_refunds_within_total",
    )
    .await;
    // Every sum agrees, at the gateway too; it is only too much.
    let second = shop.refund(&sale, "back-2", 3300).await;
    shop.assert_names(Kind::RefundMismatch, &sale.order.to_string()).await;
    let report = shop.audit().await;
    assert!(report.to_string().contains("it cost 4299, and its refunds give or hold 4300 back"), "{report}");
    assert!(!report.to_string().contains(&second.refund.to_string()), "{report}");
}

#[tokio::test]
async fn a_refund_goes_back_in_the_currency_of_its_order() {
    let (shop, sale, back) = Shop::with_a_refund().await;
    shop.execute(&format!(
        "UPDATE refunds SET currency = 'usd'; UPDATE ledger_entries SET currency = 'usd' WHERE event_id = '{}'",
        back.event
    ))
    .await;
    shop.assert_names(Kind::RefundMismatch, &sale.order.to_string()).await;
}

#[tokio::test]
async fn what_is_held_back_for_a_refund_that_nobody_is_at_is_named() {
    for wrong in [
        "UPDATE idempotency_records SET state = 'failed', next_attempt_at = NULL, response_status = 409, response_content_type = 'x',
                response_body = '', finished_at = db_clock() WHERE key = 'back-2'",
        "DELETE FROM idempotency_records WHERE key = 'back-2'",
        "UPDATE idempotency_records SET state = 'in_flight', next_attempt_at = NULL, lease_until = db_clock(), first_sent_at = NULL
         WHERE key = 'back-2'",
    ] {
        let (shop, sale, _) = Shop::with_a_refund().await;
        let held = shop.refund_unknown(&sale, "back-2", 500).await;
        shop.assert_clean().await;
        shop.execute(wrong).await;
        shop.assert_names(Kind::RefundMismatch, &held.to_string()).await;
    }
}

/// An outcome that is open keeps its reservation.
#[tokio::test]
async fn a_refund_under_way_without_its_amount_held_back_is_named() {
    let (shop, sale, _) = Shop::with_a_refund().await;
    let held = shop.refund_unknown(&sale, "back-2", 500).await;
    shop.execute("UPDATE refunds SET status = 'released' WHERE status = 'reserved'; UPDATE orders SET refund_reserved_minor = 1000").await;
    shop.assert_names(Kind::RefundMismatch, &held.to_string()).await;
    shop.execute("DELETE FROM refunds WHERE status = 'released'").await;
    shop.assert_names(Kind::RefundMismatch, &held.to_string()).await;
}

#[tokio::test]
async fn a_refund_without_its_event_is_named() {
    let (shop, sale, back) = Shop::with_a_refund().await;
    shop.execute(&format!("DELETE FROM outbox WHERE event_id = '{}'", back.event)).await;
    shop.assert_names(Kind::MissingEvent, &back.refund.to_string()).await;
    let report = shop.audit().await;
    assert_eq!(report.anomalies[0].ids, [back.refund, sale.order, back.event].map(|id| id.to_string()));
}

#[tokio::test]
async fn an_event_of_a_refund_that_is_not_there_is_named() {
    let (shop, sale, _) = Shop::with_a_refund().await;
    let second = shop.insert_event(sale.order, 3).await;
    shop.assert_clean().await;
    shop.execute(&format!("UPDATE outbox SET type = 'order.refunded' WHERE event_id = '{second}'")).await;
    shop.assert_names(Kind::EventWithoutOrder, &second.to_string()).await;
}

#[tokio::test]
async fn an_event_of_a_refund_that_nobody_has_booked_yet_is_no_anomaly_until_it_is_lost() {
    let (shop, _, back) = Shop::with_a_refund().await;
    shop.execute(&format!(
        "DELETE FROM processed WHERE event_id = '{0}'; DELETE FROM ledger_entries WHERE event_id = '{0}'; DELETE FROM receipts WHERE event_id = '{0}';
         DELETE FROM event_log WHERE event_id = '{0}'; UPDATE outbox SET sent_at = NULL WHERE event_id = '{0}'",
        back.event
    ))
    .await;
    shop.assert_clean().await;
    shop.age(2).await;
    shop.assert_names(Kind::LostEvent, &back.event.to_string()).await;
}

/// The order's own entries do not hide it, nor the other way round.
#[tokio::test]
async fn a_refund_whose_event_is_no_longer_kept_is_judged_by_its_ledger_entries() {
    for (of_refund, lost) in [(true, "<"), (false, ">")] {
        let (shop, sale, back) = Shop::with_a_refund().await;
        shop.age(60 * 24 * 9).await;
        shop.execute("DELETE FROM outbox; DELETE FROM event_log; DELETE FROM processed").await;
        shop.assert_clean().await;
        shop.execute(&format!(
            "DELETE FROM ledger_entries WHERE event_id IN (SELECT event_id FROM ledger_entries WHERE account = 'gateway' AND amount_minor {lost} 0)"
        ))
        .await;
        let named = if of_refund { back.refund } else { sale.order };
        shop.assert_names(Kind::LostEvent, &named.to_string()).await;
    }
}

#[tokio::test]
async fn a_refund_that_is_booked_otherwise_than_it_was_given_back_is_an_unbalanced_ledger() {
    for wrong in [
        "UPDATE ledger_entries SET amount_minor = sign(amount_minor) * 999",
        "UPDATE ledger_entries SET currency = 'usd'",
        "UPDATE ledger_entries SET amount_minor = -amount_minor",
        "DELETE FROM ledger_entries",
        "UPDATE ledger_entries SET event_id = '00000000-0000-7000-8000-000000000001'",
    ] {
        let (shop, sale, back) = Shop::with_a_refund().await;
        shop.execute(&format!("{wrong} WHERE event_id = '{}'", back.event)).await;
        shop.assert_names(Kind::UnbalancedLedger, &sale.order.to_string()).await;
    }
}

#[tokio::test]
async fn money_that_is_booked_back_without_any_refund_is_an_unbalanced_ledger() {
    let (shop, sale) = Shop::with_a_sale().await;
    let event = Uuid::now_v7();
    shop.book(event, sale.order, -1000).await;
    shop.assert_names(Kind::UnbalancedLedger, &event.to_string()).await;
}

#[tokio::test]
async fn a_refund_that_is_booked_twice_is_a_repeated_effect() {
    let (shop, sale, back) = Shop::with_a_refund().await;
    let second = Uuid::now_v7();
    shop.book(second, sale.order, -1000).await;
    shop.assert_names(Kind::RepeatedEffect, &second.to_string()).await;
    shop.assert_names(Kind::RepeatedEffect, &back.event.to_string()).await;
}

/// Each mail is missed by itself: that of the order is not hidden by that of its refund, nor the other way round.
#[tokio::test]
async fn a_receipt_of_the_order_and_one_of_its_refund_are_missed_each() {
    for of_refund in [false, true] {
        for kept in [true, false] {
            let (shop, sale, back) = Shop::with_a_refund().await;
            let (event, named) = if of_refund { (back.event, back.refund) } else { (sale.event, sale.order) };
            shop.execute(&format!("DELETE FROM receipts WHERE event_id = '{event}'")).await;
            shop.assert_clean().await;
            shop.age(2).await;
            if !kept {
                shop.age(60 * 24 * 9).await;
                shop.execute("DELETE FROM outbox; DELETE FROM event_log; DELETE FROM processed").await;
            }
            shop.assert_names(Kind::UnsentReceipt, &named.to_string()).await;
        }
    }
}

#[tokio::test]
async fn a_refund_that_failed_counts_for_nothing_and_its_traces_cancel_out() {
    let (mut shop, sale, back) = Shop::with_a_refund().await;
    shop.fail_refund(&sale, &back, 1000).await;
    shop.assert_clean().await;
    // All of it can go back all the same.
    shop.refund(&sale, "back-2", 4299).await;
    shop.assert_clean().await;
    shop.age(60 * 24 * 9).await;
    shop.execute("DELETE FROM outbox; DELETE FROM event_log; DELETE FROM processed").await;
    shop.assert_clean().await;
}

/// Of two companies one has not heard: whichever it is, the audit has.
#[tokio::test]
async fn a_refund_that_failed_in_one_of_two_books_is_named() {
    let (mut shop, sale, back) = Shop::with_a_refund().await;
    shop.give_back_at_gateway(&sale, -1000);
    shop.assert_names(Kind::RefundMismatch, &sale.capture.payment_intent).await;
    shop.fail_refund(&sale, &back, 1000).await;
    shop.give_back_at_gateway(&sale, 1000);
    shop.assert_clean().await;
    shop.give_back_at_gateway(&sale, 1000);
    shop.assert_names(Kind::RefundMismatch, &sale.capture.payment_intent).await;
}

/// The gateway's list may be older than the failure, and then still counts it.
#[tokio::test]
async fn a_refund_that_failed_after_the_ledger_was_asked_may_still_be_in_it() {
    let (mut shop, sale, back) = Shop::with_a_refund().await;
    let before: OffsetDateTime = sqlx::query_scalar("SELECT db_clock()").fetch_one(&shop.pool).await.unwrap();
    shop.fail_refund(&sale, &back, 1000).await;
    for (refunded, agrees) in [(0, true), (1000, true), (1001, false)] {
        shop.captures[0].amount_refunded = refunded;
        let report = shop.audit_asked_at(before).await;
        assert_eq!(report.found(Kind::RefundMismatch), u64::from(!agrees), "{report}");
    }
}

#[tokio::test]
async fn every_trace_of_a_failure_is_missed_by_itself() {
    for (wrong, kind) in [
        ("DELETE FROM outbox WHERE event_id = '{}'", Kind::MissingEvent),
        (
            "UPDATE ledger_entries SET amount_minor = sign(amount_minor) * 999 WHERE event_id = '{}'",
            Kind::UnbalancedLedger,
        ),
        ("UPDATE ledger_entries SET amount_minor = -amount_minor WHERE event_id = '{}'", Kind::UnbalancedLedger),
        ("DELETE FROM ledger_entries WHERE event_id = '{}'", Kind::UnbalancedLedger),
        ("UPDATE orders SET refund_reserved_minor = 1000; DELETE FROM orders WHERE '{}' = ''", Kind::RefundMismatch),
        ("UPDATE idempotency_records SET state = 'failed' WHERE key = 'back-1' AND '{}' <> ''", Kind::LostRefund),
    ] {
        let (mut shop, sale, back) = Shop::with_a_refund().await;
        let event = shop.fail_refund(&sale, &back, 1000).await;
        shop.execute(&wrong.replace("{}", &event.to_string())).await;
        let report = shop.audit().await;
        assert_eq!(report.kinds(), [kind], "{wrong}: {report}");
    }
}

#[tokio::test]
async fn a_failure_without_its_mail_is_missed_and_one_that_is_booked_twice_is_named() {
    let (mut shop, sale, back) = Shop::with_a_refund().await;
    let event = shop.fail_refund(&sale, &back, 1000).await;
    shop.execute(&format!("DELETE FROM receipts WHERE event_id = '{event}'")).await;
    shop.age(2).await;
    shop.assert_names(Kind::UnsentReceipt, &back.refund.to_string()).await;
    let (mut shop, sale, back) = Shop::with_a_refund().await;
    shop.fail_refund(&sale, &back, 1000).await;
    let second = Uuid::now_v7();
    shop.book(second, sale.order, 1000).await;
    shop.assert_names(Kind::RepeatedEffect, &second.to_string()).await;
}
