//! Step 4, the charge, or the refund: no transaction is open, and what the gateway did is learned or admitted to be unknown.
//!
//! Before every send two clocks must allow it: the lease (afterwards somebody else may be sending) and the gateway's memory
//! of keys (afterwards the same key would charge again). Both are measured on our side from *before* the claim was asked
//! for, so that our clock can only err towards not sending.

use std::time::Duration;

use tokio::time::Instant;

use super::evidence::Evidence;
use crate::{
    config::{SETTLE_RESERVE_MS, Timing},
    crash_point::crash_point,
    gateway::{Ask, ChargeRequest, Lookup, Outcome, client::GatewayClient},
    idempotency::record::Claim,
};

/// A send needs this long at least to be worth the risk of an unknown outcome.
const SEND_TIME_MIN: Duration = Duration::from_millis(50);
/// What the first of two sends leaves for the second.
const FIRST_SEND_SHARE: f64 = 0.6;
/// Pause before the second send, if the gateway names none.
const RESEND_PAUSE: Duration = Duration::from_millis(200);
/// Sends per run; recovery is the patient one.
const SENDS_MAX: usize = 2;
/// How far the gateway's search may lag behind its books: Stripe says under a minute usually, up to an hour in an outage.
const SEARCH_LAG_MAX: Duration = Duration::from_secs(3600);
/// How long beyond that a search that does not answer at all is asked again before a person is.
const SEARCH_SILENCE_MAX: Duration = Duration::from_secs(24 * 3600);
/// What settling needs after the last answer, out of the lease.
const SETTLE_RESERVE: Duration = Duration::from_millis(SETTLE_RESERVE_MS);

/// Until when this owner may send, and until when it may ask.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// End of the gateway budget, or of the lease less what settling needs, whichever is first.
    pub answer_by: Instant,
    /// End of the gateway's memory of our key. Asking is allowed after it, sending is not.
    pub send_by: Instant,
    /// From here on, what the gateway does not show it never will: its search lags behind the last send, but not this long.
    pub give_up_at: Instant,
    /// From here on, a search that does not even answer is a person's business too.
    pub silence_ends: Instant,
    /// What the gateway created before this moment (seconds since 1970) belongs to an earlier purchase under the same key.
    /// Two purchases lie a whole expiry apart, a day at least, so half of that forgives any difference between two clocks.
    pub created_since_s: i64,
}

impl Limits {
    /// `asked_at`: our clock before the claim was asked for.
    pub fn of(claim: &Claim, timing: &Timing, asked_at: Instant) -> Self {
        let lease_left = (claim.lease_until - claim.now).try_into().unwrap_or(Duration::ZERO);
        let window = time::Duration::hours(i64::from(timing.resend_hours)) - (claim.now - claim.first_sent_at);
        let window_left = window.try_into().unwrap_or(Duration::ZERO);
        let lease_ends = asked_at + Duration::saturating_sub(lease_left, SETTLE_RESERVE);
        let past_window = (-window).try_into().unwrap_or(Duration::ZERO);
        Self {
            answer_by: lease_ends.min(asked_at + timing.gateway_budget()),
            send_by: asked_at + window_left,
            give_up_at: asked_at + window_left + SEARCH_LAG_MAX.saturating_sub(past_window),
            silence_ends: asked_at + window_left + (SEARCH_LAG_MAX + SEARCH_SILENCE_MAX).saturating_sub(past_window),
            created_since_s: (claim.first_sent_at - time::Duration::hours(12)).unix_timestamp(),
        }
    }

    fn may_send(&self) -> bool {
        let now = Instant::now();
        now + SEND_TIME_MIN < self.answer_by && now < self.send_by
    }
}

/// What is known of a charge at the end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Charged {
    Known(Outcome),
    /// The gateway shows nothing and has forgotten our key: nobody may send again, and only a person can find out.
    Untellable,
}

/// Looks first if an earlier owner may have sent, then sends, at most twice.
pub async fn charge(gateway: &GatewayClient, claim: &Claim, ask: &Ask, limits: Limits, evidence: &Evidence) -> Charged {
    // Nothing foretells a refund that a restored backup forgot, so a refund is looked for before its first send too.
    if claim.maybe_sent || matches!(ask, Ask::Refund(_)) {
        match look_up(gateway, ask, limits, evidence).await {
            Some(Charged::Known(Outcome::Unknown { why, frozen: false })) if !claim.maybe_sent => {
                return Charged::Known(Outcome::NotSent { why, retry_after: None });
            }
            Some(charged) => return charged,
            None => {}
        }
    }
    let outcome = send(gateway, claim, ask, limits).await;
    Charged::Known(match (outcome, ask) {
        (Outcome::Approved { gateway_id }, Ask::Charge(request)) if claim.maybe_sent => {
            confirm(gateway, gateway_id, request, limits, evidence).await
        }
        // Nothing left to give back: perhaps because it was given back under this very key, which the gateway has forgotten.
        (refused @ Outcome::Declined { .. }, Ask::Refund(_)) if claim.maybe_sent => {
            match gateway.look_up(ask, limits.created_since_s, time_left(limits, 1.0)).await {
                Lookup::Found(outcome @ (Outcome::Approved { .. } | Outcome::Pending { .. })) => outcome,
                Lookup::Found(_) | Lookup::NothingFound => refused,
                Lookup::Unreachable { why } => Outcome::Unknown { why, frozen: false },
            }
        }
        (outcome, _) => outcome,
    })
}

/// What the gateway shows of an earlier send, if that ends the run. First by name, where we have one: that answer is as new as
/// the gateway's books. Its search may lag behind them.
async fn look_up(gateway: &GatewayClient, ask: &Ask, limits: Limits, evidence: &Evidence) -> Option<Charged> {
    if let Ask::Charge(request) = ask {
        for gateway_id in &evidence.named {
            let found = gateway.retrieve(gateway_id, request, time_left(limits, 0.25)).await;
            if let Lookup::Found(outcome @ Outcome::Approved { .. }) = found {
                return Some(Charged::Known(outcome));
            }
        }
    }
    let found = gateway.look_up(ask, limits.created_since_s, time_left(limits, 0.5)).await;
    crash_point!(RecoveryLookedUp);
    match found {
        Lookup::Found(Outcome::Approved { gateway_id }) if evidence.given_back.contains(&gateway_id) => {
            Some(Charged::Known(being_given_back()))
        }
        Lookup::Found(outcome @ (Outcome::Approved { .. } | Outcome::Pending { .. } | Outcome::Declined { .. })) => {
            Some(Charged::Known(outcome))
        }
        Lookup::Found(_) | Lookup::NothingFound if Instant::now() >= limits.give_up_at => Some(Charged::Untellable),
        Lookup::Found(outcome @ Outcome::Unknown { frozen: true, .. }) => Some(Charged::Known(outcome)),
        Lookup::Found(_) | Lookup::NothingFound => None,
        Lookup::Unreachable { .. } if Instant::now() >= limits.silence_ends => Some(Charged::Untellable),
        Lookup::Unreachable { why } => Some(Charged::Known(Outcome::Unknown { why, frozen: false })),
    }
}

/// The answer to a repeated send is the first one's, word for word: it says nothing of a refund since. The payment itself does.
async fn confirm(
    gateway: &GatewayClient,
    gateway_id: String,
    request: &ChargeRequest,
    limits: Limits,
    evidence: &Evidence,
) -> Outcome {
    if evidence.given_back.contains(&gateway_id) {
        return being_given_back();
    }
    match gateway.retrieve(&gateway_id, request, time_left(limits, 1.0)).await {
        Lookup::Found(outcome) => outcome,
        Lookup::NothingFound => {
            Outcome::Unknown { why: format!("the gateway approved {gateway_id} and does not know it"), frozen: false }
        }
        Lookup::Unreachable { why } => Outcome::Unknown { why, frozen: false },
    }
}

/// Nothing may be settled by it, and nothing be sent before it has gone: the gateway would take it for the same.
fn being_given_back() -> Outcome {
    Outcome::Unknown { why: "an earlier charge under this key is being given back".to_owned(), frozen: false }
}

async fn send(gateway: &GatewayClient, claim: &Claim, ask: &Ask, limits: Limits) -> Outcome {
    let mut maybe_sent = claim.maybe_sent;
    let mut outcome =
        Outcome::NotSent { why: "there was no time left to send".to_owned(), retry_after: None }.sticky(maybe_sent);
    for send in 1..=SENDS_MAX {
        if !limits.may_send() {
            break;
        }
        let share = if send == SENDS_MAX { 1.0 } else { FIRST_SEND_SHARE };
        crash_point!(ChargeBeforeSend);
        outcome = gateway.send(ask, time_left(limits, share)).await.sticky(maybe_sent);
        crash_point!(ChargeAnswered);
        match &outcome {
            Outcome::Approved { .. } | Outcome::Pending { .. } => break,
            Outcome::Declined { .. } | Outcome::Misconfigured { .. } => break,
            Outcome::Unknown { frozen: true, .. } => break,
            Outcome::Unknown { frozen: false, .. } => maybe_sent = true,
            Outcome::NotSent { .. } => {}
        }
        let pause = match &outcome {
            Outcome::NotSent { retry_after: Some(named), .. } => *named,
            _ => RESEND_PAUSE,
        };
        // A pause that no send can follow would only keep the customer waiting.
        if send == SENDS_MAX || pause + SEND_TIME_MIN >= time_left(limits, 1.0) {
            break;
        }
        tokio::time::sleep(pause).await;
    }
    outcome
}

fn time_left(limits: Limits, share: f64) -> Duration {
    limits.answer_by.saturating_duration_since(Instant::now()).mul_f64(share).max(SEND_TIME_MIN)
}

#[cfg(test)]
mod tests;
