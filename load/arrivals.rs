//! When each tap is due. Question: what would the phones do if the server stood still? They would go on tapping.
//!
//! The schedule is fixed before the first order is sent and never waits for an answer, so a slow server is met by as many
//! taps as a fast one and its queue is counted, not hidden.

use std::time::Duration;

const NANOSECONDS_PER_S: u128 = 1_000_000_000;

/// Evenly spaced taps: the i-th is due `i / rate` after the start.
#[derive(Debug, Clone)]
pub(crate) struct Arrivals {
    rate_per_s: u32,
    next: u64,
    total: u64,
}

impl Arrivals {
    /// All taps of `lasting` at `rate_per_s`.
    pub(crate) fn even(rate_per_s: u32, lasting: Duration) -> Self {
        let total = u128::from(rate_per_s) * lasting.as_nanos() / NANOSECONDS_PER_S;
        Self { rate_per_s, next: 0, total: u64::try_from(total).unwrap_or(u64::MAX) }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.next >= self.total
    }

    /// The next tap that is due `elapsed` after the start, as its own distance from the start. Call until `None`.
    pub(crate) fn pop_due(&mut self, elapsed: Duration) -> Option<Duration> {
        let due = self.due(self.next);
        if self.is_over() || due > elapsed {
            return None;
        }
        self.next += 1;
        Some(due)
    }

    /// Multiplied before it is divided: adding up a rounded gap would drift by a tap in every few minutes.
    fn due(&self, tap: u64) -> Duration {
        let nanoseconds = u128::from(tap) * NANOSECONDS_PER_S / u128::from(self.rate_per_s.max(1));
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut arrivals: Arrivals) -> Vec<Duration> {
        std::iter::from_fn(|| arrivals.pop_due(Duration::MAX)).collect()
    }

    #[test]
    fn taps_are_even_and_their_number_is_exact() {
        let due = all(Arrivals::even(3500, Duration::from_secs(60)));
        assert_eq!(due.len(), 210_000);
        assert_eq!(due[0], Duration::ZERO);
        assert_eq!(due[3500], Duration::from_secs(1), "no drift after a second");
        assert_eq!(due[206_500], Duration::from_secs(59), "no drift after a minute");
        for pair in due.windows(2) {
            let gap = pair[1] - pair[0];
            assert!((285_714..=285_715).contains(&gap.as_nanos()), "{gap:?}");
        }
    }

    #[test]
    fn a_tap_is_handed_out_once_and_not_before_it_is_due() {
        let mut arrivals = Arrivals::even(1000, Duration::from_millis(5));
        assert_eq!(arrivals.pop_due(Duration::from_micros(999)), Some(Duration::ZERO));
        assert_eq!(arrivals.pop_due(Duration::from_micros(999)), None);
        assert_eq!(arrivals.pop_due(Duration::from_millis(2)), Some(Duration::from_millis(1)));
        assert_eq!(arrivals.pop_due(Duration::from_millis(2)), Some(Duration::from_millis(2)));
        assert_eq!(arrivals.pop_due(Duration::from_millis(2)), None);
    }

    #[test]
    fn a_late_ticker_finds_every_tap_it_missed_with_its_own_due_time() {
        let mut arrivals = Arrivals::even(1000, Duration::from_secs(1));
        let missed: Vec<_> = std::iter::from_fn(|| arrivals.pop_due(Duration::from_millis(40))).collect();
        assert_eq!(missed.len(), 41);
        assert_eq!(missed[40], Duration::from_millis(40));
        assert!(!arrivals.is_over());
        assert_eq!(std::iter::from_fn(|| arrivals.pop_due(Duration::MAX)).count(), 959);
    }

    #[test]
    fn a_schedule_of_no_time_is_over_at_once() {
        let mut arrivals = Arrivals::even(3500, Duration::ZERO);
        assert!(arrivals.is_over());
        assert_eq!(arrivals.pop_due(Duration::MAX), None);
    }
}
