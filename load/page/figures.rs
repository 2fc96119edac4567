//! Numbers as people write them.

/// Thousands apart, nothing behind the point.
pub(super) fn whole(value: f64) -> String {
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
pub(super) fn ms(value: f64) -> String {
    match value {
        value if !value.is_finite() => "-".to_owned(),
        value if value < 100.0 => format!("{value:.1}"),
        value => whole(value),
    }
}

/// In millions, where there are any.
pub(super) fn large(value: f64) -> String {
    if value >= 100_000.0 { format!("{:.2} million", value / 1e6) } else { whole(value) }
}

/// What may stand between tags and in attributes.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}
