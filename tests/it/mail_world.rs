//! A mail service in this process and a client that talks to it, for the stories about the mail.
//!
//! Promise: the stories see what any HTTP client sees, and the same stories run over either kind of books.

use checkout::mock_mail::{Books, Running, Settings, start};
use serde_json::{Value, json};

use crate::support::{TestDatabase, install_tls_provider};

/// A service in this process, and an HTTP client that knows nothing of it.
pub(crate) struct World {
    pub(crate) service: Running,
    pub(crate) url: String,
    pub(crate) http: reqwest::Client,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) replayed: bool,
    pub(crate) json: Value,
}

impl Answer {
    pub(crate) fn id(&self) -> String {
        assert_eq!(self.status, 200, "{}", self.json);
        self.json["id"].as_str().expect("an id").to_owned()
    }

    #[track_caller]
    pub(crate) fn expect(&self, status: u16, name: &str) {
        assert_eq!((self.status, self.json["name"].as_str()), (status, Some(name)), "{}", self.json);
        assert_eq!(self.json["statusCode"], status);
        assert!(self.json["message"].is_string());
    }
}

pub(crate) fn http() -> reqwest::Client {
    install_tls_provider();
    crate::support::client()
}

/// The worked example's receipt.
pub(crate) fn receipt(subject: &str) -> Value {
    json!({
        "from": "Shop <shop@example.com>", "to": "customer-42@example.com", "subject": subject, "text": "42.99 EUR",
        "tags": [{"name": "order_id", "value": "o-1"}]
    })
}

pub(crate) async fn read(sent: reqwest::Result<reqwest::Response>) -> reqwest::Result<Answer> {
    let answer = sent?;
    let replayed = answer.headers().get("idempotent-replayed").is_some_and(|value| value == "true");
    let status = answer.status().as_u16();
    let text = answer.text().await?;
    Ok(Answer { status, replayed, json: serde_json::from_str(&text).unwrap_or(Value::Null) })
}

/// `POST /emails` to any service.
pub(crate) async fn post(
    http: &reqwest::Client,
    url: &str,
    key: Option<&str>,
    body: &Value,
) -> reqwest::Result<Answer> {
    let mut request = http.post(format!("{url}/emails")).bearer_auth("re_test").body(body.to_string());
    if let Some(key) = key {
        request = request.header("Idempotency-Key", key);
    }
    read(request.send().await).await
}

impl World {
    pub(crate) async fn in_memory() -> Self {
        Self::new(Books::in_memory(), Settings::default()).await
    }

    /// The contract holds over either kind of books.
    pub(crate) async fn of_each_kind() -> [Self; 2] {
        let durable = Books::open(&TestDatabase::create().await.url).await.expect("the books open");
        [Self::in_memory().await, Self::new(durable, Settings::default()).await]
    }

    pub(crate) async fn new(books: Books, settings: Settings) -> Self {
        let listen = "127.0.0.1:0".parse().expect("an address");
        let service = start(listen, settings, books).await.expect("the service starts");
        Self { url: service.url(), service, http: http() }
    }

    pub(crate) async fn try_send(&self, key: &str, body: &Value) -> reqwest::Result<Answer> {
        post(&self.http, &self.url, Some(key), body).await
    }

    pub(crate) async fn send(&self, key: &str, subject: &str) -> Answer {
        self.try_send(key, &receipt(subject)).await.expect("an answer")
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        let request = self.http.get(format!("{}{path}", self.url)).bearer_auth("re_test");
        read(request.send().await).await.expect("an answer")
    }

    pub(crate) async fn control(&self, path: &str, body: Value) -> Answer {
        let request = self.http.post(format!("{}/_mock/{path}", self.url)).json(&body);
        read(request.send().await).await.expect("an answer")
    }

    pub(crate) async fn fault(&self, fault: Value) {
        let answer = self.control("faults", fault).await;
        assert_eq!(answer.status, 200, "{}", answer.json);
    }

    /// The keys of every mail really delivered, oldest first.
    pub(crate) async fn delivered(&self) -> Vec<String> {
        let record = self.get("/_mock/mails").await.json;
        let mails = record["mails"].as_array().expect("mails");
        assert_eq!(record["count"], mails.len());
        mails.iter().map(|mail| mail["idempotency_key"].as_str().unwrap_or("none").to_owned()).collect()
    }

    pub(crate) async fn fired(&self, fault: &str) -> u64 {
        self.get("/_mock/stats").await.json["faults"][fault].as_u64().expect("a counter")
    }
}
