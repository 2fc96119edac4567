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
            "INSERT INTO outbox (day, event_id, order_id, sequence, shard, type, payload)
             VALUES (db_day(), '{event}', '{order}', {sequence}, 0, 'order.created', '{{}}')"
        ))
        .await;
        event
    }

    /// It is in the log, and marked.
    pub(crate) async fn publish(&self, event: Uuid) {
        self.execute(&format!(
            "INSERT INTO event_log (day, partition, \"offset\", event_id, order_id, sequence, type, payload, occurred_at)
             SELECT day, 0, (SELECT count(*) FROM event_log), event_id, order_id, sequence, type, payload, created_at
             FROM outbox WHERE event_id = '{event}';
             UPDATE outbox SET sent_at = db_clock() WHERE event_id = '{event}'"
        ))
        .await;
    }

    pub(crate) async fn process(&self, event: Uuid, consumer: &str) {
        self.execute(&format!(
            "INSERT INTO processed (day, consumer, event_id, order_id, sequence)
             SELECT day, '{consumer}', event_id, order_id, sequence FROM outbox WHERE event_id = '{event}'"
        ))
        .await;
    }

    pub(crate) async fn book(&self, event: Uuid, order: Uuid, amount: i64) {
        self.execute(&format!(
            "INSERT INTO ledger_entries (event_id, account, order_id, amount_minor, currency)
             VALUES ('{event}', 'gateway', '{order}', {amount}, 'eur'), ('{event}', 'sales', '{order}', -{amount}, 'eur')"
        ))
        .await;
    }

    /// A mail is delivered, and its receipt recorded.
    pub(crate) async fn mail(&mut self, event: Uuid, order: Uuid) {
        let mail = self.deliver(event, order);
        self.execute(&format!(
            "INSERT INTO receipts (event_id, order_id, mail_id) VALUES ('{event}', '{order}', '{mail}')"
        ))
        .await;
    }

    pub(crate) fn deliver(&mut self, event: Uuid, order: Uuid) -> String {
        let id = Uuid::now_v7().to_string();
        self.mails.push(Mail { id: id.clone(), event: Some(event), order: Some(order) });
        id
    }

    /// All that follows from an order: event, log, both consumers, ledger, mail.
    pub(crate) async fn follow_up(&mut self, order: Uuid) -> Uuid {
        let event = self.insert_event(order, 1).await;
        self.publish(event).await;
        self.process(event, "ledger").await;
        self.process(event, "receipts").await;
        self.book(event, order, 4299).await;
        self.mail(event, order).await;
        event
    }

    /// Everything happened so many minutes ago.
    pub(crate) async fn age(&self, minutes: u32) {
        let ago = format!("interval '{minutes} min'");
        self.execute(&format!(
            "UPDATE orders SET created_at = created_at - {ago};
             UPDATE outbox SET created_at = created_at - {ago}, sent_at = sent_at - {ago};
             UPDATE event_log SET occurred_at = occurred_at - {ago};
             UPDATE receipts SET sent_at = sent_at - {ago}"
        ))
        .await;
    }

    pub(crate) async fn insert_record(&self, digest: ScopeDigest, customer: i64, key: &str, order: Uuid, state: &str) {
        let held = match state {
            "in_flight" => "db_clock() + interval '15 s', NULL, NULL, NULL, NULL, NULL, NULL".to_owned(),
            "unknown" => "NULL, db_clock() + interval '1 s', NULL, NULL, NULL, NULL, NULL".to_owned(),
            "needs_review" => "NULL, NULL, NULL, NULL, NULL, NULL, NULL".to_owned(),
            "completed" => format!(
                "NULL, NULL, 201, 'application/json', '/v1/orders/{order}', '{{\"id\":\"{order}\"}}'::bytea, db_clock()"
            ),
            _ => "NULL, NULL, 402, 'application/problem+json', NULL, '{}'::bytea, db_clock()".to_owned(),
        };
        self.execute(&format!(
            "INSERT INTO idempotency_records
                 (digest, day, customer_id, operation, key, fingerprint, fingerprint_version, state, fence, attempt, resource_id,
                  frozen, first_sent_at, created_at, lease_until, next_attempt_at, response_status, response_content_type,
                  response_location, response_body, finished_at)
             VALUES ('\\x{digest}', db_day(), {customer}, 'orders.create', '{key}', '\\x00', 1, '{state}', 1, gen_random_uuid(),
                     '{order}', '{{}}', db_clock(), db_clock(), {held})"
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
    let key = IdempotencyKey::parse(key.as_bytes()).expect("a key");
    Scope { customer: CustomerId(customer), operation: Operation::CreateOrder, key }.digest()
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
