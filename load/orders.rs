//! The orders that are sent. Question: what is in one request of the benchmark, and what does it cost to make one?
//!
//! Everything but the idempotency key is prepared once per customer; each order has a fresh, random key, so none is a replay.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use bytes::Bytes;
use checkout::{
    credential::{Credentials, Subject},
    ids::CustomerId,
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST},
};
use http_body_util::Full;
use rand::{RngExt, rngs::SmallRng};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// One grinder, by a card that is always approved.
const ORDER: &[u8] =
    br#"{"items":[{"sku":"grinder","quantity":1}],"total":4299,"currency":"eur","payment_method":"pm_card_visa"}"#;
/// Longer than any benchmark.
const TOKEN_LASTS: Duration = Duration::from_secs(24 * 3600);

pub(crate) type OrderRequest = Request<Full<Bytes>>;

/// Makes the requests. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Orders {
    path: Uri,
    customers: Arc<[HeaderMap]>,
    run: Run,
}

/// Tells the intents of one run from those of every other, in books that hold more than one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run(u32);

impl Run {
    fn fresh() -> Self {
        Self(rand::random())
    }

    /// What an intent is called in every book. No server reads it; only the judge does.
    pub(crate) fn reference(self, intent: u64) -> String {
        format!("run-{:08x}-intent-{intent}", self.0)
    }

    /// The intent of that name, if it is one of this run.
    pub(crate) fn intent_of(self, reference: &str) -> Option<u64> {
        let (run, intent) = reference.strip_prefix("run-")?.split_once("-intent-")?;
        (u32::from_str_radix(run, 16).ok()? == self.0).then(|| intent.parse().ok()).flatten()
    }
}

impl Orders {
    /// Prepares the headers of that many customers, with bearer tokens signed with the server's secret.
    pub(crate) fn of_customers(count: u32, secret: &str, server: SocketAddr) -> anyhow::Result<Self> {
        let credentials = Credentials::new(secret)?;
        let host = HeaderValue::from_str(&server.to_string()).context("host header")?;
        let customers = (1..=i64::from(count.max(1))).map(|customer| {
            let token = credentials.mint(Subject::Customer(CustomerId(customer)), TOKEN_LASTS)?;
            // Room for the key, so that no order has to grow the map.
            let mut headers = HeaderMap::with_capacity(6);
            headers.insert(HOST, host.clone());
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert(AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}")).context("token header")?);
            Ok(headers)
        });
        let customers = customers.collect::<anyhow::Result<_>>()?;
        Ok(Self { path: Uri::from_static("/v1/orders"), customers, run: Run::fresh() })
    }

    pub(crate) fn run(&self) -> Run {
        self.run
    }

    /// The next order, of some customer.
    pub(crate) fn next(&self, random: &mut SmallRng) -> OrderRequest {
        let customer = random.random_range(0..self.customers.len());
        let mut headers = self.customers[customer].clone();
        headers.insert(IDEMPOTENCY_KEY, key(random));
        self.request(headers, Bytes::from_static(ORDER))
    }

    /// One attempt at what this intent means, by the customer whose turn it is. Every attempt has the same body.
    pub(crate) fn of_intent(&self, intent: u64, key: Option<&str>) -> OrderRequest {
        let turn = usize::try_from(intent).unwrap_or_default() % self.customers.len();
        let mut headers = self.customers[turn].clone();
        // What is no header value could not be a key either, and the server says so.
        if let Some(key) = key.and_then(|key| HeaderValue::from_str(key).ok()) {
            headers.insert(IDEMPOTENCY_KEY, key);
        }
        let mut body = Vec::with_capacity(ORDER.len() + 64);
        // Before the brace that ends it.
        body.extend_from_slice(&ORDER[..ORDER.len() - 1]);
        body.extend_from_slice(format!(",\"client_reference\":\"{}\"}}", self.run.reference(intent)).as_bytes());
        self.request(headers, body.into())
    }

    fn request(&self, headers: HeaderMap, body: Bytes) -> OrderRequest {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path.clone();
        *request.headers_mut() = headers;
        request
    }
}

/// A version 4 UUID. Its bits come from a quick generator that was seeded by the system: a system call per key would be
/// a tenth of an order's whole cost here.
fn key(random: &mut SmallRng) -> HeaderValue {
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    uuid::Builder::from_random_bytes(random.random()).into_uuid().hyphenated().encode_lower(&mut text);
    // A UUID is visible ASCII, always; the other arm only exists because the type allows for less.
    HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("0"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use http_body_util::BodyExt;

    use super::*;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    fn orders() -> Orders {
        Orders::of_customers(10, SECRET, "127.0.0.1:8080".parse().unwrap()).unwrap()
    }

    #[test]
    fn every_order_has_a_fresh_uuid_for_a_key_and_a_token_of_one_of_the_customers() {
        let (orders, mut random) = (orders(), rand::make_rng());
        let credentials = Credentials::new(SECRET).unwrap();
        let (mut keys, mut customers) = (HashSet::new(), HashSet::new());
        for _ in 0..1000 {
            let request = orders.next(&mut random);
            let key = request.headers()["idempotency-key"].to_str().unwrap().to_owned();
            assert_eq!(uuid::Uuid::parse_str(&key).unwrap().get_version_num(), 4);
            assert!(keys.insert(key), "a key came twice");
            let token = request.headers()[AUTHORIZATION].to_str().unwrap().strip_prefix("Bearer ").unwrap();
            match credentials.check(token).unwrap() {
                Subject::Customer(CustomerId(id)) => customers.insert(id),
                Subject::Operator => panic!("an operator does not shop"),
            };
        }
        assert_eq!(customers, (1..=10).collect());
    }

    #[tokio::test]
    async fn the_total_is_that_of_the_items() {
        let request = orders().next(&mut rand::make_rng());
        assert_eq!((request.method(), request.uri().path()), (&Method::POST, "/v1/orders"));
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let order: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&order["total"], &order["items"][0]["quantity"]), (&4299.into(), &1.into()));
    }

    #[test]
    fn an_intent_is_known_by_its_name_and_only_in_its_own_run() {
        let (run, other) = (Run(0xfe), Run(0xff));
        assert_eq!(run.reference(7), "run-000000fe-intent-7");
        assert_eq!(run.intent_of(&run.reference(u64::MAX)), Some(u64::MAX));
        assert_eq!(other.intent_of(&run.reference(7)), None);
        for strange in ["", "run-", "run-fe", "run-fe-intent-", "run-fe-intent-x", "order-7"] {
            assert_eq!(run.intent_of(strange), None, "{strange}");
        }
    }
}
