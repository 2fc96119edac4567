//! Secrets stay where they are. Distinct canaries are put wherever a careless client or a careless operator could put one, every
//! kind of failure is brought about, and then everything the processes said, kept and show is searched for them.

use std::{process::Command, time::Duration};

use checkout::credential::{Credentials, Subject};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{Opening, PATIENCE, Process, SECRET, Shop, WEBHOOK_SECRET, fresh_key, grinder, wait_for};

/// Luhn is content with all of them, and each goes to a place of its own.
const CARDS: [&str; 4] = ["4929000000006", "5200828282828210", "378282246310005", "4000 0566 5566 5556"];
const CVV: &str = "cvv-0739-canary";
const E_MAIL: &str = "canary.ada@example.org";
/// Set by its customer as it should be, and kept for the mail alone.
const SET_E_MAIL: &str = "canary.grace@example.net";
const GATEWAY_KEY: &str = "sk_test_canary_5d1c0e77";
const MAIL_KEY: &str = "re_canary_77aa31f0";

/// What a careless client sends: method, target, further header lines, body. `{T}` is its token, `{C}` a card number, `{G}` the
/// gateway's key and `{W}` its webhook secret.
const CARELESS: [(&str, &str, &str, &str); 29] = [
    ("POST", "/v1/orders", "Idempotency-Key: {C}", r#"{"items":[]}"#),
    ("POST", "/v1/orders", "Idempotency-Key: \"pay-{C}\"", ORDER),
    ("POST", "/v1/orders", "Idempotency-Key: a\r\nIdempotency-Key: {C}", ORDER),
    ("POST", "/v1/orders", "Idempotency-Key: {T}", ORDER),
    ("POST", "/v1/orders", "Idempotency-Key: Bearer {T}", ORDER),
    ("POST", "/v1/orders", "Idempotency-Key: \"pay:{T}\"", ORDER),
    ("POST", "/v1/orders", "Idempotency-Key: {G}", ORDER),
    ("POST", "/v1/orders", "Idempotency-Key: \"{W}\"", ORDER),
    ("POST", "/v1/orders", "X-Card: {C}\r\nCookie: card={C}; token={T}\r\nUser-Agent: {C} {E}", ORDER),
    ("POST", "/v1/orders?card={C}&token={T}&mail={E}&cvv={V}", "Idempotency-Key: b", r#"{"card":"{C}","cvv":"{V}"}"#),
    (
        "POST",
        "/v1/orders",
        "Idempotency-Key: c",
        r#"{"items":[{"sku":"{C}","quantity":1}],"total":1,"currency":"eur","payment_method":"p"}"#,
    ),
    (
        "POST",
        "/v1/orders",
        "Idempotency-Key: d",
        r#"{"items":[{"sku":"cup","quantity":1}],"total":890,"currency":"eur","payment_method":"{C}"}"#,
    ),
    (
        "POST",
        "/v1/orders",
        "Idempotency-Key: e",
        r#"{"items":[{"sku":"cup","quantity":1}],"total":890,"currency":"eur","payment_method":"pm_card_visa","client_reference":"{C}"}"#,
    ),
    (
        "POST",
        "/v1/orders",
        "Idempotency-Key: f",
        r#"{"items":[{"sku":"cup","quantity":1}],"total":890,"currency":"{C}","payment_method":"pm_card_visa","{T}":"{E}"}"#,
    ),
    ("POST", "/v1/orders", "Idempotency-Key: g", r#"{"card":"{C}" "#),
    ("POST", "/v1/orders", "Idempotency-Key: h\r\nContent-Type: text/{C}", ORDER),
    ("POST", "/v1/orders", "Idempotency-Key: i\r\nContent-Encoding: {C}", ORDER),
    ("POST", "/v1/orders", "Idempotency-Key: j\r\nAuthorization: Basic {C}", ORDER),
    ("POST", "/v1/orders/{C}", "Idempotency-Key: k", ORDER),
    ("{D}", "/v1/orders", "X-Nothing: 1", ""),
    ("GET", "/v1/orders/{C}", "X-Nothing: 1", ""),
    ("GET", "/v1/orders/{T}", "X-Nothing: 1", ""),
    ("GET", "/v1/idempotency-keys/orders.create/{D}", "X-Nothing: 1", ""),
    ("GET", "/v1/idempotency-keys/orders.create/{T}", "X-Nothing: 1", ""),
    ("GET", "/v1/idempotency-keys/orders.create/{W}", "X-Nothing: 1", ""),
    ("GET", "/v1/idempotency-keys/{E}/{T}", "X-Nothing: 1", ""),
    ("GET", "/{T}/{E}/{D}", "X-Nothing: 1", ""),
    ("GET", "/operator/requests?token={T}", "X-Nothing: 1", ""),
    ("POST", "/v1/webhooks/gateway", "Stripe-Signature: t=1,v1={D}{W}", r#"{"id":"{C}","secret":"{W}"}"#),
];
const ORDER: &str =
    r#"{"items":[{"sku":"cup","quantity":1}],"total":890,"currency":"eur","payment_method":"pm_card_visa"}"#;

/// Everything that must be found nowhere, by what it is.
fn canaries(shop: &Shop, tokens: &[String]) -> Vec<(String, String)> {
    let password = shop.database.url.split([':', '@']).nth(2).expect("a password").to_owned();
    let named = [
        ("the secret of the tokens", SECRET),
        ("the webhook secret", WEBHOOK_SECRET),
        ("the gateway key", GATEWAY_KEY),
        ("the mail key", MAIL_KEY),
        ("the database's password", &password),
        ("a CVV", CVV),
        ("an e-mail address", E_MAIL),
        ("the address that receipts go to", SET_E_MAIL),
    ];
    let named = named.iter().map(|(name, canary)| ((*name).to_owned(), (*canary).to_owned()));
    let cards = CARDS.iter().flat_map(|card| [(*card).to_owned(), card.replace(' ', "")]);
    let cards = cards.map(|card| ("a card number".to_owned(), card));
    // The signature is what makes a token one.
    let tokens = tokens.iter().filter_map(|token| token.rsplit('.').next());
    let tokens = tokens.map(|signature| ("a bearer token".to_owned(), signature.to_owned()));
    named.chain(cards).chain(tokens).collect()
}

/// Sends bytes no proper client library would, and returns all that comes back.
async fn send_raw(shop: &Shop, request: &str) -> String {
    let mut client = TcpStream::connect(shop.api_url.trim_start_matches("http://")).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, client.read_to_end(&mut answer)).await.expect("the server closes it").unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Each careless request with each card number. None of them may do anything but be refused or place an order.
async fn be_careless(shop: &Shop, token: &str) {
    for (serial, card) in CARDS.into_iter().enumerate() {
        for (method, target, headers, body) in CARELESS {
            let filled = |text: &str| {
                let digits = card.replace(' ', "");
                let text = text.replace("{C}", card).replace("{D}", &digits).replace("{T}", token);
                let text = text.replace("{E}", E_MAIL).replace("{V}", CVV);
                text.replace("{G}", GATEWAY_KEY).replace("{W}", WEBHOOK_SECRET)
            };
            let authorization = if headers.contains("Authorization") {
                String::new()
            } else {
                format!("Authorization: Bearer {token}\r\n")
            };
            let media_type = if headers.contains("Content-Type") { "" } else { "Content-Type: application/json\r\n" };
            let (target, body) = (filled(target).replace(' ', "-"), filled(body));
            // Keys of one letter are nobody's: each round has its own.
            let is_a_canary =
                |headers: &str| ["{C}", "{T}", "{G}", "{W}"].iter().any(|canary| headers.contains(canary));
            let headers = filled(headers).replace(
                "Idempotency-Key: ",
                &format!("Idempotency-Key: {}", if is_a_canary(headers) { "" } else { ["w", "x", "y", "z"][serial] }),
            );
            let answer = send_raw(
                shop,
                &format!(
                    "{} {target} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n{authorization}{media_type}{headers}\r\nContent-Length: {}\r\n\r\n{body}",
                    filled(method),
                    body.len(),
                ),
            )
            .await;
            let status = answer.split(' ').nth(1).unwrap_or_default();
            assert!(
                matches!(status, "200" | "201") || status.starts_with('4'),
                "{method} {target} {headers} {body}: {answer}"
            );
        }
    }
}

const GATEWAY_FAULTS: [&str; 8] = [
    "http_503_before",
    "http_429_before",
    "http_500_after",
    "drop_after",
    "rst_after",
    "truncate_after",
    "hang_after",
    "latency_after",
];

/// The gateway and the mail service fail in every way they know, and so does the database.
async fn let_everything_fail(shop: &Shop) {
    let visa = grinder("pm_card_visa");
    for fault in GATEWAY_FAULTS {
        shop.fault(fault, 2, 100).await;
        shop.order(&fresh_key(), &visa).await;
    }
    for fault in ["http_500_after", "drop_after", "reject"] {
        shop.mail_fault(&json!({"name": fault, "count": 1})).await;
        shop.order_until_placed(&fresh_key()).await;
    }
    shop.order(&fresh_key(), &grinder("pm_card_chargeDeclined")).await.expect(402, "card_declined");
    sqlx::raw_sql("ALTER TABLE idempotency_records RENAME TO away").execute(&shop.pool).await.unwrap();
    shop.order(&fresh_key(), &visa).await.expect(503, "unavailable");
    sqlx::raw_sql("ALTER TABLE away RENAME TO idempotency_records").execute(&shop.pool).await.unwrap();
    shop.order_until_placed(&fresh_key()).await;
}

/// Processes that do not get far, or are not accepted by the others, and what each of them said.
async fn misconfigured(shop: &Shop) -> Vec<(String, String)> {
    let mut said = Vec::new();
    let wrong_database = shop.database.url.replace(&shop.database.name, "no_such_database");
    for role in ["api", "worker", "console"] {
        let mut command = Process::command(&[role, "--listen", "127.0.0.1:0"]);
        command.envs([("DATABASE_URL", wrong_database.as_str()), ("CHECKOUT_SECRET", SECRET), ("RUST_LOG", "debug")]);
        command.envs([
            ("CHECKOUT_GATEWAY_KEY", GATEWAY_KEY),
            ("CHECKOUT_MAIL_KEY", MAIL_KEY),
            ("CHECKOUT_WEBHOOK_SECRET", WEBHOOK_SECRET),
        ]);
        let mut process = Process::spawn(command);
        assert!(!process.ended().success());
        said.push((format!("{role} without a database"), process.stderr()));
    }
    let mut help = Command::new(crate::support::CHECKOUT);
    help.args(["api", "--help"]).envs([("CHECKOUT_SECRET", SECRET), ("DATABASE_URL", shop.database.url.as_str())]);
    help.envs([("CHECKOUT_GATEWAY_KEY", GATEWAY_KEY), ("CHECKOUT_WEBHOOK_SECRET", WEBHOOK_SECRET)]);
    let help = help.output().unwrap();
    said.push(("the help".to_owned(), String::from_utf8_lossy(&help.stdout).into_owned()));
    said
}

/// Where an address is kept because it is needed there.
const PLACES_OF_ADDRESSES: [&str; 2] = ["public.customers.email", "public.receipt_recipients.recipient"];

/// All rows of all tables as text, bytes as the text they are.
async fn dump(pool: &PgPool) -> String {
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')",
    )
    .fetch_all(pool)
    .await
    .unwrap();
    let mut dump = String::new();
    for table in tables {
        let rows: Vec<Value> = sqlx::query_scalar(AssertSqlSafe(format!("SELECT to_jsonb(t) FROM {table} AS t")))
            .fetch_all(pool)
            .await
            .unwrap();
        for row in rows {
            for (column, value) in row.as_object().unwrap() {
                let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
                let bytes = text.strip_prefix("\\x").and_then(|digits| hex::decode(digits).ok());
                let text = bytes.map_or(text, |bytes| String::from_utf8_lossy(&bytes).into_owned());
                if !PLACES_OF_ADDRESSES.contains(&&*format!("{table}.{column}")) {
                    dump.push_str(&format!("{table}.{column}: {text}\n"));
                }
            }
        }
    }
    dump
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_and_no_card_number_is_said_kept_or_shown() {
    let mut shop = Shop::open_with(Opening {
        gateway_in_memory: true,
        worker: true,
        webhooks: true,
        environment: vec![
            ("CHECKOUT_GATEWAY_KEY", GATEWAY_KEY),
            ("CHECKOUT_MAIL_KEY", MAIL_KEY),
            ("RUST_LOG", "debug"),
        ],
        flags: vec!["--gateway-budget-ms", "1500"],
        ..Opening::default()
    })
    .await;
    let credentials = Credentials::new(SECRET).unwrap();
    let token = shop.token(42);
    let operator = credentials.mint(Subject::Operator, Duration::from_secs(3600)).unwrap();
    let email = shop.http.put(format!("{}/v1/customers/me/email", shop.api_url)).bearer_auth(&token);
    assert_eq!(email.json(&json!({"email": SET_E_MAIL})).send().await.unwrap().status(), 200);
    be_careless(&shop, &token).await;
    let_everything_fail(&shop).await;
    let mut searched = misconfigured(&shop).await;

    let environment = [
        ("DATABASE_URL", shop.database.url.as_str()),
        ("CHECKOUT_API_URL", shop.api_url.as_str()),
        ("CHECKOUT_SECRET", SECRET),
        ("RUST_LOG", "debug"),
    ];
    let (mut console, console_url) = Process::role("console", &[], &environment);
    for (name, url) in [
        ("the api's metrics", format!("{}/metrics", shop.api_url)),
        ("the worker's metrics", format!("{}/metrics", shop.worker_url.as_deref().unwrap())),
        ("the request log", format!("{}/operator/requests", shop.api_url)),
        ("the console's page", format!("{console_url}/")),
    ] {
        let shown = shop.http.get(&url).bearer_auth(&operator).send().await.unwrap();
        assert_eq!(shown.status(), 200, "{name}");
        searched.push((name.to_owned(), shown.text().await.unwrap()));
    }
    wait_for("every key has its answer", async || {
        shop.count("idempotency_records WHERE state IN ('in_flight', 'unknown') AND first_sent_at IS NOT NULL").await
            == 0
    })
    .await;
    searched.push(("the database".to_owned(), dump(&shop.pool).await));
    let mailed = shop.mails().await;
    assert!(mailed.iter().any(|mail| mail["to"] == SET_E_MAIL), "{mailed:?}");
    tokio::task::block_in_place(|| console.stop());
    for (name, process) in
        [("api", &mut shop.api), ("worker", shop.worker.as_mut().unwrap()), ("console", &mut console)]
    {
        tokio::task::block_in_place(|| process.stop());
        searched.push((format!("{name}'s stderr"), process.stderr()));
        searched.push((format!("{name}'s stdout"), process.rest_of_stdout()));
    }

    // The net holds: what the processes were really told is there to be found, and what is not secret is found.
    let everything = searched.iter().map(|(_, text)| text.as_str()).collect::<String>();
    for shown in ["pm_card_visa", "checkout_requests_total", "Idempotency key", "an exchange with the gateway failed"] {
        assert!(everything.contains(shown), "{shown}");
    }
    let mut found = Vec::new();
    for (what, canary) in canaries(&shop, &[token, operator]) {
        for (place, text) in &searched {
            if let Some(line) = text.lines().find(|line| line.contains(&canary)) {
                let line: String = line.chars().take(300).collect();
                found.push(format!("{what} ({canary}) in {place}: {line}"));
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
    shop.restart_api();
    shop.close().await;
}
