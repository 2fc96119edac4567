//! A gateway in this process and a client that talks to it, for the stories about the gateway.
//!
//! Promise: the stories see what any HTTP client sees, and know nothing of the books behind it: the same stories run over
//! either kind.

use checkout::mock_gateway::{Books, Running, Settings, start};
use serde_json::Value;

/// Each story is told over both kinds of books.
macro_rules! stories {
    ($($name:ident),+ $(,)?) => {
        mod in_memory {
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name(crate::gateway_world::World::in_memory().await).await;
                }
            )+
        }

        mod in_postgres {
            $(
                #[tokio::test]
                async fn $name() {
                    let database_url = crate::gateway_books::fresh_database().await;
                    super::$name(crate::gateway_books::world(&database_url).await).await;
                }
            )+
        }
    };
}

pub(crate) use stories;

pub(crate) struct World {
    pub(crate) gateway: Running,
    pub(crate) client: reqwest::Client,
}

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
    pub(crate) json: Value,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("our headers are ASCII"))
    }

    pub(crate) fn id(&self) -> String {
        self.json["id"].as_str().unwrap_or_else(|| panic!("no id in {}", self.text)).to_owned()
    }

    pub(crate) fn error(&self, field: &str) -> Option<&str> {
        self.json["error"][field].as_str()
    }
}

pub(crate) type Pairs<'a> = &'a [(&'a str, &'a str)];

/// The worked example: one grinder, paid at once.
pub(crate) const GRINDER: Pairs<'static> = &[
    ("amount", "4299"),
    ("currency", "eur"),
    ("payment_method", "pm_card_visa"),
    ("confirm", "true"),
    ("metadata[order_id]", "order-1"),
];

/// The worked example with some of its fields replaced, or added.
pub(crate) fn grinder<'a>(changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let kept = GRINDER.iter().filter(|(name, _)| !changes.iter().any(|(changed, _)| changed == name));
    kept.chain(changes).copied().collect()
}

impl World {
    pub(crate) async fn in_memory() -> Self {
        Self::new(Books::in_memory(), Settings::default()).await
    }

    pub(crate) async fn new(books: Books, settings: Settings) -> Self {
        crate::support::on_watch();
        let gateway =
            start("127.0.0.1:0".parse().expect("an address"), settings, books).await.expect("the gateway starts");
        let client = crate::support::client();
        Self { gateway, client }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.gateway.url())
    }

    /// Sends a charge, and reads no answer yet.
    pub(crate) async fn send(
        &self,
        path: &str,
        key: Option<&str>,
        form: Pairs<'_>,
    ) -> reqwest::Result<reqwest::Response> {
        let mut request = self.client.post(self.url(path)).bearer_auth("sk_test_1").form(form);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        request.send().await
    }

    pub(crate) async fn post(&self, path: &str, key: Option<&str>, form: Pairs<'_>) -> Answer {
        read(self.send(path, key, form).await.expect("an answer")).await.expect("a whole answer")
    }

    /// Creates a payment intent.
    pub(crate) async fn pay(&self, key: &str, form: Pairs<'_>) -> Answer {
        self.post("/v1/payment_intents", Some(key), form).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        let request = self.client.get(self.url(path)).bearer_auth("sk_test_1");
        read(request.send().await.expect("an answer")).await.expect("a whole answer")
    }

    pub(crate) async fn control(&self, path: &str, body: Value) -> Answer {
        let request = self.client.post(self.url(&format!("/_mock/{path}"))).json(&body);
        read(request.send().await.expect("an answer")).await.expect("a whole answer")
    }

    pub(crate) async fn fault(&self, name: &str, count: u32) {
        let answer = self.control("faults", serde_json::json!({ "name": name, "count": count })).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }

    pub(crate) async fn ledger(&self) -> Value {
        self.get("/_mock/ledger").await.json
    }

    /// How many captures the gateway's own ledger knows.
    pub(crate) async fn captures(&self) -> u64 {
        self.ledger().await["count"].as_u64().expect("a count")
    }

    pub(crate) async fn stats(&self) -> Value {
        self.get("/_mock/stats").await.json
    }
}

pub(crate) async fn read(response: reqwest::Response) -> reqwest::Result<Answer> {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = response.text().await?;
    let json = serde_json::from_str(&text).unwrap_or(Value::Null);
    Ok(Answer { status, headers, text, json })
}
