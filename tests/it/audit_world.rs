//! What the audit's tests have in their hands: a checkout's database, a gateway's ledger and a mail service's list, healthy
//! until a test breaks one of them.

use checkout::{
    audit::{self, AuditOptions, Capture, Kind, Ledger, Mail, Mails, Report},
    idempotency::key::{IdempotencyKey, Operation, Scope, ScopeDigest},
    ids::CustomerId,
};
use sqlx::{AssertSqlSafe, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::support::{TestDatabase, keep_days};

pub(crate) const CUSTOMER: i64 = 42;

/// A checkout's database beside a gateway's ledger, both in our hands.
pub(crate) struct Shop {
    pub(crate) pool: PgPool,
    pub(crate) captures: Vec<Capture>,
    pub(crate) mails: Vec<Mail>,
}

/// One healthy purchase.
pub(crate) struct Sale {
    pub(crate) digest: ScopeDigest,
    pub(crate) order: Uuid,
    pub(crate) charge: Uuid,
    pub(crate) capture: Capture,
    pub(crate) event: Uuid,
}

/// One healthy refund of an order.
pub(crate) struct GivenBack {
    pub(crate) digest: ScopeDigest,
    pub(crate) refund: Uuid,
    pub(crate) event: Uuid,
}

/// One healthy charge that stands alone.
pub(crate) struct Lone {
    pub(crate) digest: ScopeDigest,
    pub(crate) charge: Uuid,
    pub(crate) capture: Capture,
    pub(crate) event: Uuid,
}

impl Shop {
    pub(crate) async fn open() -> Self {
        let pool = TestDatabase::create().await.pool().await;
        keep_days(&pool).await;
        Self { pool, captures: Vec::new(), mails: Vec::new() }
    }

    /// Opens with one healthy purchase, and sees that the audit has nothing against it.
    pub(crate) async fn with_a_sale() -> (Self, Sale) {
        let mut shop = Self::open().await;
        let sale = shop.sell("first-key", Some("tap-1")).await;
        shop.assert_clean().await;
        (shop, sale)
    }

    pub(crate) async fn sell(&mut self, key: &str, reference: Option<&str>) -> Sale {
        self.sell_to(CUSTOMER, key, reference).await
    }

    pub(crate) async fn sell_to(&mut self, customer: i64, key: &str, reference: Option<&str>) -> Sale {
        let digest = digest_of(customer, key);
        let (order, charge) = (Uuid::now_v7(), Uuid::now_v7());
        let capture = capture(digest, reference);
        self.insert_charge(charge, digest, &capture.payment_intent).await;
        self.execute(&format!(
            "INSERT INTO orders (id, customer_id, charge_id, key_digest, status, total_minor, currency, items, client_reference)
             VALUES ('{order}', {customer}, '{charge}', '\\x{digest}', 'paid', 4299, 'eur', '[]', {})",
            reference.map_or("NULL".to_owned(), |reference| format!("'{reference}'")),
        ))
        .await;
        let event = self.follow_up(order).await;
        self.insert_record(digest, customer, key, order, "completed").await;
        self.captures.push(capture.clone());
        Sale { digest, order, charge, capture, event }
    }

    /// Opens with one healthy purchase and a refund of 1000 of it.
    pub(crate) async fn with_a_refund() -> (Self, Sale, GivenBack) {
        let (mut shop, sale) = Self::with_a_sale().await;
        let back = shop.refund(&sale, "back-1", 1000).await;
        shop.assert_clean().await;
        (shop, sale, back)
    }

    /// Opens with one healthy charge that stands alone.
    pub(crate) async fn with_a_charge() -> (Self, Lone) {
        let mut shop = Self::open().await;
        let lone = shop.charge_alone("alone-1").await;
        shop.assert_clean().await;
        (shop, lone)
    }

    /// A refund that succeeded, with all that follows from it.
    pub(crate) async fn refund(&mut self, sale: &Sale, key: &str, amount: i64) -> GivenBack {
        let (refund, event, order) = (Uuid::now_v7(), Uuid::now_v7(), sale.order);
        let digest = digest_for(Operation::RefundOrder, CUSTOMER, key);
        self.insert_refund(refund, sale, digest, amount, "succeeded", Some(event)).await;
        self.execute(&format!(
            "UPDATE orders SET refund_reserved_minor = refund_reserved_minor + {amount}, refunded_minor = refunded_minor + {amount},
                    events = events + 1,
                    status = CASE WHEN refunded_minor + {amount} < total_minor THEN 'partially_refunded' ELSE 'refunded' END
             WHERE id = '{order}';
             INSERT INTO outbox (day, event_id, aggregate_id, sequence, shard, type, payload)
             SELECT db_day(), '{event}', id, events, 0, 'order.refunded', '{{}}' FROM orders WHERE id = '{order}'"
        ))
        .await;
        self.give_back_at_gateway(sale, amount);
        self.go_through(event, order, -amount).await;
        let location = format!("/v1/orders/{order}/refunds/{refund}");
        self.insert_record_of(Operation::RefundOrder, digest, key, refund, &location, "completed").await;
        GivenBack { digest, refund, event }
    }

    /// A refund that had succeeded fails, with all that follows from it. Its event is returned.
    pub(crate) async fn fail_refund(&mut self, sale: &Sale, back: &GivenBack, amount: i64) -> Uuid {
        let (event, order) = (Uuid::now_v7(), sale.order);
        self.execute(&format!(
            "UPDATE refunds SET status = 'failed', failed_at = db_clock(), failure_event_id = '{event}' WHERE id = '{}';
             UPDATE orders SET refund_reserved_minor = refund_reserved_minor - {amount}, refunded_minor = refunded_minor - {amount},
                    events = events + 1,
                    status = CASE WHEN refunded_minor = {amount} THEN 'paid' ELSE 'partially_refunded' END
             WHERE id = '{order}';
             INSERT INTO outbox (day, event_id, aggregate_id, sequence, shard, type, payload)
             SELECT db_day(), '{event}', id, events, 0, 'refund.failed', '{{}}' FROM orders WHERE id = '{order}'",
            back.refund
        ))
        .await;
        self.give_back_at_gateway(sale, -amount);
        self.go_through(event, order, amount).await;
        event
    }

    /// A refund whose outcome is open. The gateway may have given it back already.
    pub(crate) async fn refund_unknown(&self, sale: &Sale, key: &str, amount: i64) -> Uuid {
        let refund = Uuid::now_v7();
        let digest = digest_for(Operation::RefundOrder, CUSTOMER, key);
        self.insert_refund(refund, sale, digest, amount, "reserved", None).await;
        self.execute(&format!(
            "UPDATE orders SET refund_reserved_minor = refund_reserved_minor + {amount} WHERE id = '{}'",
            sale.order
        ))
        .await;
        self.insert_record_of(Operation::RefundOrder, digest, key, refund, "", "unknown").await;
        refund
    }

    /// A refund that the gateway refused.
    pub(crate) async fn refund_refused(&self, sale: &Sale, key: &str, amount: i64) -> Uuid {
        let refund = Uuid::now_v7();
        let digest = digest_for(Operation::RefundOrder, CUSTOMER, key);
        self.insert_refund(refund, sale, digest, amount, "refused", None).await;
        self.insert_record_of(Operation::RefundOrder, digest, key, refund, "", "failed").await;
        refund
    }

    async fn insert_refund(
        &self,
        id: Uuid,
        sale: &Sale,
        digest: ScopeDigest,
        amount: i64,
        status: &str,
        event: Option<Uuid>,
    ) {
        let (gateway_id, event) = event.map_or(("NULL".to_owned(), "NULL".to_owned()), |event| {
            (format!("'re_{}'", event.simple()), format!("'{event}'"))
        });
        let refusal = if status == "refused" { "'no'" } else { "NULL" };
        let finished_at = if matches!(status, "succeeded" | "refused") { "db_clock()" } else { "NULL" };
        self.execute(&format!(
            "INSERT INTO refunds (id, order_id, customer_id, key_digest, amount_minor, currency, status, gateway_id, refusal, event_id, finished_at)
             VALUES ('{id}', '{}', {CUSTOMER}, '\\x{digest}', {amount}, 'eur', '{status}', {gateway_id}, {refusal}, {event}, {finished_at})",
            sale.order
        ))
        .await;
    }

    /// The gateway gives back, whoever asked for it.
    pub(crate) fn give_back_at_gateway(&mut self, sale: &Sale, amount: i64) {
        let taken = self.captures.iter_mut().find(|taken| taken.payment_intent == sale.capture.payment_intent);
        taken.expect("a capture").amount_refunded += amount;
    }

    /// A charge without an order, with all that follows from it.
    pub(crate) async fn charge_alone(&mut self, key: &str) -> Lone {
        let charge = Uuid::now_v7();
        let digest = digest_for(Operation::CreateCharge, CUSTOMER, key);
        let capture = capture(digest, Some(key));
        self.insert_charge(charge, digest, &capture.payment_intent).await;
        self.execute(&format!("UPDATE charges SET operation = 'charges.create' WHERE id = '{charge}'")).await;
        let event = self.insert_event(charge, 1).await;
        self.execute(&format!("UPDATE outbox SET type = 'charge.succeeded' WHERE event_id = '{event}'")).await;
        self.go_through(event, charge, 4299).await;
        let location = format!("/v1/charges/{charge}");
        self.insert_record_of(Operation::CreateCharge, digest, key, charge, &location, "completed").await;
        self.captures.push(capture.clone());
        Lone { digest, charge, capture, event }
    }

    /// A charge without an order that the gateway declined.
    pub(crate) async fn charge_declined(&self, key: &str) {
        let charge = Uuid::now_v7();
        let digest = digest_for(Operation::CreateCharge, CUSTOMER, key);
        self.execute(&format!(
            "INSERT INTO charges (id, customer_id, key_digest, amount_minor, currency, status, decline_code, operation)
             VALUES ('{charge}', {CUSTOMER}, '\\x{digest}', 4299, 'eur', 'declined', 'card_declined', 'charges.create')"
        ))
        .await;
        self.insert_record_of(Operation::CreateCharge, digest, key, charge, "", "failed").await;
    }

    pub(crate) async fn insert_charge(&self, id: Uuid, digest: ScopeDigest, payment_intent: &str) {
        self.execute(&format!(
            "INSERT INTO charges (id, customer_id, key_digest, amount_minor, currency, status, gateway_id)
             VALUES ('{id}', {CUSTOMER}, '\\x{digest}', 4299, 'eur', 'succeeded', '{payment_intent}')"
        ))
        .await;
    }

    /// An event that has just happened.
    pub(crate) async fn insert_event(&self, order: Uuid, sequence: i32) -> Uuid {
        let event = Uuid::now_v7();
        self.execute(&format!(
            "INSERT INTO outbox (day, event_id, aggregate_id, sequence, shard, type, payload)
             VALUES (db_day(), '{event}', '{order}', {sequence}, 0, 'order.created', '{{}}')"
        ))
        .await;
        event
    }

    /// It is in the log, and marked.
    pub(crate) async fn publish(&self, event: Uuid) {
        self.execute(&format!(
            "INSERT INTO event_log (day, partition, \"offset\", event_id, aggregate_id, sequence, type, payload, occurred_at)
             SELECT day, 0, (SELECT count(*) FROM event_log), event_id, aggregate_id, sequence, type, payload, created_at
             FROM outbox WHERE event_id = '{event}';
             UPDATE outbox SET sent_at = db_clock() WHERE event_id = '{event}'"
        ))
        .await;
    }

    pub(crate) async fn process(&self, event: Uuid, consumer: &str) {
        self.execute(&format!(
            "INSERT INTO processed (day, consumer, event_id, aggregate_id, sequence)
             SELECT day, '{consumer}', event_id, aggregate_id, sequence FROM outbox WHERE event_id = '{event}'"
        ))
        .await;
    }

    pub(crate) async fn book(&self, event: Uuid, order: Uuid, amount: i64) {
        self.execute(&format!(
            "INSERT INTO ledger_entries (event_id, account, aggregate_id, amount_minor, currency)
             VALUES ('{event}', 'gateway', '{order}', {amount}, 'eur'), ('{event}', 'sales', '{order}', {}, 'eur')",
            -amount
        ))
        .await;
    }

    /// A mail is delivered, and its receipt recorded.
    pub(crate) async fn mail(&mut self, event: Uuid, order: Uuid) {
        let mail = self.deliver(event, order);
        self.execute(&format!(
            "INSERT INTO receipts (event_id, aggregate_id, mail_id) VALUES ('{event}', '{order}', '{mail}')"
        ))
        .await;
    }

    pub(crate) fn deliver(&mut self, event: Uuid, order: Uuid) -> String {
        let id = Uuid::now_v7().to_string();
        self.mails.push(Mail { id: id.clone(), event: Some(event), aggregate: Some(order) });
        id
    }

    /// All that follows from an order: event, log, both consumers, ledger, mail.
    pub(crate) async fn follow_up(&mut self, order: Uuid) -> Uuid {
        let event = self.insert_event(order, 1).await;
        self.go_through(event, order, 4299).await;
        event
    }

    /// All that follows from an event.
    pub(crate) async fn go_through(&mut self, event: Uuid, about: Uuid, amount: i64) {
        self.publish(event).await;
        self.process(event, "ledger").await;
        self.process(event, "receipts").await;
        self.book(event, about, amount).await;
        self.mail(event, about).await;
    }

    /// Everything happened so many minutes ago.
    pub(crate) async fn age(&self, minutes: u32) {
        let ago = format!("interval '{minutes} min'");
        self.execute(&format!(
            "UPDATE orders SET created_at = created_at - {ago};
             UPDATE charges SET created_at = created_at - {ago} WHERE operation = 'charges.create';
             UPDATE refunds SET finished_at = finished_at - {ago}, failed_at = failed_at - {ago};
             UPDATE outbox SET created_at = created_at - {ago}, sent_at = sent_at - {ago};
             UPDATE event_log SET occurred_at = occurred_at - {ago};
             UPDATE receipts SET sent_at = sent_at - {ago}"
        ))
        .await;
    }

    pub(crate) async fn insert_record(&self, digest: ScopeDigest, customer: i64, key: &str, order: Uuid, state: &str) {
        self.insert_record_of(Operation::CreateOrder, digest, key, order, &format!("/v1/orders/{order}"), state).await;
        self.execute(&format!("UPDATE idempotency_records SET customer_id = {customer} WHERE digest = '\\x{digest}'"))
            .await;
    }

    /// A record of this customer's.
    pub(crate) async fn insert_record_of(
        &self,
        operation: Operation,
        digest: ScopeDigest,
        key: &str,
        resource: Uuid,
        location: &str,
        state: &str,
    ) {
        let held = match state {
            "in_flight" => "db_clock() + interval '15 s', NULL, NULL, NULL, NULL, NULL, NULL".to_owned(),
            "unknown" => "NULL, db_clock() + interval '1 s', NULL, NULL, NULL, NULL, NULL".to_owned(),
            "needs_review" => "NULL, NULL, NULL, NULL, NULL, NULL, NULL".to_owned(),
            "completed" => format!(
                "NULL, NULL, 201, 'application/json', '{location}', '{{\"id\":\"{resource}\"}}'::bytea, db_clock()"
            ),
            _ => "NULL, NULL, 402, 'application/problem+json', NULL, '{}'::bytea, db_clock()".to_owned(),
        };
        self.execute(&format!(
            "INSERT INTO idempotency_records
                 (digest, day, customer_id, operation, key, fingerprint, fingerprint_version, state, fence, attempt, resource_id,
                  frozen, first_sent_at, created_at, lease_until, next_attempt_at, response_status, response_content_type,
                  response_location, response_body, finished_at)
             VALUES ('\\x{digest}', db_day(), {CUSTOMER}, '{}', '{key}', '\\x00', 1, '{state}', 1, gen_random_uuid(),
                     '{resource}', '{{}}', db_clock(), db_clock(), {held})",
            operation.name(),
        ))
        .await;
    }

    /// Runs SQL, any of it.
    pub(crate) async fn execute(&self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.pool).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    }

    pub(crate) async fn audit(&self) -> Report {
        let asked_at = OffsetDateTime::now_utc() + time::Duration::DAY;
        self.audit_asked_at(asked_at).await
    }

    pub(crate) async fn audit_asked_at(&self, asked_at: OffsetDateTime) -> Report {
        let ledger = Ledger { asked_at, captures: self.captures.clone() };
        let mails = Mails { asked_at, mails: self.mails.clone() };
        audit::run_over(&self.pool, &ledger, Some(&mails), AuditOptions::default()).await.expect("an audit")
    }

    /// By an audit that was told of no mail service.
    pub(crate) async fn audit_without_mails(&self) -> Report {
        let asked_at = OffsetDateTime::now_utc() + time::Duration::DAY;
        let ledger = Ledger { asked_at, captures: self.captures.clone() };
        audit::run_over(&self.pool, &ledger, None, AuditOptions::default()).await.expect("an audit")
    }

    pub(crate) async fn assert_clean(&self) {
        let report = self.audit().await;
        assert!(report.is_clean(), "{report}");
    }

    /// Exactly one anomaly, of this kind and about this id.
    pub(crate) async fn assert_names(&self, kind: Kind, id: &str) {
        let report = self.audit().await;
        assert_eq!(report.kinds(), [kind], "{report}");
        assert_eq!(report.found(kind), 1, "{report}");
        assert_eq!(report.anomalies.len(), 1, "{report}");
        assert!(report.anomalies[0].ids.iter().any(|named| named == id), "{id} is not named:\n{report}");
        assert!(report.to_string().contains(&format!("FAIL  {}", kind.name())), "{report}");
    }
}

pub(crate) fn digest_of(customer: i64, key: &str) -> ScopeDigest {
    digest_for(Operation::CreateOrder, customer, key)
}

pub(crate) fn digest_for(operation: Operation, customer: i64, key: &str) -> ScopeDigest {
    let key = IdempotencyKey::parse(key.as_bytes()).expect("a key");
    Scope { customer: CustomerId(customer), operation, key }.digest()
}

pub(crate) fn capture(digest: ScopeDigest, reference: Option<&str>) -> Capture {
    Capture {
        payment_intent: format!("pi_{}", Uuid::now_v7().simple()),
        idempotency_key: Some(format!("chk_{digest}")),
        reference: reference.map(str::to_owned),
        amount: 4299,
        currency: "eur".to_owned(),
        amount_refunded: 0,
    }
}
