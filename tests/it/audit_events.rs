//! The audit must be able to say no to what happens after the order: one healthy purchase with all that follows from it, one
//! corruption, and exactly that anomaly named.

use checkout::audit::Kind;
use uuid::Uuid;

use crate::{audit_world::Shop, support::keep_days};

/// Puts an event where a stage holds it.
async fn hold(shop: &Shop, stage: &str, event: Uuid, is_parked: bool) {
    let next = if is_parked { "NULL" } else { "db_clock() + interval '1 min'" };
    shop.execute(&format!(
        "INSERT INTO parked_events (stage, event_id, day, aggregate_id, sequence, type, payload, occurred_at, attempts, error, next_attempt_at)
         SELECT '{stage}', event_id, day, aggregate_id, sequence, type, payload, created_at, 5, 'no such mailbox', {next}
         FROM outbox WHERE event_id = '{event}'"
    ))
    .await;
}

#[tokio::test]
async fn an_event_that_is_not_in_the_log_after_the_grace_is_lost_unless_a_relay_holds_it() {
    let (shop, sale) = Shop::with_a_sale().await;
    for undone in ["event_log", "processed", "ledger_entries", "receipts"] {
        shop.execute(&format!("DELETE FROM {undone}")).await;
    }
    for sent_at in ["NULL", "created_at"] {
        shop.execute(&format!("UPDATE outbox SET created_at = db_clock() - interval '59 s', sent_at = {sent_at}"))
            .await;
        shop.assert_clean().await;
        shop.execute(&format!("UPDATE outbox SET created_at = db_clock() - interval '61 s', sent_at = {sent_at}"))
            .await;
        shop.assert_names(Kind::LostEvent, &sale.event.to_string()).await;
    }
    hold(&shop, "relay", sale.event, false).await;
    shop.assert_clean().await;
}

#[tokio::test]
async fn an_event_that_a_consumer_has_not_processed_is_lost_once_the_log_has_had_it_for_the_grace() {
    for (consumer, undone) in [("ledger", "ledger_entries"), ("receipts", "receipts")] {
        let (shop, sale) = Shop::with_a_sale().await;
        shop.age(60).await;
        shop.assert_clean().await;
        shop.execute(&format!("DELETE FROM processed WHERE consumer = '{consumer}'; DELETE FROM {undone}")).await;
        shop.assert_names(Kind::LostEvent, &sale.event.to_string()).await;
        let report = shop.audit().await;
        assert!(report.to_string().contains(&format!("was not processed by {consumer}")), "{report}");
        // It waited an hour in the outbox, and has just come into the log: on its way.
        shop.execute("UPDATE outbox SET sent_at = db_clock() - interval '59 s'").await;
        shop.assert_clean().await;
        shop.execute("UPDATE outbox SET sent_at = db_clock() - interval '61 s'").await;
        shop.assert_names(Kind::LostEvent, &sale.event.to_string()).await;
        // The other consumer's hold does not excuse this one.
        let other = if consumer == "ledger" { "receipts" } else { "ledger" };
        hold(&shop, other, sale.event, false).await;
        assert_eq!(shop.audit().await.kinds(), [Kind::LostEvent]);
        hold(&shop, consumer, sale.event, false).await;
        let report = shop.audit().await;
        assert!(report.is_clean(), "{report}");
        assert_eq!(report.counted.held, 2);
    }
}

#[tokio::test]
async fn an_order_whose_event_is_no_longer_kept_is_judged_by_its_ledger_entries() {
    let (shop, sale) = Shop::with_a_sale().await;
    shop.age(60 * 24 * 9).await;
    shop.execute("DELETE FROM outbox; DELETE FROM event_log; DELETE FROM processed").await;
    shop.assert_clean().await;
    shop.execute("DELETE FROM ledger_entries").await;
    shop.assert_names(Kind::LostEvent, &sale.order.to_string()).await;
}

/// Days come and go while an audit looks; one day of the log may be gone while the outbox still keeps it.
#[tokio::test]
async fn an_event_of_a_day_that_the_log_has_dropped_is_judged_by_who_processed_it() {
    let (shop, sale) = Shop::with_a_sale().await;
    shop.age(60).await;
    shop.execute(
        "DO $$ DECLARE part text; BEGIN
             SELECT inhrelid::regclass::text INTO part FROM pg_inherits JOIN pg_class ON oid = inhrelid
             WHERE inhparent = 'event_log'::regclass AND relname = 'event_log_' || to_char(db_day(), 'YYYY_MM_DD');
             EXECUTE 'DROP TABLE ' || part;
         END $$",
    )
    .await;
    shop.assert_clean().await;
    shop.execute("DELETE FROM processed WHERE consumer = 'ledger'; DELETE FROM ledger_entries").await;
    shop.assert_names(Kind::LostEvent, &sale.event.to_string()).await;
    keep_days(&shop.pool).await;
}

#[tokio::test]
async fn two_mails_for_one_event_are_a_repeated_effect() {
    let (mut shop, sale) = Shop::with_a_sale().await;
    shop.deliver(sale.event, sale.order);
    shop.assert_names(Kind::RepeatedEffect, &sale.event.to_string()).await;
    let report = shop.audit_without_mails().await;
    assert!(report.is_clean() && !report.mails_checked(), "{report}");
    assert!(report.to_string().contains("mails NOT CHECKED"), "{report}");
    assert_eq!(serde_json::to_value(&report).unwrap()["mails_checked"], false);
}

#[tokio::test]
async fn an_order_that_is_confirmed_by_the_mails_of_two_events_is_a_repeated_effect() {
    let (mut shop, sale) = Shop::with_a_sale().await;
    let second = shop.insert_event(sale.order, 2).await;
    shop.mail(second, sale.order).await;
    shop.assert_names(Kind::RepeatedEffect, &second.to_string()).await;
    // Our own receipts tell it too, where nobody asks the mail service.
    let report = shop.audit_without_mails().await;
    assert_eq!(report.kinds(), [Kind::RepeatedEffect], "{report}");
    // Two mails about two different things are none.
    let (shop, ..) = Shop::with_a_refund().await;
    assert!(shop.audit_without_mails().await.is_clean());
}

#[tokio::test]
async fn an_order_that_is_booked_by_two_events_is_a_repeated_effect() {
    let (shop, sale) = Shop::with_a_sale().await;
    let second = shop.insert_event(sale.order, 2).await;
    shop.book(second, sale.order, 4299).await;
    shop.assert_names(Kind::RepeatedEffect, &second.to_string()).await;
}

#[tokio::test]
async fn events_applied_or_logged_in_another_order_than_they_happened_are_out_of_order() {
    let (shop, sale) = Shop::with_a_sale().await;
    let second = shop.insert_event(sale.order, 2).await;
    shop.publish(second).await;
    shop.process(second, "ledger").await;
    shop.process(second, "receipts").await;
    // A repetition of the first behind the second is what brokers do.
    shop.publish(sale.event).await;
    shop.assert_clean().await;
    shop.execute(&format!(
        "UPDATE processed SET position = position - 1000 WHERE event_id = '{second}' AND consumer = 'ledger'"
    ))
    .await;
    shop.assert_names(Kind::OutOfOrder, &sale.order.to_string()).await;
    shop.execute(&format!(
        "UPDATE processed SET position = position + 1000 WHERE event_id = '{second}' AND consumer = 'ledger'"
    ))
    .await;
    shop.assert_clean().await;
    for swapped in [r#""offset" = -1"#, "partition = 5"] {
        shop.execute(&format!("UPDATE event_log SET {swapped} WHERE event_id = '{second}'")).await;
        shop.assert_names(Kind::OutOfOrder, &sale.order.to_string()).await;
        shop.execute(&format!(r#"UPDATE event_log SET partition = 0, "offset" = 1 WHERE event_id = '{second}'"#)).await;
        shop.assert_clean().await;
    }
    // One event in two partitions: whoever reads the other one is somebody else.
    shop.execute(r#"UPDATE event_log SET partition = 3 WHERE "offset" = 2"#).await;
    shop.assert_names(Kind::OutOfOrder, &sale.order.to_string()).await;
}

#[tokio::test]
async fn entries_that_do_not_add_up_to_zero_or_to_the_charge_are_an_unbalanced_ledger() {
    for wrong in [
        "UPDATE ledger_entries SET amount_minor = -4298 WHERE account = 'sales'",
        "UPDATE ledger_entries SET currency = 'usd' WHERE account = 'sales'",
        "DELETE FROM ledger_entries WHERE account = 'sales'",
        "DELETE FROM ledger_entries WHERE account = 'gateway'",
        // Balanced, and wrong.
        "UPDATE ledger_entries SET amount_minor = sign(amount_minor) * 4300",
        "UPDATE ledger_entries SET currency = 'usd'",
        "UPDATE ledger_entries SET amount_minor = -amount_minor",
        "DELETE FROM ledger_entries",
    ] {
        let (shop, sale) = Shop::with_a_sale().await;
        shop.execute(wrong).await;
        shop.assert_names(Kind::UnbalancedLedger, &sale.order.to_string()).await;
    }
}

/// Each order is right, and the whole is not: the gateway owes nothing for an order that does not exist.
#[tokio::test]
async fn an_account_that_differs_from_what_the_gateway_took_and_kept_is_an_unbalanced_ledger() {
    let (mut shop, _) = Shop::with_a_sale().await;
    shop.sell("second-key", None).await;
    let nobody = Uuid::now_v7();
    shop.book(Uuid::now_v7(), nobody, 100).await;
    shop.assert_names(Kind::UnbalancedLedger, &nobody.to_string()).await;
    let report = shop.audit().await;
    assert!(
        report.to_string().contains("stands at 8698 eur over what is booked, and the gateway took and kept 8598"),
        "{report}"
    );
}

#[tokio::test]
async fn an_order_whose_event_is_through_without_a_receipt_is_unsent() {
    let (shop, sale) = Shop::with_a_sale().await;
    shop.execute("DELETE FROM receipts").await;
    shop.assert_clean().await;
    shop.age(2).await;
    shop.assert_names(Kind::UnsentReceipt, &sale.order.to_string()).await;
    // Long after, when its event is no longer kept.
    shop.age(60 * 24 * 9).await;
    shop.execute("DELETE FROM outbox; DELETE FROM event_log; DELETE FROM processed").await;
    shop.assert_names(Kind::UnsentReceipt, &sale.order.to_string()).await;
}

#[tokio::test]
async fn a_receipt_whose_mail_was_never_delivered_is_unsent_unless_it_is_newer_than_the_list() {
    let (mut shop, sale) = Shop::with_a_sale().await;
    let before =
        sqlx::query_scalar("SELECT least(r.sent_at, c.created_at) - interval '1 ms' FROM receipts AS r, charges AS c")
            .fetch_one(&shop.pool)
            .await
            .unwrap();
    shop.mails.clear();
    shop.assert_names(Kind::UnsentReceipt, &sale.event.to_string()).await;
    let report = shop.audit_asked_at(before).await;
    assert!(report.is_clean(), "{report}");
}

#[tokio::test]
async fn a_mail_whose_receipt_is_not_committed_yet_is_no_anomaly() {
    let (mut shop, _) = Shop::with_a_sale().await;
    shop.deliver(Uuid::now_v7(), Uuid::now_v7());
    shop.assert_clean().await;
}

#[tokio::test]
async fn an_event_that_waits_for_a_person_is_parked_with_what_waits_behind_it() {
    for stage in ["relay", "ledger", "receipts"] {
        let (shop, sale) = Shop::with_a_sale().await;
        shop.age(60).await;
        match stage {
            "relay" => shop.execute("UPDATE outbox SET sent_at = NULL; DELETE FROM event_log; DELETE FROM processed; DELETE FROM ledger_entries; DELETE FROM receipts").await,
            "ledger" => shop.execute("DELETE FROM processed WHERE consumer = 'ledger'; DELETE FROM ledger_entries").await,
            _ => shop.execute("DELETE FROM processed WHERE consumer = 'receipts'; DELETE FROM receipts").await,
        }
        hold(&shop, stage, sale.event, true).await;
        let second = shop.insert_event(sale.order, 2).await;
        if stage != "relay" {
            shop.publish(second).await;
            hold(&shop, stage, second, false).await;
        }
        shop.assert_names(Kind::Parked, &sale.event.to_string()).await;
        let report = shop.audit().await;
        assert!(report.to_string().contains("with 1 behind it: no such mailbox"), "{report}");
    }
}
