//! Money back: one send, and what its answer means.
//!
//! It answers: does the customer have it? The discipline is that of a charge: what is not certain is unknown.

use std::time::Duration;

use serde::Deserialize;

use super::{GatewayClient, exchange};
use crate::gateway::{
    RefundOutcome, RefundRequest,
    classify::{Answer, Meaning, Situation, error_of, is_id},
};

#[derive(Debug, Deserialize)]
struct Refund {
    id: String,
    amount: i64,
    currency: String,
    status: String,
}

impl GatewayClient {
    /// Sends the refund once and waits at most `timeout` for the whole answer.
    pub async fn refund(&self, request: &RefundRequest, timeout: Duration) -> RefundOutcome {
        let send = self
            .http
            .post(&self.refunds_url)
            .bearer_auth(&self.bearer)
            .header("Idempotency-Key", &request.key)
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(form(request))
            .timeout(timeout);
        match exchange(send).await {
            Ok(answer) => outcome(&answer, request),
            Err(situation) => plain(situation),
        }
    }
}

/// The same bytes for the same request, always: the gateway compares them.
fn form(request: &RefundRequest) -> String {
    let mut form = form_urlencoded::Serializer::new(String::with_capacity(256));
    form.append_pair("payment_intent", &request.gateway_id);
    form.append_pair("amount", &request.amount.amount_minor().to_string());
    form.append_pair(&format!("metadata[{}]", super::KEY_METADATA), &request.key);
    form.finish()
}

fn outcome(answer: &Answer, request: &RefundRequest) -> RefundOutcome {
    if answer.status == 200 {
        return match serde_json::from_slice::<Refund>(&answer.body) {
            Ok(refund) => refund.outcome(request),
            Err(_) => plain(Situation::AnswerUnreadable),
        };
    }
    let error = error_of(answer);
    let code = error.as_ref().and_then(|error| error.code.as_deref());
    if (answer.status, code) == (400, Some("charge_already_refunded")) {
        return RefundOutcome::AlreadyRefunded;
    }
    match (answer.situation(error.as_ref()), error) {
        // Read and refused: too much, or nothing there to give back.
        (Situation::RequestRefused | Situation::PaymentMethodUnknown, Some(error)) => RefundOutcome::Refused {
            why: error.sentence().unwrap_or_else(|| Situation::RequestRefused.sentence().to_owned()),
        },
        (situation, _) => plain(situation),
    }
}

impl Refund {
    fn outcome(self, request: &RefundRequest) -> RefundOutcome {
        let same_money =
            self.amount == request.amount.amount_minor() && self.currency == request.amount.currency().code();
        match self.status.as_str() {
            _ if !same_money => plain(Situation::OtherAmount),
            _ if !is_id(&self.id) => plain(Situation::AnswerUnreadable),
            // Pending is decided too: the gateway owes it, and a bank takes its time.
            "succeeded" | "pending" => RefundOutcome::Refunded { refund_id: self.id },
            "failed" | "canceled" => RefundOutcome::Refused { why: format!("the gateway's refund {}", self.status) },
            _ => plain(Situation::StillProcessing),
        }
    }
}

/// The outcome of a situation that carries nothing but itself.
fn plain(situation: Situation) -> RefundOutcome {
    let why = situation.sentence().to_owned();
    match situation.meaning() {
        // Not let in is not executed either, and once we are, the same key is good.
        Meaning::NotSent | Meaning::Misconfigured => RefundOutcome::NotSent { why },
        Meaning::Unknown | Meaning::UnknownRecorded | Meaning::Approved | Meaning::Declined => {
            RefundOutcome::Unknown { why }
        }
    }
}

#[cfg(test)]
mod tests;
