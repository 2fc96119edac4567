//! All that the gateway shows under a key, weighed for a person who is to end it.
//!
//! It answers: may the key end without a charge? One trace that is still open is enough to say no.

use std::time::Duration;

use super::{GatewayClient, of_this_purchase};
use crate::gateway::{ChargeRequest, Outcome, Shown, classify::PaymentIntent};

impl GatewayClient {
    /// Asks as [`Self::lookup`] does, for what was created since `since_s` (seconds since 1970) or still has the money.
    pub async fn shown(&self, request: &ChargeRequest, since_s: i64, timeout: Duration) -> Shown {
        match self.search(request, timeout).await {
            Ok(found) => weigh(found, request, since_s),
            Err(why) => Shown::Unreachable { why },
        }
    }
}

fn weigh(found: Vec<PaymentIntent>, request: &ChargeRequest, since_s: i64) -> Shown {
    let (mut others, mut open) = (Vec::new(), None);
    for intent in of_this_purchase(found, since_s) {
        let (gateway_id, gave_back) = (intent.id.clone(), intent.gave_back());
        let is_another = intent.took_another_amount(request);
        match intent.outcome(request) {
            Outcome::Approved { gateway_id } => return Shown::Charged { gateway_id },
            Outcome::Declined { .. } => {}
            // Of whatever amount it was, nothing is left to take.
            _ if gave_back => {}
            _ if is_another => others.push(gateway_id),
            outcome => open = Some(format!("{gateway_id}: {outcome:?}")),
        }
    }
    match open {
        Some(why) => Shown::Unsettled { why },
        None if others.is_empty() => Shown::NoMoney,
        None => Shown::OtherAmounts { gateway_ids: others },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::money::{Currency, Money};

    const SINCE_S: i64 = 1_700_000_000;

    fn intent(id: &str, amount: i64, status: &str) -> Value {
        json!({"id": id, "status": status, "amount": amount, "currency": "eur", "created": SINCE_S})
    }

    fn weighed(found: Value) -> Shown {
        let request = ChargeRequest {
            key: "chk_1".to_owned(),
            amount: Money::new(4299, Currency::Eur).unwrap(),
            payment_method: "pm_card_visa".to_owned(),
            reference: None,
        };
        weigh(serde_json::from_value(found).unwrap(), &request, SINCE_S)
    }

    #[test]
    fn other_amounts_end_a_key_and_one_open_trace_keeps_it() {
        let others =
            |ids: &[&str]| Shown::OtherAmounts { gateway_ids: ids.iter().map(|id| (*id).to_owned()).collect() };
        let (other, another) = (intent("pi_2", 100, "succeeded"), intent("pi_3", 200, "succeeded"));
        let (open, ours) = (intent("pi_4", 100, "processing"), intent("pi_5", 4299, "succeeded"));
        let mut given_back = intent("pi_6", 4200, "succeeded");
        given_back["latest_charge"] = json!({"id": "ch_6", "amount_refunded": 4200});
        let mut earlier = open.clone();
        earlier["created"] = json!(SINCE_S - 1);

        assert_eq!(weighed(json!([])), Shown::NoMoney);
        assert_eq!(weighed(json!([&given_back, &earlier])), Shown::NoMoney);
        assert_eq!(weighed(json!([&other, &another, &given_back])), others(&["pi_2", "pi_3"]));
        for shown in [json!([&other, &open]), json!([&open, &other])] {
            assert!(matches!(weighed(shown), Shown::Unsettled { why } if why.contains("pi_4")));
        }
        assert_eq!(weighed(json!([&other, &open, &ours])), Shown::Charged { gateway_id: "pi_5".to_owned() });
        // What has no name that can be passed on is nothing to end a key by.
        assert!(matches!(weighed(json!([intent("", 100, "succeeded")])), Shown::Unsettled { .. }));
    }
}
