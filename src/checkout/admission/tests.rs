//! A ticket puts back what the claim did not use up.

use super::*;
use crate::idempotency::record::StoredResponse;

const ADA: CustomerId = CustomerId(1);

fn admission(running_max: usize) -> Admission {
    let customer =
        CustomerArgs { customer_rate_per_s: 1, customer_burst: 1, customer_reads_per_s: 0, customer_keys_max: 0 };
    let breaker = BreakerArgs { gateway_failures_max: 1, gateway_pause_ms: 4_000 };
    Admission::new(Shield::new(running_max, 99), &customer, &breaker)
}

fn refusal(ticket: Result<Ticket, Problem>) -> (Code, Duration) {
    let problem = ticket.unwrap_err();
    (problem.code, problem.retry_after.expect("every refusal of the moment says when to come back"))
}

#[tokio::test(start_paused = true)]
async fn a_retry_costs_nothing_and_a_purchase_refused_for_itself_does() {
    let admission = admission(9);
    let replay = StoredResponse { status: 201, content_type: String::new(), location: None, body: Vec::new() };
    for outcome in [ClaimOutcome::Replay(replay), ClaimOutcome::Mismatch, ClaimOutcome::NeedsReview] {
        admission.ticket(ADA).unwrap().account(&Ok(outcome));
    }
    admission.ticket(ADA).unwrap().account(&Err(NoClaim::Overloaded));
    admission.ticket(ADA).unwrap().account(&Ok(ClaimOutcome::NotAdmitted));
    assert_eq!(refusal(admission.ticket(ADA)), (Code::RateLimited, Duration::from_secs(1)));
}

#[tokio::test(start_paused = true)]
async fn whoever_is_refused_for_another_reason_is_not_the_gateways_probe() {
    let admission = admission(9);
    admission.breaker.heard(tokio::time::Instant::now(), false);
    assert_eq!(refusal(admission.ticket(ADA)), (Code::GatewayUnavailable, Duration::from_secs(4)));
    tokio::time::advance(Duration::from_secs(4)).await;
    admission.purchases.take(ADA).unwrap();
    assert_eq!(refusal(admission.ticket(ADA)).0, Code::RateLimited);
    assert!(admission.ticket(CustomerId(2)).is_ok(), "there was room for a probe");
}

#[test]
fn those_who_find_no_place_are_sent_away_for_different_times() {
    let admission = admission(1);
    let _only = admission.ticket(ADA).unwrap();
    let waits: std::collections::BTreeSet<_> = (0..200)
        .map(|_| refusal(admission.ticket(CustomerId(2))))
        .map(|(code, wait)| {
            assert_eq!(code, Code::Overloaded);
            wait.as_secs()
        })
        .collect();
    assert_eq!(waits.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
}
