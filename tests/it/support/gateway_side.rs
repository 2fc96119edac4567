//! The gateway's side of a shop. Question: what does it tell us by itself, and what do its books say that ours do not?

use std::{collections::BTreeMap, process::Stdio};

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use super::{Answer, Process, Shop, answer};

/// What the gateway signs with, and whatever a test signs in its name.
pub(crate) const WEBHOOK_SECRET: &str = "whsec_of_the_tests";

/// Any secret key of test mode is good.
const GATEWAY_SECRET: &str = "sk_test_checkout";

impl Shop {
    /// The gateway sends its events to the api as it is now; again after a restart of either.
    pub(crate) async fn listen_to_webhooks(&self) {
        let url = format!("{}/v1/webhooks/gateway", self.api_url);
        let body = json!({"url": url, "secret": WEBHOOK_SECRET});
        let set =
            self.http.post(format!("{}/_mock/webhooks", self.gateway_url)).json(&body).send().await.expect("sent");
        assert!(set.status().is_success(), "{}", set.text().await.unwrap_or_default());
    }

    /// Where the gateway sends its events, and how that went.
    pub(crate) async fn webhooks(&self) -> Value {
        let status = self.http.get(format!("{}/_mock/webhooks", self.gateway_url)).send().await.expect("sent");
        status.json().await.expect("JSON")
    }

    /// A charge that the gateway makes without us, with our key on it or another one's. Its payment intent is returned.
    pub(crate) async fn capture_under(&self, gateway_key: Option<&str>, amount: i64, replay_key: &str) -> String {
        let mut form = vec![
            ("amount", amount.to_string()),
            ("currency", "eur".to_owned()),
            ("payment_method", "pm_card_visa".to_owned()),
            ("confirm", "true".to_owned()),
        ];
        form.extend(gateway_key.map(|key| ("metadata[checkout_key]", key.to_owned())));
        let request = self.http.post(format!("{}/v1/payment_intents", self.gateway_url)).bearer_auth(GATEWAY_SECRET);
        let made = answer(request.header("Idempotency-Key", replay_key).form(&form)).await;
        assert_eq!(made.status, 200, "{}", made.text());
        made.json()["id"].as_str().expect("an id").to_owned()
    }

    /// How the gateway knows a key that has a record here.
    pub(crate) async fn gateway_key_of(&self, key: &str) -> String {
        let digest: Vec<u8> = sqlx::query_scalar("SELECT digest FROM idempotency_records WHERE key = $1")
            .bind(key)
            .fetch_one(&self.pool)
            .await
            .expect("a record");
        format!("chk_{}", hex::encode(digest))
    }

    /// What went back of each capture, by the gateway's own ledger.
    pub(crate) async fn refunded(&self) -> BTreeMap<String, i64> {
        let ledger = self.ledger().await;
        let of = |capture: &Value| {
            let payment_intent = capture["payment_intent"].as_str().expect("an id").to_owned();
            (payment_intent, capture["amount_refunded"].as_i64().expect("an amount"))
        };
        ledger["captures"].as_array().expect("captures").iter().map(of).collect()
    }

    /// The refunds of one payment intent: id and amount.
    pub(crate) async fn refunds_of(&self, payment_intent: &str) -> Vec<(String, i64)> {
        let url = format!("{}/v1/refunds?payment_intent={payment_intent}", self.gateway_url);
        let listed = answer(self.http.get(url).bearer_auth(GATEWAY_SECRET)).await;
        assert_eq!(listed.status, 200, "{}", listed.text());
        let of = |refund: &Value| {
            (refund["id"].as_str().expect("an id").to_owned(), refund["amount"].as_i64().expect("an amount"))
        };
        listed.json()["data"].as_array().expect("refunds").iter().map(of).collect()
    }

    /// A refund ends at the gateway, whatever it was.
    pub(crate) async fn end_refund(&self, gateway_id: &str, status: &str) {
        let body = json!({"id": gateway_id, "status": status});
        let ended = answer(self.http.post(format!("{}/_mock/refunds", self.gateway_url)).json(&body)).await;
        assert_eq!((ended.status, ended.json()["status"].as_str()), (200, Some(status)), "{}", ended.text());
    }

    /// A refund that the gateway makes without us, with our key on it or another one's. Its id is returned.
    pub(crate) async fn refund_under(&self, payment_intent: &str, gateway_key: Option<&str>, amount: i64) -> String {
        let mut form = vec![("payment_intent", payment_intent.to_owned()), ("amount", amount.to_string())];
        form.extend(gateway_key.map(|key| ("metadata[checkout_key]", key.to_owned())));
        let made =
            answer(self.http.post(format!("{}/v1/refunds", self.gateway_url)).bearer_auth(GATEWAY_SECRET).form(&form))
                .await;
        assert_eq!(made.status, 200, "{}", made.text());
        made.json()["id"].as_str().expect("an id").to_owned()
    }

    /// Kind and state of what reconciliation found of a refund.
    pub(crate) async fn refund_finding(&self, refund_id: &str) -> Option<(String, String)> {
        sqlx::query_as("SELECT kind, state FROM reconciliation_refunds WHERE refund_id = $1")
            .bind(refund_id)
            .fetch_optional(&self.pool)
            .await
            .expect("findings")
    }

    /// Kind and state of what reconciliation found of a payment intent.
    pub(crate) async fn finding(&self, payment_intent: &str) -> Option<(String, String)> {
        let found = self.findings().await.into_iter().find(|(found, ..)| found == payment_intent);
        found.map(|(_, kind, state)| (kind, state))
    }

    /// Delivers an event as the gateway would, signed at this moment of the database's clock.
    pub(crate) async fn deliver(&self, event: &Value) -> Answer {
        let now_s: f64 = sqlx::query_scalar("SELECT extract(epoch FROM db_clock())::float8")
            .fetch_one(&self.pool)
            .await
            .expect("the clock");
        let body = event.to_string();
        self.deliver_signed(&body, &sign(WEBHOOK_SECRET, now_s as i64, &body)).await
    }

    /// Delivers these bytes with this signature.
    pub(crate) async fn deliver_signed(&self, body: &str, signature: &str) -> Answer {
        let request = self.http.post(format!("{}/v1/webhooks/gateway", self.api_url));
        answer(request.header("Stripe-Signature", signature).body(body.to_owned())).await
    }

    /// Runs `checkout reconcile` with further arguments, and returns what it printed.
    pub(crate) fn reconcile(&self, arguments: &[&str]) -> String {
        let output = self
            .reconcile_command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()
            .expect("the program under test");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn reconcile_command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = Process::command(&["reconcile"]);
        command.args(arguments).env("DATABASE_URL", &self.database.url).env("CHECKOUT_GATEWAY_URL", &self.gateway_url);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Nobody compares the books in this test: they are as good as compared.
    pub(crate) async fn reconcile_nothing(&self) {
        let reached = "UPDATE reconciliation_progress SET reached_s = 100000000000";
        sqlx::raw_sql(reached).execute(&self.pool).await.expect("the progress");
    }

    /// What reconciliation found: intent, kind, state; oldest first.
    pub(crate) async fn findings(&self) -> Vec<(String, String, String)> {
        sqlx::query_as(
            "SELECT payment_intent, kind, state FROM reconciliation_findings ORDER BY created_at, payment_intent",
        )
        .fetch_all(&self.pool)
        .await
        .expect("findings")
    }
}

/// `Stripe-Signature` of a body.
pub(crate) fn sign(secret: &str, at_s: i64, body: impl AsRef<[u8]>) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("any key");
    mac.update(format!("{at_s}.").as_bytes());
    mac.update(body.as_ref());
    format!("t={at_s},v1={}", hex::encode(mac.finalize().into_bytes()))
}
