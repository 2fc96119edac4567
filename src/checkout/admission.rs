//! May a new purchase begin at this moment? Asked before the claim, and it matters only if the claim finds that it is new: a
//! retry of what happened already gets its answer although no new purchase would be taken.
//!
//! A [`Ticket`] is everything a new purchase needs: a place, an allowance of its customer, a gateway that answers. What turns out
//! to be a retry gives all of it back.

mod buckets;
mod quota;

use std::time::Duration;

use super::{
    claim::{ClaimOutcome, NoClaim},
    shield::{Place, Shield},
};
use crate::{
    config::{BreakerArgs, CustomerArgs},
    gateway::breaker::{Breaker, Pass},
    ids::CustomerId,
    wire::problem::{Code, Problem},
};

pub use self::buckets::Buckets;
pub use self::quota::Quota;
use self::{buckets::Token, quota::Room};

/// The gate in front of the claim. Cheap to clone; clones share it.
#[derive(Debug, Clone)]
pub struct Admission {
    shield: Shield,
    purchases: Buckets,
    pub keys: Quota,
    pub breaker: Breaker,
}

/// The right to begin one new purchase.
#[derive(Debug)]
pub struct Ticket {
    _place: Place,
    token: Token,
    room: Room,
    _pass: Pass,
}

impl Admission {
    pub fn new(shield: Shield, customer: &CustomerArgs, breaker: &BreakerArgs) -> Self {
        Self {
            shield,
            purchases: Buckets::new(customer.customer_rate_per_s, customer.customer_burst),
            keys: Quota::new(customer.customer_keys_max),
            breaker: Breaker::new(breaker.gateway_failures_max, breaker.pause()),
        }
    }

    /// A ticket, or what to tell the customer if this is new. The gateway is asked for last: whoever is its probe must be
    /// one that is let through.
    pub fn ticket(&self, customer: CustomerId) -> Result<Ticket, Problem> {
        let place = self.shield.place().ok_or_else(overloaded)?;
        let token = self.purchases.token(customer).map_err(rate_limited)?;
        let room = self.keys.room(customer).map_err(key_quota_exceeded)?;
        let pass = self.breaker.pass().map_err(gateway_unavailable)?;
        Ok(Ticket { _place: place, token, room, _pass: pass })
    }
}

impl Ticket {
    /// Keeps of the ticket what the claim has used up. A first claim is what was paid for, and so is a purchase that was
    /// refused for itself; a retry costs nothing, however often it comes.
    pub fn account(&mut self, outcome: &Result<ClaimOutcome, NoClaim>) {
        match outcome {
            // Behind a later fence somebody has paid already.
            Ok(ClaimOutcome::Execute(claim) | ClaimOutcome::Resume(claim)) if claim.fence == 1 => {
                self.token.spend();
                self.room.fill();
            }
            Ok(ClaimOutcome::NotAdmitted | ClaimOutcome::TooMuch(_)) => self.token.spend(),
            _ => {}
        }
    }
}

/// Others come at the same moment and are told the same, so they are told different times to come back.
pub fn overloaded() -> Problem {
    let wait = Duration::from_secs(rand::random_range(1..=3));
    Problem::new(Code::Overloaded, "Too much is being asked for at this moment.").retry_after(wait)
}

/// `wait`: until there is an allowance again.
pub fn rate_limited(wait: Duration) -> Problem {
    let detail = "You ask for more than your share at this moment. Send it again, unchanged, after a while.";
    Problem::new(Code::RateLimited, detail).retry_after(wait)
}

/// `wait`: until keys are forgotten.
fn key_quota_exceeded(wait: Duration) -> Problem {
    let detail = "You have as many keys that have not expired as one customer may have. Retries are answered as ever.";
    Problem::new(Code::KeyQuotaExceeded, detail).retry_after(wait)
}

fn gateway_unavailable(wait: Duration) -> Problem {
    let detail = "The gateway has not answered for a while, so nothing was begun. Send it again under the same key.";
    Problem::new(Code::GatewayUnavailable, detail).retry_after(wait)
}

#[cfg(test)]
mod tests;
