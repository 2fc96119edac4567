//! Money back: one send, and what its answer means.
//!
//! It answers: does the customer have it? The discipline is that of a charge: what is not certain is unknown.

use std::{collections::HashMap, time::Duration};

use serde::Deserialize;
use tokio::time::Instant;

use super::{GatewayClient, exchange, is_in_order};
use crate::{
    gateway::{
        ALREADY_REFUNDED, Lookup, Outcome, RefundRequest,
        classify::{Answer, Situation, error_of, is_id},
    },
    wire::json,
};

#[derive(Debug, Deserialize)]
struct Refund {
    id: String,
    amount: i64,
    currency: String,
    status: String,
    /// Seconds since 1970.
    #[serde(default)]
    created: i64,
    #[serde(default)]
    metadata: HashMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct List {
    data: Vec<Refund>,
    has_more: bool,
}

impl GatewayClient {
    /// Sends the refund once and waits at most `timeout` for the whole answer.
    pub async fn refund(&self, request: &RefundRequest, timeout: Duration) -> Outcome {
        let send = self
            .http
            .post(&self.refunds_url)
            .bearer_auth(&self.bearer)
            .header("Idempotency-Key", &request.key)
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(form(request))
            .timeout(timeout);
        let began = Instant::now();
        let exchanged = exchange(send).await;
        self.breaker.heard(began, exchanged.as_ref().is_ok_and(is_in_order));
        match exchanged {
            Ok(answer) => outcome(&answer, request),
            Err(situation) => situation.plain(),
        }
    }

    /// Asks what became of a refund, without sending one: is it among those of its charge? Unlike the search for charges this
    /// list is as new as the gateway's books; not to be in it proves nothing all the same while a send may be on its way.
    ///
    /// The list is read to its end, however many refunds the charge has, within `timeout` for all of its pages: one that was not
    /// read whole proves nothing, and is [`Lookup::Unreachable`].
    ///
    /// A refused key may run anew after it expired, so one that failed before `since_s` (seconds since 1970) is an earlier
    /// one's, and says nothing of this.
    pub async fn lookup_refund(&self, request: &RefundRequest, since_s: i64, timeout: Duration) -> Lookup {
        let ended = tokio::time::timeout(timeout, self.among_refunds(request, since_s)).await;
        match ended {
            Ok(Ok(Some(refund))) => Lookup::Found(refund.outcome(request)),
            Ok(Ok(None)) => Lookup::NothingFound,
            Ok(Err(why)) => Lookup::Unreachable { why },
            Err(_) => Lookup::Unreachable { why: Situation::TimedOut.sentence().to_owned() },
        }
    }

    /// One that went through outweighs one that failed: a refused key may have run anew.
    async fn among_refunds(&self, request: &RefundRequest, since_s: i64) -> Result<Option<Refund>, String> {
        let (mut found, mut after) = (None, None);
        loop {
            let list = self.page_of_refunds(request, after.as_deref()).await?;
            let last = list.data.last().map(|refund| refund.id.clone());
            let ours =
                list.data.into_iter().filter(|refund| refund.metadata.get(super::KEY_METADATA) == Some(&request.key));
            for refund in ours {
                if matches!(refund.status.as_str(), "succeeded" | "pending") {
                    return Ok(Some(refund));
                }
                if refund.created >= since_s {
                    found = Some(refund);
                }
            }
            if !list.has_more {
                return Ok(found);
            }
            if last.is_none() || last == after {
                return Err("the gateway's list of refunds announces more and does not show it".to_owned());
            }
            after = last;
        }
    }

    async fn page_of_refunds(&self, request: &RefundRequest, after: Option<&str>) -> Result<List, String> {
        let mut asked = vec![("payment_intent", request.gateway_id.as_str()), ("limit", "100")];
        asked.extend(after.map(|id| ("starting_after", id)));
        let ask = self.http.get(&self.refunds_url).bearer_auth(&self.bearer).query(&asked);
        let answer = exchange(ask).await.map_err(|situation| situation.sentence().to_owned())?;
        match json::object::<List>(&answer.body) {
            Ok(list) if answer.status == 200 => Ok(list),
            _ => Err(format!("the gateway's list of refunds answered {}", answer.status)),
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

fn outcome(answer: &Answer, request: &RefundRequest) -> Outcome {
    if answer.status == 200 {
        return match json::object::<Refund>(&answer.body) {
            Ok(refund) => refund.outcome(request),
            Err(_) => Situation::AnswerUnreadable.plain(),
        };
    }
    let error = error_of(answer);
    let code = error.as_ref().and_then(|error| error.code.as_deref());
    if (answer.status, code) == (400, Some(ALREADY_REFUNDED)) {
        return refused(ALREADY_REFUNDED, "The gateway says that nothing is left to give back.".to_owned());
    }
    match (answer.situation(error.as_ref()), error) {
        // Read and refused: too much, or nothing there to give back.
        (Situation::RequestRefused | Situation::PaymentMethodUnknown, Some(error)) => {
            refused("refused", error.sentence().unwrap_or_else(|| Situation::RequestRefused.sentence().to_owned()))
        }
        (situation, _) => answer.plain(situation),
    }
}

fn refused(code: &str, message: String) -> Outcome {
    Outcome::Declined { gateway_id: None, decline_code: code.to_owned(), message }
}

impl Refund {
    fn outcome(self, request: &RefundRequest) -> Outcome {
        let same_money =
            self.amount == request.amount.amount_minor() && self.currency == request.amount.currency().code();
        match self.status.as_str() {
            _ if !same_money => Situation::OtherAmount.plain(),
            _ if !is_id(&self.id) => Situation::AnswerUnreadable.plain(),
            // Pending is decided too: the gateway owes it, and a bank takes its time.
            "succeeded" | "pending" => Outcome::Approved { gateway_id: self.id },
            "failed" | "canceled" => refused("refused", format!("the gateway's refund {}", self.status)),
            _ => Situation::StillProcessing.plain(),
        }
    }
}

#[cfg(test)]
mod tests;
