//! The circuit breaker of the gateway: while nothing comes back from it, nobody begins a purchase. Question: why claim what
//! cannot be charged, and let a customer wait for seconds to hear so?
//!
//! It opens after a number of charges in a row that brought no answer: no connection, a time-out, a broken connection, a 5xx
//! or the gateway's own limiter. A decline is an answer. Open, it admits nobody for a pause; then one at a time, as a probe:
//! an answer closes it, silence opens it again for twice as long. It only judges new purchases: who claimed already goes on
//! sending, and an answer to that closes it too.
//!
//! What began before the last change says nothing about the state after it: a charge that was given up long ago does not
//! open what has just closed.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// The longest pause between two probes: customers wait as long when the gateway is back.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// When to ask again while a probe is under way. Most are answered by then.
const PROBE_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct Breaker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// 0: never opens.
    failures_max: u32,
    pause: Duration,
    state: Mutex<State>,
    opened: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// The last time it opened or closed.
    since: Instant,
    /// In a row.
    failures: u32,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    pause: Duration,
    until: Instant,
    /// Somebody finds out whether the gateway is back.
    probing: bool,
}

/// Where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    Closed,
    Open,
    /// The next one probes, or somebody does.
    HalfOpen,
}

/// The right to begin a purchase. A probe that sent nothing makes room for the next one when it is dropped.
#[derive(Debug)]
pub struct Pass {
    probe: Option<(Breaker, Instant)>,
}

impl Breaker {
    /// Opens after so many failures in a row, first for `pause`.
    pub fn new(failures_max: u32, pause: Duration) -> Self {
        let state = State { since: Instant::now(), failures: 0, open: None };
        Self(Arc::new(Inner { failures_max, pause, state: Mutex::new(state), opened: AtomicU64::new(0) }))
    }

    /// One that never opens: for whoever must go on trying.
    pub fn never() -> Self {
        Self::new(0, Duration::ZERO)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// May a purchase begin? If not, when to ask again.
    pub fn pass(&self) -> Result<Pass, Duration> {
        let mut state = self.state();
        let since = state.since;
        let Some(open) = &mut state.open else { return Ok(Pass { probe: None }) };
        let closed_for = open.until.saturating_duration_since(Instant::now());
        if !closed_for.is_zero() {
            return Err(closed_for);
        }
        if std::mem::replace(&mut open.probing, true) {
            return Err(PROBE_WAIT);
        }
        Ok(Pass { probe: Some((self.clone(), since)) })
    }

    /// A charge that was sent at `began` was answered, or not.
    pub fn heard(&self, began: Instant, answered: bool) {
        let mut state = self.state();
        if self.0.failures_max == 0 || began < state.since {
            return;
        }
        if answered {
            state.failures = 0;
            if state.open.take().is_some() {
                state.since = Instant::now();
                tracing::info!("the gateway answers again: purchases are taken");
            }
            return;
        }
        state.failures = state.failures.saturating_add(1);
        let pause = match &state.open {
            None if state.failures < self.0.failures_max => return,
            None => self.0.pause,
            // Those that had claimed before.
            Some(open) if Instant::now() < open.until => return,
            Some(open) => (open.pause * 2).min(PAUSE_MAX),
        };
        self.open(&mut state, pause);
    }

    fn open(&self, state: &mut State, pause: Duration) {
        let now = Instant::now();
        state.since = now;
        state.open = Some(Open { pause, until: now + pause, probing: false });
        self.0.opened.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(failures = state.failures, ?pause, "the gateway does not answer: no purchase is begun");
    }

    pub fn position(&self) -> Position {
        match &self.state().open {
            None => Position::Closed,
            Some(open) if Instant::now() < open.until => Position::Open,
            Some(_) => Position::HalfOpen,
        }
    }

    /// How often it has opened, probes that failed included.
    pub fn opened(&self) -> u64 {
        self.0.opened.load(Ordering::Relaxed)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let Some((breaker, since)) = self.probe.take() else { return };
        let mut state = breaker.state();
        if state.since == since
            && let Some(open) = &mut state.open
        {
            open.probing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(1);

    fn fail(breaker: &Breaker) {
        breaker.heard(Instant::now(), false);
    }

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_failures_in_a_row_and_says_for_how_long() {
        let breaker = Breaker::new(3, PAUSE);
        for _ in 0..5 {
            fail(&breaker);
            fail(&breaker);
            breaker.heard(Instant::now(), true);
        }
        assert_eq!(breaker.position(), Position::Closed, "an answer starts the count anew");
        (0..3).for_each(|_| fail(&breaker));
        tokio::time::advance(PAUSE / 4).await;
        assert_eq!((breaker.pass().unwrap_err(), breaker.position()), (PAUSE * 3 / 4, Position::Open));
        assert_eq!(breaker.opened(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn one_at_a_time_probes_and_an_answer_closes_it() {
        let breaker = Breaker::new(1, PAUSE);
        fail(&breaker);
        tokio::time::advance(PAUSE).await;
        let probe = breaker.pass().unwrap();
        assert_eq!((breaker.pass().unwrap_err(), breaker.position()), (PROBE_WAIT, Position::HalfOpen));
        drop(probe);
        let probe = breaker.pass().expect("the first was a replay, and sent nothing");
        breaker.heard(Instant::now(), true);
        assert_eq!(breaker.position(), Position::Closed);
        drop(probe);
        assert!(breaker.pass().is_ok() && breaker.pass().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_fails_opens_it_for_twice_as_long_but_not_for_ever() {
        let breaker = Breaker::new(1, PAUSE);
        fail(&breaker);
        for seconds in [2, 4, 8, 10, 10] {
            tokio::time::advance(PAUSE_MAX).await;
            let probe = breaker.pass().unwrap();
            fail(&breaker);
            drop(probe);
            assert_eq!(breaker.pass().unwrap_err(), Duration::from_secs(seconds));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_began_before_the_last_change_says_nothing() {
        let breaker = Breaker::new(2, PAUSE);
        let long_ago = Instant::now();
        tokio::time::advance(PAUSE).await;
        (0..2).for_each(|_| fail(&breaker));
        breaker.heard(long_ago, true);
        assert_eq!(breaker.position(), Position::Open);
        tokio::time::advance(PAUSE / 2).await;
        let resumed = Instant::now();
        fail(&breaker);
        assert_eq!(breaker.pass().unwrap_err(), PAUSE / 2, "who had claimed before does not prolong it");
        tokio::time::advance(PAUSE / 4).await;
        breaker.heard(resumed, true);
        assert_eq!(breaker.position(), Position::Closed, "but may end it");
        (0..9).for_each(|_| breaker.heard(resumed, false));
        assert_eq!(breaker.position(), Position::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_never_opens_never_opens() {
        let breaker = Breaker::never();
        (0..1000).for_each(|_| fail(&breaker));
        assert!(breaker.pass().is_ok());
    }
}
