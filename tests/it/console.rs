//! The console's page: it shows what is there, cannot be made to run what a customer wrote, and stands when its sources fall.

use std::{sync::Once, time::Duration};

use checkout::{console, credential::Credentials};
use serde_json::json;
use sqlx::{PgPool, postgres::PgPoolOptions};
use wiremock::{Mock, MockServer, ResponseTemplate, matchers};

use crate::support::{TestDatabase, keep_days};

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const HOSTILE: &str = "<script>alert(1)</script>\"'&";
const ESCAPED: &str = "&#60;script&#62;alert(1)&#60;/script&#62;&#34;&#39;&#38;";
/// Nothing listens there: ports below 1024 that nobody registered for long.
const NOWHERE: &str = "http://127.0.0.1:1";

/// Serves the console on a port of its own until the test's runtime ends.
async fn console_at(pool: PgPool, api_url: &str) -> String {
    static TLS: Once = Once::new();
    TLS.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    let router = console::router(pool, api_url, Credentials::new(SECRET).expect("a secret")).expect("a router");
    let listener = checkout::serve::bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

async fn database_with_a_sale() -> PgPool {
    let pool = TestDatabase::create().await.pool().await;
    keep_days(&pool).await;
    sqlx::raw_sql(
        r#"INSERT INTO charges (id, customer_id, key_digest, amount_minor, currency, status, gateway_id)
           VALUES ('01900000-0000-7000-8000-00000000000c', 42, sha256('sold'), 4299, 'eur', 'succeeded', 'pi_of_the_sale');
           INSERT INTO orders (id, customer_id, charge_id, key_digest, status, total_minor, currency, items, client_reference)
           VALUES ('01900000-0000-7000-8000-00000000000a', 42, '01900000-0000-7000-8000-00000000000c', sha256('sold'), 'paid', 4299, 'eur', '[]',
                   '<script>alert(1)</script>"''&');
           INSERT INTO idempotency_records
               (digest, day, customer_id, operation, key, fingerprint, fingerprint_version, state, fence, attempt, resource_id, frozen,
                first_sent_at, created_at, next_attempt_at, response_status, response_content_type, response_body, finished_at)
           VALUES (sha256('sold'), db_day(), 42, 'orders.create', 'key-of-the-sale', '\x00', 1, 'completed', 1, gen_random_uuid(),
                   gen_random_uuid(), '{}', db_clock(), db_clock(), NULL, 201, 'application/json', '{}', db_clock()),
                  (sha256('open'), db_day(), 43, 'orders.create', '<script>alert(1)</script>"''&', '\x00', 1, 'unknown', 7, gen_random_uuid(),
                   gen_random_uuid(), '{}', db_clock(), db_clock() - interval '200 s', db_clock() + interval '1 h', NULL, NULL, NULL, NULL)"#,
    )
    .execute(&pool)
    .await
    .expect("a sale");
    pool
}

async fn api_that_remembers(requests: serde_json::Value) -> MockServer {
    let api = MockServer::start().await;
    Mock::given(matchers::path("/operator/requests"))
        .and(matchers::header_regex("authorization", "^Bearer .+"))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({ "requests": requests })))
        .mount(&api)
        .await;
    api
}

/// Status and body.
async fn get(url: &str) -> (u16, String) {
    let answer = reqwest::get(url).await.expect("an answer");
    (answer.status().as_u16(), answer.text().await.expect("a body"))
}

fn assert_shows(page: &str, texts: &[&str]) {
    for text in texts {
        assert!(page.contains(text), "{text} is missing in:\n{page}");
    }
}

#[tokio::test]
async fn the_page_shows_orders_open_keys_states_and_requests_and_escapes_all_of_them() {
    let api = api_that_remembers(json!([{
        "at": "2030-01-02T03:04:05.678Z", "request_id": "request-1", "method": "POST", "path": format!("/v1/orders{HOSTILE}"), "customer": 42,
        "key": HOSTILE, "status": 402, "code": "card_declined", "replayed": true, "took_ms": 12.4,
    }]))
    .await;
    let url = console_at(database_with_a_sale().await, &api.uri()).await;
    let (status, page) = get(&url).await;
    assert_eq!(status, 200);
    assert_shows(
        &page,
        &[
            "01900000-0000-7000-8000-00000000000a",
            "key-of-the-sale",
            "42.99 EUR",
            "pi_of_the_sale",
            "succeeded",
            "completed",
        ],
    );
    assert_shows(
        &page,
        &["unknown", "3 min 2", "looked at in 59 min", "card_declined", "01-02 03:04:05", "12 ms", "replayed"],
    );
    assert_eq!(page.matches("Shown: 1, newest first").count(), 3, "one of each reads as one: {page}");
    // In the order's reference, in the open key, in the request's path and key, each as text and as title.
    assert_eq!(page.matches(ESCAPED).count(), 8, "{page}");
    assert!(!page.contains("<script"), "{page}");
}

#[tokio::test]
async fn the_page_shows_what_waits_after_the_order_and_the_word_that_sends_a_parked_event_on() {
    let pool = database_with_a_sale().await;
    sqlx::raw_sql(
        r#"INSERT INTO outbox (day, event_id, aggregate_id, sequence, shard, type, payload, created_at)
           VALUES (db_day(), '01900000-0000-7000-8000-0000000000e1', '01900000-0000-7000-8000-00000000000a', 1, 10, 'order.created', '{}',
                   db_clock() - interval '200 s');
           INSERT INTO parked_events (stage, event_id, day, aggregate_id, sequence, type, payload, occurred_at, attempts, error, next_attempt_at)
           VALUES ('receipts', '01900000-0000-7000-8000-0000000000e2', db_day(), '01900000-0000-7000-8000-00000000000b', 1, 'order.created',
                   '{}', db_clock(), 5, '<script>alert(1)</script>"''&', NULL),
                  ('receipts', '01900000-0000-7000-8000-0000000000e3', db_day(), '01900000-0000-7000-8000-00000000000b', 2, 'order.created',
                   '{}', db_clock(), 0, NULL, db_clock());
           UPDATE leases SET owner = 'abcdef01-0000-4000-8000-000000000000', lease_until = db_clock() + interval '1 h' WHERE duty = 'relay'"#,
    )
    .execute(&pool)
    .await
    .expect("trouble");
    let (status, page) = get(&console_at(pool, NOWHERE).await).await;
    assert_eq!(status, 200);
    assert_shows(
        &page,
        &[
            "After the order",
            "unsent, the oldest for 3 min 2",
            "relay 64 by abcdef01",
            "ledger nobody works",
            "<dd class=\"beside\">unread</dd>",
            "checkout parked --redrive all",
            "01900000-0000-7000-8000-0000000000e2",
            "receipts 1",
        ],
    );
    // The error as text and as title; the open key's hostile name as before.
    assert_eq!(page.matches("<script").count(), 0, "{page}");
    assert!(page.matches(ESCAPED).count() >= 2, "{page}");
    assert!(!page.contains("01900000-0000-7000-8000-0000000000e3"), "what waits behind is counted, not listed: {page}");
}

#[tokio::test]
async fn the_page_of_an_empty_shop_says_what_would_fill_it() {
    let pool = TestDatabase::create().await.pool().await;
    let (status, page) = get(&console_at(pool, &api_that_remembers(json!([])).await.uri()).await).await;
    assert_eq!(status, 200);
    assert_shows(&page, &["every key has its answer", "None yet", "None since the api started"]);
}

#[tokio::test]
async fn the_page_stands_when_the_api_is_down_and_when_the_database_is() {
    let (status, page) = get(&console_at(database_with_a_sale().await, NOWHERE).await).await;
    assert_eq!(status, 200);
    assert_shows(&page, &["42.99 EUR", "The api does not answer"]);

    let unreachable = PgPoolOptions::new()
        .acquire_timeout(Duration::from_millis(200))
        .connect_lazy("postgres://nobody@127.0.0.1:1/nothing")
        .expect("a URL");
    let url = console_at(unreachable, NOWHERE).await;
    let (status, page) = get(&url).await;
    assert_eq!(status, 503);
    assert_shows(&page, &["The database does not answer", "The api does not answer"]);
    assert_eq!(get(&format!("{url}/livez")).await.0, 200);
    assert_eq!(get(&format!("{url}/readyz")).await.0, 503);
}

#[tokio::test]
async fn every_answer_forbids_scripts_and_foreign_sources_and_a_page_reloads_only_on_wish() {
    let url = console_at(TestDatabase::create().await.pool().await, NOWHERE).await;
    for path in ["/", "/style.css", "/livez", "/readyz", "/not-there"] {
        let answer = reqwest::get(format!("{url}{path}")).await.expect("an answer");
        let policy = answer.headers()["content-security-policy"].to_str().expect("a policy");
        assert!(policy.starts_with("default-src 'none'; style-src 'self';"), "{path}: {policy}");
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff", "{path}");
        let body = answer.text().await.expect("a body");
        assert!(!body.contains("://") || path == "/", "{path} names another place:\n{body}");
    }
    assert!(!get(&url).await.1.contains("http-equiv=\"refresh\""));
    assert!(get(&format!("{url}/?live=true")).await.1.contains("http-equiv=\"refresh\""));
    for odd in ["live=banana", "live=", "live", "live=true&live=false", "live=%FF", "other=1"] {
        let (status, page) = get(&format!("{url}/?{odd}")).await;
        assert!(status == 200 && page.starts_with("<!"), "{odd}: {status} {page}");
        assert!(!page.contains("http-equiv=\"refresh\""), "{odd}");
    }
}
