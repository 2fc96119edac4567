//! The audit of charges that stand alone: it must be able to say no to each of them too. One healthy charge, one corruption, and
//! exactly that anomaly named.

use checkout::audit::Kind;
use uuid::Uuid;

use crate::audit_world::Shop;

#[tokio::test]
async fn a_completed_record_without_its_charge_is_a_lost_charge() {
    let (shop, lone) = Shop::with_a_charge().await;
    let other = Uuid::now_v7();
    for (column, promised) in [
        ("response_location", format!("'/v1/charges/{other}'")),
        ("response_body", format!("'{{\"id\":\"{other}\"}}'::bytea")),
        ("response_location", "NULL".to_owned()),
    ] {
        shop.execute(&format!("UPDATE idempotency_records SET {column} = {promised}")).await;
        shop.assert_names(Kind::LostCharge, &lone.charge.to_string()).await;
        shop.execute(&format!(
            "UPDATE idempotency_records SET response_location = '/v1/charges/{0}', response_body = '{0}'::bytea",
            lone.charge
        ))
        .await;
        shop.assert_clean().await;
    }
}

#[tokio::test]
async fn a_succeeded_charge_whose_record_says_declined_is_lost_but_one_whose_record_was_dropped_is_not() {
    let (shop, lone) = Shop::with_a_charge().await;
    shop.execute("UPDATE idempotency_records SET state = 'failed'").await;
    shop.assert_names(Kind::LostCharge, &lone.charge.to_string()).await;
    let report = shop.audit().await;
    assert_eq!(report.anomalies[0].key, Some(lone.digest.to_string()));
    shop.execute("DELETE FROM idempotency_records").await;
    shop.assert_clean().await;
}

/// Of a charge that stands alone nobody misses an order; behind one that does not there must be one.
#[tokio::test]
async fn a_charge_that_was_taken_for_an_order_and_has_none_is_a_lost_order() {
    let (mut shop, _) = Shop::with_a_charge().await;
    let sale = shop.sell("first-key", None).await;
    let undone = ["orders", "outbox", "event_log", "ledger_entries", "receipts"].map(|table| {
        format!(
            "DELETE FROM {table} WHERE {} = '{}'",
            if table == "orders" { "id" } else { "aggregate_id" },
            sale.order
        )
    });
    shop.execute(&undone.join(";")).await;
    shop.assert_names(Kind::LostOrder, &sale.charge.to_string()).await;
}

#[tokio::test]
async fn a_charge_that_the_gateway_gave_back_behind_our_back_is_a_refund_mismatch() {
    let (mut shop, lone) = Shop::with_a_charge().await;
    for refunded in [1, 4299] {
        shop.captures[0].amount_refunded = refunded;
        shop.assert_names(Kind::RefundMismatch, &lone.capture.payment_intent).await;
    }
}

#[tokio::test]
async fn a_charge_without_its_first_event_is_named_while_its_day_is_kept() {
    let (shop, lone) = Shop::with_a_charge().await;
    shop.execute("UPDATE outbox SET sequence = 2").await;
    shop.assert_names(Kind::MissingEvent, &lone.charge.to_string()).await;
}

#[tokio::test]
async fn an_event_of_a_charge_that_is_declined_or_an_orders_explains_nothing() {
    let (mut shop, lone) = Shop::with_a_charge().await;
    let sale = shop.sell("first-key", None).await;
    for nobody in [Uuid::now_v7(), sale.charge] {
        let event = shop.insert_event(nobody, 1).await;
        shop.execute(&format!("UPDATE outbox SET type = 'charge.succeeded' WHERE event_id = '{event}'")).await;
        shop.assert_names(Kind::EventWithoutOrder, &nobody.to_string()).await;
        shop.execute(&format!("DELETE FROM outbox WHERE event_id = '{event}'")).await;
    }
    // A charge is no order.
    shop.execute("UPDATE outbox SET type = 'order.created'").await;
    shop.assert_names(Kind::EventWithoutOrder, &lone.charge.to_string()).await;
}

#[tokio::test]
async fn a_charge_whose_event_is_no_longer_kept_is_judged_by_its_ledger_entries_and_its_receipt() {
    let (shop, lone) = Shop::with_a_charge().await;
    shop.age(60 * 24 * 9).await;
    shop.execute("DELETE FROM outbox; DELETE FROM event_log; DELETE FROM processed").await;
    shop.assert_clean().await;
    shop.execute("DELETE FROM receipts").await;
    shop.assert_names(Kind::UnsentReceipt, &lone.charge.to_string()).await;
    shop.execute("DELETE FROM ledger_entries").await;
    shop.assert_names(Kind::LostEvent, &lone.charge.to_string()).await;
}

#[tokio::test]
async fn a_charge_whose_event_is_through_without_a_receipt_is_unsent() {
    let (shop, lone) = Shop::with_a_charge().await;
    shop.execute("DELETE FROM receipts").await;
    shop.assert_clean().await;
    shop.age(2).await;
    shop.assert_names(Kind::UnsentReceipt, &lone.charge.to_string()).await;
}

#[tokio::test]
async fn a_charge_that_is_booked_or_confirmed_twice_is_a_repeated_effect() {
    let (shop, lone) = Shop::with_a_charge().await;
    shop.book(Uuid::now_v7(), lone.charge, 4299).await;
    shop.assert_names(Kind::RepeatedEffect, &lone.charge.to_string()).await;

    let (mut shop, lone) = Shop::with_a_charge().await;
    let second = shop.insert_event(lone.charge, 2).await;
    shop.execute("UPDATE outbox SET type = 'charge.succeeded'").await;
    shop.mail(second, lone.charge).await;
    shop.assert_names(Kind::RepeatedEffect, &second.to_string()).await;
    let report = shop.audit_without_mails().await;
    assert_eq!(report.kinds(), [Kind::RepeatedEffect], "{report}");
}

#[tokio::test]
async fn entries_that_do_not_add_up_to_a_charge_are_an_unbalanced_ledger() {
    for wrong in [
        "UPDATE ledger_entries SET amount_minor = sign(amount_minor) * 4300",
        "UPDATE ledger_entries SET currency = 'usd'",
        "UPDATE ledger_entries SET amount_minor = -amount_minor",
        "DELETE FROM ledger_entries",
    ] {
        let (shop, lone) = Shop::with_a_charge().await;
        shop.execute(wrong).await;
        shop.assert_names(Kind::UnbalancedLedger, &lone.charge.to_string()).await;
    }
}

/// A charge that stands alone is in the balance, and a declined one is not.
#[tokio::test]
async fn entries_of_a_charge_that_took_nothing_are_an_unbalanced_ledger() {
    let (shop, lone) = Shop::with_a_charge().await;
    shop.charge_declined("alone-2").await;
    let declined: Uuid =
        sqlx::query_scalar("SELECT id FROM charges WHERE status = 'declined'").fetch_one(&shop.pool).await.unwrap();
    shop.book(Uuid::now_v7(), declined, 100).await;
    shop.assert_names(Kind::UnbalancedLedger, &declined.to_string()).await;
    let report = shop.audit().await;
    assert!(
        report.to_string().contains("stands at 4399 eur over what is booked, and the gateway took and kept 4299"),
        "{report}"
    );
    assert!(!report.to_string().contains(&lone.charge.to_string()), "{report}");
}

#[tokio::test]
async fn an_event_of_a_charge_that_a_consumer_has_not_processed_is_lost() {
    for (consumer, undone) in [("ledger", "ledger_entries"), ("receipts", "receipts")] {
        let (shop, lone) = Shop::with_a_charge().await;
        shop.age(2).await;
        shop.execute(&format!("DELETE FROM processed WHERE consumer = '{consumer}'; DELETE FROM {undone}")).await;
        shop.assert_names(Kind::LostEvent, &lone.event.to_string()).await;
    }
}
