//! A run, drawn out to a week. Question: how many duplicates is that?
//!
//! No shop sells at its peak for 168 hours. The week of the story, "roughly 1 million" at 12 a second, is one with an hour of peak
//! a day and a tenth of it in the others, 13.75 % of the peak on average; at the peak all week it would be 7.26 million.

use crate::found::{Compared, ModeFound};

const SECONDS: f64 = 7.0 * 24.0 * 3600.0;
/// A day that swings between the peak and a tenth of it, as a cosine does.
const DIURNAL_MEAN: f64 = 0.55;
/// An hour of the day at the peak, and the other 23 at a tenth of it.
const FLASH_MEAN: f64 = (1.0 + 23.0 * 0.1) / 24.0;

/// Duplicate orders per second of the run.
pub(crate) fn duplicates_per_s(compared: &Compared, found: &ModeFound) -> f64 {
    found.judged.duplicate_orders as f64 / ((compared.warmup_s + compared.seconds).max(1) as f64)
}

/// What so many a second at peak come to in a week, by the day's curve.
pub(crate) struct Week {
    pub(crate) constant: f64,
    pub(crate) diurnal: f64,
    pub(crate) flash: f64,
}

impl Week {
    pub(crate) fn of(per_s: f64) -> Self {
        let constant = per_s * SECONDS;
        Self { constant, diurnal: constant * DIURNAL_MEAN, flash: constant * FLASH_MEAN }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_week_of_the_story_is_an_hour_of_peak_a_day() {
        let week = Week::of(12.0);
        assert_eq!([week.constant, week.diurnal, week.flash].map(f64::round), [7_257_600.0, 3_991_680.0, 997_920.0]);
    }
}
