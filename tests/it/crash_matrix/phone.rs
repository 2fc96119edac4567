//! The customer's phone: sends an order under its key again and again, whatever comes back, until the answer is final.

use std::time::Duration;

use crate::support::{Answer, CUSTOMER, Shop, grinder};

/// Between two attempts of one phone.
const PAUSE: Duration = Duration::from_millis(100);
/// Generous: a trial waits for an event, and this only bounds a hang.
const ATTEMPTS_MAX: usize = 400;

/// What one attempt came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Attempt {
    Final(Answer),
    /// A problem that says: again, under the same key.
    Open(u16),
    NoAnswer,
}

impl Attempt {
    pub(super) fn name(&self) -> String {
        match self {
            Self::Final(answer) => answer.status.to_string(),
            Self::Open(status) => status.to_string(),
            Self::NoAnswer => "none".to_owned(),
        }
    }
}

/// One attempt, as a future that owns all it needs: the shop may be changed meanwhile.
pub(super) fn attempt(shop: &Shop, key: &str) -> impl Future<Output = Attempt> + Send + use<> {
    let request = shop.http.post(format!("{}/v1/orders", shop.api_url)).bearer_auth(shop.token(CUSTOMER));
    let request = request.header("Idempotency-Key", key).json(&grinder("pm_card_visa"));
    async move {
        let Ok(response) = request.send().await else { return Attempt::NoAnswer };
        let Some(answer) = Answer::read(response).await else { return Attempt::NoAnswer };
        match answer.status {
            201 | 402 => Attempt::Final(answer),
            status @ (409 | 500 | 503 | 504) if answer.json()["retry"] == "same_key" => Attempt::Open(status),
            other => panic!("{other} was not to be expected: {}", answer.text()),
        }
    }
}

/// Attempts until the answer is final, and how many there were.
pub(super) async fn until_final(shop: &Shop, key: &str) -> (Answer, usize) {
    for attempts in 1..=ATTEMPTS_MAX {
        if let Attempt::Final(answer) = attempt(shop, key).await {
            return (answer, attempts);
        }
        tokio::time::sleep(PAUSE).await;
    }
    panic!("no final answer after {ATTEMPTS_MAX} attempts");
}
