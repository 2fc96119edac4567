//! When each tap is due. Question: what would the phones do if the server stood still? They would go on tapping.
//!
//! The schedule is fixed before the first order is sent and never waits for an answer, so a slow server is met by as many
//! taps as a fast one and its queue is counted, not hidden.

use std::{fmt, str::FromStr, time::Duration};

use checkout::phone::Network;

const NANOSECONDS_PER_S: u128 = 1_000_000_000;

/// How taps follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Law {
    /// The i-th is due `i / rate` after the start.
    Even,
    /// By chance, independent of each other, as people's are: gaps are exponential with a mean of `1 / rate`.
    Poisson,
}

impl FromStr for Law {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "even" => Ok(Self::Even),
            "poisson" => Ok(Self::Poisson),
            _ => Err("not one of even, poisson".to_owned()),
        }
    }
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Even => "even",
            Self::Poisson => "poisson",
        })
    }
}

/// The taps of one run, in their order.
#[derive(Debug, Clone)]
pub(crate) struct Arrivals {
    schedule: Schedule,
    next: u64,
    /// When the next one is due. `None`: there is none.
    due: Option<Duration>,
}

#[derive(Debug, Clone)]
enum Schedule {
    Even { rate_per_s: u32, total: u64 },
    Poisson { rate_per_s: u32, lasting: Duration, network: Network },
}

impl Arrivals {
    /// All taps of `lasting` at `rate_per_s`, at even distances.
    pub(crate) fn even(rate_per_s: u32, lasting: Duration) -> Self {
        let total = u128::from(rate_per_s) * lasting.as_nanos() / NANOSECONDS_PER_S;
        Self::of(Schedule::Even { rate_per_s, total: u64::try_from(total).unwrap_or(u64::MAX) })
    }

    /// About as many, by the seed's own dice: the same seed taps at the same moments.
    pub(crate) fn poisson(rate_per_s: u32, lasting: Duration, network: Network) -> Self {
        Self::of(Schedule::Poisson { rate_per_s, lasting, network })
    }

    fn of(schedule: Schedule) -> Self {
        let due = schedule.due(0, Duration::ZERO);
        Self { schedule, next: 0, due }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.due.is_none()
    }

    /// The next tap that is due `elapsed` after the start, as its own distance from the start. Call until `None`.
    pub(crate) fn pop_due(&mut self, elapsed: Duration) -> Option<Duration> {
        let due = self.due.filter(|due| *due <= elapsed)?;
        self.next += 1;
        self.due = self.schedule.due(self.next, due);
        Some(due)
    }

    /// How many there will be.
    pub(crate) fn count(&self) -> u64 {
        if let Schedule::Even { total, .. } = self.schedule {
            return total;
        }
        let mut rest = self.clone();
        while rest.pop_due(Duration::MAX).is_some() {}
        rest.next
    }
}

impl Schedule {
    fn due(&self, tap: u64, before: Duration) -> Option<Duration> {
        match *self {
            // Multiplied before it is divided: adding up a rounded gap would drift by a tap in every few minutes.
            Self::Even { rate_per_s, total } => (tap < total).then(|| {
                let nanoseconds = u128::from(tap) * NANOSECONDS_PER_S / u128::from(rate_per_s.max(1));
                Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
            }),
            Self::Poisson { rate_per_s, lasting, network } => {
                // The luck is never 1, so the logarithm is finite.
                let gap = -(1.0 - network.gap(tap)).ln() / f64::from(rate_per_s.max(1));
                Some(before + Duration::from_secs_f64(gap)).filter(|due| *due < lasting)
            }
        }
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

    #[test]
    fn taps_by_chance_are_as_many_as_asked_for_and_the_same_each_time() {
        let network = Network { seed: 42, profile: checkout::phone::Profile::NONE };
        let arrivals = Arrivals::poisson(3000, Duration::from_secs(60), network);
        let due = all(arrivals.clone());
        assert_eq!((due.len() as u64, due.clone()), (arrivals.count(), all(arrivals)));
        // 180,000, give or take four standard deviations.
        assert!((178_300..=181_700).contains(&due.len()), "{}", due.len());
        assert!(due.is_sorted() && due.last() < Some(&Duration::from_secs(60)));
        // Of exponential gaps, one in e is longer than the mean.
        let long = due.windows(2).filter(|pair| pair[1] - pair[0] > Duration::from_secs(1) / 3000).count() as f64;
        assert!((long / due.len() as f64 - (-1.0_f64).exp()).abs() < 0.01, "{long}");
        let another = Network { seed: 43, ..network };
        assert_ne!(all(Arrivals::poisson(3000, Duration::from_secs(60), another)), due);
    }
}
