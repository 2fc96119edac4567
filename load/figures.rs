//! Numbers as people write them.

/// Thousands apart, nothing behind the point.
pub(crate) fn whole(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value <= -0.5 { format!("−{text}") } else { text }
}

/// As exact as it is worth: 0.8, 12.3, 340, 10,019.
pub(crate) fn ms(value: f64) -> String {
    match value {
        value if !value.is_finite() => "-".to_owned(),
        value if value < 100.0 => format!("{value:.1}"),
        value => whole(value),
    }
}

/// In millions, where there are any.
pub(crate) fn large(value: f64) -> String {
    if value >= 100_000.0 { format!("{:.2} million", value / 1e6) } else { whole(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_long_as_they_are_worth() {
        assert_eq!(["0", "999", "1,000", "1,234,567"], [0.0, 999.4, 1000.0, 1_234_567.0].map(whole));
        assert_eq!(whole(-1500.0), "−1,500");
        assert_eq!(["0.8", "10,019", "-"], [0.81, 10_018.8, f64::NAN].map(ms));
        assert_eq!(["12", "1.00 million"], [12.0, 997_920.0].map(large));
    }
}
