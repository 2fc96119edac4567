//! The gateway's own list of what it was asked for, page by page.
//!
//! It answers: what does the gateway know that we do not?

use std::time::Duration;

use serde::Deserialize;

use super::{GatewayClient, KEY_METADATA, exchange, refund};
use crate::{
    gateway::{
        Listed, ListedIntent, RefundsListed,
        classify::{PaymentIntent, is_id},
    },
    wire::json,
};

/// The most that the gateway gives at once.
const PAGE: &str = "100";

#[derive(Debug, Deserialize)]
struct List {
    data: Vec<PaymentIntent>,
    has_more: bool,
}

impl GatewayClient {
    /// Asks for one page of the payment intents that were created since one second and before another (seconds since 1970, by
    /// the gateway's clock), newest first: the first page, or the one after this id.
    pub async fn list(
        &self,
        created_since_s: i64,
        created_before_s: i64,
        after: Option<&str>,
        timeout: Duration,
    ) -> Listed {
        let (since, before) = (created_since_s.to_string(), created_before_s.to_string());
        let mut asked = vec![
            ("limit", PAGE),
            ("created[gte]", &*since),
            ("created[lt]", &*before),
            ("expand[]", "data.latest_charge"),
        ];
        asked.extend(after.map(|id| ("starting_after", id)));
        let ask = self.http.get(&self.charges_url).bearer_auth(&self.bearer).query(&asked).timeout(timeout);
        let answer = match exchange(ask).await {
            Ok(answer) => answer,
            Err(situation) => return Listed::Unreachable { why: situation.sentence().to_owned() },
        };
        match json::object::<List>(&answer.body) {
            // A page with a name that leads nowhere would end the paging early.
            Ok(list) if answer.status == 200 && list.data.iter().all(|intent| is_id(&intent.id)) => {
                Listed::Page { intents: list.data.into_iter().map(listed).collect(), has_more: list.has_more }
            }
            _ => Listed::Unreachable { why: format!("the gateway's list answered {}", answer.status) },
        }
    }
}

impl GatewayClient {
    /// The same of refunds, whoever made them.
    pub async fn list_refunds(
        &self,
        created_since_s: i64,
        created_before_s: i64,
        after: Option<&str>,
        timeout: Duration,
    ) -> RefundsListed {
        let (since, before) = (created_since_s.to_string(), created_before_s.to_string());
        let mut asked = vec![("limit", PAGE), ("created[gte]", &*since), ("created[lt]", &*before)];
        asked.extend(after.map(|id| ("starting_after", id)));
        let ask = self.http.get(&self.refunds_url).bearer_auth(&self.bearer).query(&asked).timeout(timeout);
        let answer = match exchange(ask).await {
            Ok(answer) => answer,
            Err(situation) => return RefundsListed::Unreachable { why: situation.sentence().to_owned() },
        };
        match json::object::<refund::List>(&answer.body) {
            Ok(list) if answer.status == 200 && list.data.iter().all(|refund| is_id(&refund.id)) => {
                RefundsListed::Page {
                    refunds: list.data.into_iter().map(refund::Refund::shown).collect(),
                    has_more: list.has_more,
                }
            }
            _ => {
                RefundsListed::Unreachable { why: format!("the gateway's list of refunds answered {}", answer.status) }
            }
        }
    }
}

fn listed(mut intent: PaymentIntent) -> ListedIntent {
    ListedIntent {
        amount_refunded: intent.amount_refunded(),
        checkout_key: intent.metadata.remove(KEY_METADATA),
        gateway_id: intent.id,
        status: intent.status,
        amount: intent.amount,
        currency: intent.currency,
        created_s: intent.created,
    }
}
