//! Money back: one send, and what its answer means.
//!
//! It answers: does the customer have it? The discipline is that of a charge: what is not certain is unknown.

use std::{collections::HashMap, time::Duration};

use serde::Deserialize;
use tokio::time::Instant;

use super::{GatewayClient, exchange, is_in_order};
use crate::{
    gateway::{
        ALREADY_REFUNDED, Lookup, Outcome, RefundFound, RefundRequest, RefundStatus, ShownRefund,
        classify::{Answer, Situation, error_of, is_id},
    },
    wire::json,
};

#[derive(Debug, Deserialize)]
pub(super) struct Refund {
    pub(super) id: String,
    amount: i64,
    currency: String,
    status: String,
    #[serde(default)]
    payment_intent: Option<String>,
    /// Seconds since 1970.
    #[serde(default)]
    created: i64,
    #[serde(default)]
    metadata: HashMap<String, String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct List {
    pub(super) data: Vec<Refund>,
    pub(super) has_more: bool,
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
        match self.refunds_under(request, timeout).await {
            Ok(found) => most_telling(found, request, since_s),
            Err(why) => Lookup::Unreachable { why },
        }
    }

    /// All that the gateway shows of this payment under this key, of whatever amount.
    pub async fn refunds_under(&self, request: &RefundRequest, timeout: Duration) -> Result<Vec<ShownRefund>, String> {
        match tokio::time::timeout(timeout, self.among_refunds(request)).await {
            Ok(found) => found,
            Err(_) => Err(Situation::TimedOut.sentence().to_owned()),
        }
    }

    async fn among_refunds(&self, request: &RefundRequest) -> Result<Vec<ShownRefund>, String> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let list = self.page_of_refunds(request, after.as_deref()).await?;
            let last = list.data.last().map(|refund| refund.id.clone());
            let ours =
                list.data.into_iter().filter(|refund| refund.metadata.get(super::KEY_METADATA) == Some(&request.key));
            found.extend(ours.map(Refund::shown));
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

    /// Asks for one refund by the gateway's own name for it, whoever made it.
    pub async fn retrieve_refund(&self, gateway_id: &str, timeout: Duration) -> RefundFound {
        if gateway_id.is_empty() || !gateway_id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return RefundFound::NotThere;
        }
        let ask =
            self.http.get(format!("{}/{gateway_id}", self.refunds_url)).bearer_auth(&self.bearer).timeout(timeout);
        let answer = match exchange(ask).await {
            Ok(answer) => answer,
            Err(situation) => return RefundFound::Unreachable { why: situation.sentence().to_owned() },
        };
        match (answer.status, json::object::<Refund>(&answer.body)) {
            (200, Ok(refund)) if refund.id == gateway_id => RefundFound::Shown(refund.shown()),
            // Only in the gateway's own envelope: a 404 of somebody in between says nothing.
            (404, _) if error_of(&answer).is_some() => RefundFound::NotThere,
            (status, _) => RefundFound::Unreachable { why: format!("the gateway answered {status}") },
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
            Ok(refund) => meaning(refund.shown(), request),
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

/// One that went through outweighs one that failed, and what was asked for outweighs another amount: a refused key may have run
/// anew, and a restored backup may have asked for something else.
fn most_telling(found: Vec<ShownRefund>, request: &RefundRequest, since_s: i64) -> Lookup {
    let rank = |refund: &ShownRefund| (refund.status != RefundStatus::Failed, is_amount_of(refund, request));
    let telling =
        found.into_iter().filter(|refund| refund.status != RefundStatus::Failed || refund.created_s >= since_s);
    match telling.max_by_key(rank) {
        Some(refund) => Lookup::Found(meaning(refund, request)),
        None => Lookup::NothingFound,
    }
}

fn is_amount_of(refund: &ShownRefund, request: &RefundRequest) -> bool {
    refund.amount == request.amount.amount_minor() && refund.currency == request.amount.currency().code()
}

/// What the gateway's own record of our refund says.
fn meaning(refund: ShownRefund, request: &RefundRequest) -> Outcome {
    match refund.status {
        // Of whatever amount it was, nothing of it went back.
        RefundStatus::Failed => refused("refused", "the gateway's refund failed".to_owned()),
        RefundStatus::Pending | RefundStatus::Succeeded if !is_amount_of(&refund, request) => {
            Situation::OtherAmountGivenBack.plain()
        }
        _ if !is_id(&refund.gateway_id) => Situation::AnswerUnreadable.plain(),
        // Decided too: the gateway owes it, and a bank takes its time. If that turns it down, it is heard later.
        RefundStatus::Pending => Outcome::Pending { gateway_id: refund.gateway_id },
        RefundStatus::Succeeded => Outcome::Approved { gateway_id: refund.gateway_id },
        RefundStatus::Open => Situation::StillProcessing.plain(),
    }
}

impl Refund {
    pub(super) fn shown(mut self) -> ShownRefund {
        ShownRefund {
            status: match self.status.as_str() {
                "pending" => RefundStatus::Pending,
                "succeeded" => RefundStatus::Succeeded,
                "failed" | "canceled" => RefundStatus::Failed,
                _ => RefundStatus::Open,
            },
            checkout_key: self.metadata.remove(super::KEY_METADATA),
            gateway_id: self.id,
            amount: self.amount,
            currency: self.currency,
            payment_intent: self.payment_intent,
            created_s: self.created,
        }
    }
}

#[cfg(test)]
mod tests;
