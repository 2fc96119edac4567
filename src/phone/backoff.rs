//! When to try again, and when to stop. Question: how long does a client wait, so that a thousand of them do not come back at
//! the same moment?
//!
//! Full jitter: anywhere between nothing and a bound that doubles with each attempt. What `Retry-After` asks for comes on top,
//! never off: a server that names a second gets at least that second. The other ways to pause are clients that have shipped.

use std::time::Duration;

/// How long a client keeps trying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Most attempts, the first included.
    pub attempts_max: u32,
    /// No attempt begins later than this after the first.
    pub horizon: Duration,
    /// One answer is waited for this long.
    pub answer_max: Duration,
    /// Bound of the first pause; it doubles with every further one.
    pub pause_first: Duration,
    /// The bound doubles no further.
    pub pause_max: Duration,
    pub pacing: Pacing,
    /// Does it wait for as long as the server asks it to?
    pub heeds_retry_after: bool,
}

/// What a client makes of the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pacing {
    /// No pause at all.
    AtOnce,
    /// The first bound, every time.
    Fixed,
    /// The bound itself: whoever failed together comes back together.
    Exponential,
    /// Any part of the bound.
    FullJitter,
}

impl Patience {
    /// Somebody looks at the screen: six attempts within a minute. An answer takes 8 s at most, so 10 s is no answer.
    pub const PHONE: Self = Self {
        attempts_max: 6,
        horizon: Duration::from_secs(60),
        answer_max: Duration::from_secs(10),
        pause_first: Duration::from_millis(500),
        pause_max: Duration::from_secs(8),
        pacing: Pacing::FullJitter,
        heeds_retry_after: true,
    };

    /// As seen by a clock that runs so many times faster: what took ten seconds takes one. Only the client's own waits; the
    /// server's work takes what it takes.
    pub fn scaled(self, times_faster: u32) -> Self {
        let times = times_faster.max(1);
        Self {
            horizon: self.horizon / times,
            answer_max: self.answer_max / times,
            pause_first: self.pause_first / times,
            pause_max: self.pause_max / times,
            ..self
        }
    }

    /// The pause after so many attempts. `luck` is from 0 to 1.
    pub fn pause(&self, attempts: u32, retry_after: Option<Duration>, luck: f64) -> Duration {
        let doublings = attempts.saturating_sub(1).min(31);
        let bound = self.pause_first.saturating_mul(1 << doublings).min(self.pause_max);
        let own = match self.pacing {
            Pacing::AtOnce => Duration::ZERO,
            Pacing::Fixed => self.pause_first,
            Pacing::Exponential => bound,
            Pacing::FullJitter => bound.mul_f64(luck.clamp(0.0, 1.0)),
        };
        retry_after.filter(|_| self.heeds_retry_after).unwrap_or_default().saturating_add(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(retry_after: Option<u64>, luck: f64) -> Vec<u128> {
        let retry_after = retry_after.map(Duration::from_secs);
        (1..=7).map(|attempts| Patience::PHONE.pause(attempts, retry_after, luck).as_millis()).collect()
    }

    #[test]
    fn the_bound_doubles_up_to_its_limit_and_luck_takes_any_part_of_it() {
        assert_eq!(pauses(None, 1.0), [500, 1000, 2000, 4000, 8000, 8000, 8000]);
        assert_eq!(pauses(None, 0.5), [250, 500, 1000, 2000, 4000, 4000, 4000]);
        assert_eq!(pauses(None, 0.0), [0; 7]);
    }

    #[test]
    fn what_the_server_asks_for_is_the_least_and_jitter_comes_on_top() {
        assert_eq!(pauses(Some(3), 0.0), [3000; 7]);
        assert_eq!(pauses(Some(3), 1.0)[..2], [3500, 4000]);
    }

    #[test]
    fn other_clients_pause_as_they_were_built_and_may_be_deaf() {
        let pauses = |pacing| {
            let patience = Patience { pacing, heeds_retry_after: false, ..Patience::PHONE };
            [1, 2, 9].map(|attempts| patience.pause(attempts, Some(Duration::from_secs(3)), 0.5).as_millis())
        };
        assert_eq!(pauses(Pacing::AtOnce), [0; 3]);
        assert_eq!(pauses(Pacing::Fixed), [500; 3]);
        assert_eq!(pauses(Pacing::Exponential), [500, 1000, 8000]);
        assert_eq!(pauses(Pacing::FullJitter), [250, 500, 4000]);
    }

    #[test]
    fn no_number_is_too_large() {
        let endless = Patience { pause_first: Duration::MAX, pause_max: Duration::from_secs(1), ..Patience::PHONE };
        assert_eq!(endless.pause(u32::MAX, None, 7.0), Duration::from_secs(1));
        assert_eq!(endless.pause(1, Some(Duration::MAX), 1.0), Duration::MAX);
    }
}
