//! A webhook endpoint for the stories about events: it keeps what it hears, and answers as it is told.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU16, Ordering},
};

use axum::{Router, body::Bytes, extract::State, http::HeaderMap, routing::post};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{gateway_world::World, support::wait_for};

pub(crate) const SECRET: &str = "whsec_of_the_tests";

/// What an endpoint heard, delivery by delivery.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    pub(crate) signature: String,
    pub(crate) body: Vec<u8>,
}

impl Delivery {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    pub(crate) fn id(&self) -> String {
        self.json()["id"].as_str().expect("an id").to_owned()
    }

    pub(crate) fn key(&self) -> String {
        self.json()["request"]["idempotency_key"].as_str().expect("a key").to_owned()
    }

    /// Computed here from the definition of HMAC, so that gateway and test cannot share a mistake.
    pub(crate) fn is_signed(&self) -> bool {
        let (at, signature) = self.signature.split_once(",v1=").expect("two parts");
        let at = at.strip_prefix("t=").expect("a time");
        let mut key = SECRET.as_bytes().to_vec();
        key.resize(64, 0);
        let pad = |byte: u8| key.iter().map(|letter| letter ^ byte).collect::<Vec<u8>>();
        let inner = Sha256::new().chain_update(pad(0x36)).chain_update(at).chain_update(".").chain_update(&self.body);
        let outer = Sha256::new().chain_update(pad(0x5c)).chain_update(inner.finalize()).finalize();
        hex::encode(outer) == signature
    }

    pub(crate) fn signed_at_s(&self) -> u64 {
        let at = self.signature.split_once(',').expect("two parts").0;
        at.strip_prefix("t=").and_then(|at| at.parse().ok()).expect("a time")
    }
}

#[derive(Debug)]
struct Heard {
    deliveries: Mutex<Vec<Delivery>>,
    /// What it answers.
    status: AtomicU16,
}

#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) url: String,
    heard: Arc<Heard>,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let heard = Arc::new(Heard { deliveries: Mutex::default(), status: AtomicU16::new(200) });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/hooks", listener.local_addr().expect("an address"));
        let router = Router::new().route("/hooks", post(hear)).with_state(Arc::clone(&heard));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, heard }
    }

    pub(crate) fn answer(&self, status: u16) {
        self.heard.status.store(status, Ordering::SeqCst);
    }

    pub(crate) fn deliveries(&self) -> Vec<Delivery> {
        self.heard.deliveries.lock().expect("the receiver's lock").clone()
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.deliveries().iter().map(Delivery::key).collect()
    }
}

async fn hear(State(heard): State<Arc<Heard>>, headers: HeaderMap, body: Bytes) -> http::StatusCode {
    let signature = headers["stripe-signature"].to_str().expect("ASCII").to_owned();
    heard.deliveries.lock().expect("the receiver's lock").push(Delivery { signature, body: body.to_vec() });
    http::StatusCode::from_u16(heard.status.load(Ordering::SeqCst)).expect("a status")
}

/// Tells the gateway whom to tell.
pub(crate) async fn listen(world: &World, receiver: &Receiver) {
    let set = world.control("webhooks", json!({ "url": receiver.url, "secret": SECRET })).await;
    assert_eq!((set.status, &set.json["endpoint"]), (200, &json!(receiver.url)), "{}", set.text);
}

pub(crate) async fn status(world: &World) -> Value {
    world.get("/_mock/webhooks").await.json
}

pub(crate) async fn delivered(world: &World, count: u64) {
    wait_for("the events are delivered", async || {
        let status = status(world).await;
        status["delivered"] == count && status["pending"] == 0
    })
    .await;
}
