//! `/v1/webhooks/gateway`: where the gateway tells what happened.
//!
//! Believed by its signature over the raw bytes, before anything reads them; then kept, and only then acknowledged: what we
//! said 200 to is never sent again. Nothing is decided here.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Request, State},
    http::HeaderMap,
    response::Response,
};
use serde_json::json;
use tokio::time::{Duration, Instant};

use super::{Door, door, reply};
use crate::{
    checkout::{evidence, shield::Shielded},
    database,
    gateway::event::GatewayEvent,
    ids::RequestId,
    webhooks::signature::{NotBelieved, verify},
    wire::problem::{Code, Problem},
};

/// Largest event, in bytes.
const EVENT_BYTES_MAX: usize = 256 * 1024;

/// The gateway waits 5 s, and takes a later answer for none.
const ANSWER_MAX: Duration = Duration::from_secs(4);

const SIGNATURE: &str = "stripe-signature";

/// What the gateway signs with.
#[derive(Clone)]
pub struct WebhookSecret(Arc<str>);

impl WebhookSecret {
    pub fn new(secret: &str) -> anyhow::Result<Self> {
        anyhow::ensure!(
            secret.strip_prefix("whsec_").is_some_and(|rest| !rest.is_empty()),
            "a webhook secret starts with whsec_ and goes on"
        );
        Ok(Self(secret.into()))
    }
}

impl std::fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookSecret(…)")
    }
}

/// `POST /v1/webhooks/gateway`: 200 once the event is kept, now or before.
pub(super) async fn gateway(
    State(door): State<Arc<Door>>,
    Extension(request_id): Extension<RequestId>,
    request: Request,
) -> Response {
    let Some(secret) = door.webhook_secret.clone() else {
        return reply::problem(&Problem::new(Code::NotFound, "Nobody is told anything here."), request_id);
    };
    match receive(&door, &secret, request).await {
        Ok(()) => reply::json(&json!({ "received": true }), request_id),
        Err(problem) => reply::problem(&problem, request_id),
    }
}

async fn receive(door: &Door, secret: &WebhookSecret, request: Request) -> Result<(), Problem> {
    let answer_by = Instant::now() + ANSWER_MAX;
    let (parts, body) = request.into_parts();
    let body = door::read_body(body, EVENT_BYTES_MAX).await?;
    believe(door, secret, &parts.headers, &body).await?;

    let malformed = || Problem::new(Code::MalformedJson, "The body is not an event of the gateway.");
    let event = GatewayEvent::read(&body).ok_or_else(malformed)?;
    let payload = String::from_utf8(body).map_err(|_| malformed())?;
    let pool = door.checkout.pool.clone();
    let work = async move { evidence::keep(&pool, &event, &payload).await };
    match door.shield.run(answer_by, work).await {
        Shielded::Done(Ok(())) => Ok(()),
        Shielded::Done(Err(error)) => Err(unavailable(&error)),
        Shielded::StillRunning | Shielded::Overloaded | Shielded::Broken => {
            Err(unavailable(&anyhow::anyhow!("an event was not kept in time")))
        }
    }
}

/// The gateway's hour against ours, and ours is the database's.
async fn believe(door: &Door, secret: &WebhookSecret, headers: &HeaderMap, body: &[u8]) -> Result<(), Problem> {
    let mut signed = headers.get_all(SIGNATURE).iter();
    let header = match (signed.next().map(|header| header.to_str()), signed.next()) {
        (Some(Ok(header)), None) => header,
        _ => return Err(not_believed(NotBelieved::Unreadable)),
    };
    let now = database::clock(&door.checkout.pool).await.map_err(|error| unavailable(&error.into()))?;
    verify(&secret.0, header, body, now.unix_timestamp()).map_err(not_believed)
}

fn not_believed(reason: NotBelieved) -> Problem {
    Problem::new(Code::WebhookSignatureInvalid, format!("{reason}."))
}

/// The gateway will tell it again.
fn unavailable(error: &anyhow::Error) -> Problem {
    tracing::warn!(error = format!("{error:#}"), "an event of the gateway could not be kept");
    Problem::new(Code::Unavailable, "The event could not be kept.").retry_after(Duration::from_secs(2))
}
