//! Does a text hold a card number? What never gets in cannot leak: from a log, a backup, a support ticket.
//!
//! A payment method is a token of the gateway's. Whoever sends a number all the same made a mistake, and is told so before
//! anything is kept. The other mistake is as bad: a key that is refused by chance fails one customer in a thousand and nobody
//! finds out why. So a number must look like a card in every respect, and what is plainly an identifier is none.

use std::ops::Range;

/// Digits a card number may have.
const DIGITS_MIN: usize = 13;
const DIGITS_MAX: usize = 19;
/// Lengths of the five words of a UUID.
const UUID: [usize; 5] = [8, 4, 4, 4, 12];
/// A word of hexadecimal digits of this length, with letters among them, is a digest or an identifier.
const HEX_WORD_MIN: usize = 24;

/// The first four digits of the numbers that are given out, and how many digits those have.
const ISSUED: [(u16, u16, &[usize]); 12] = [
    // Mir and Mastercard.
    (2200, 2204, &[16, 17, 18, 19]),
    (2221, 2720, &[16]),
    // Diners Club, JCB, and American Express twice.
    (3000, 3059, &[14, 16, 17, 18, 19]),
    (3600, 3699, &[14, 15, 16, 17, 18, 19]),
    (3800, 3999, &[14, 16, 17, 18, 19]),
    (3528, 3589, &[16, 17, 18, 19]),
    (3400, 3499, &[15]),
    (3700, 3799, &[15]),
    // Visa.
    (4000, 4999, &[13, 16, 19]),
    // Mastercard, and Maestro, Discover, UnionPay, RuPay.
    (5000, 5999, &[13, 14, 15, 16, 17, 18, 19]),
    (6000, 6999, &[13, 14, 15, 16, 17, 18, 19]),
    // RuPay and UnionPay.
    (8100, 8299, &[16, 17, 18, 19]),
];

/// A run of 13 to 19 digits, spaces and dashes between them allowed, that some network gives out and whose check digit is right.
/// A UUID never is one, whatever its digits.
pub fn holds_card_number(text: &str) -> bool {
    if text.bytes().filter(u8::is_ascii_digit).count() < DIGITS_MIN {
        return false;
    }
    let groups = groups(text);
    (0..groups.len()).any(|first| starts_card_number(&groups[first..]))
}

/// Digits that stand together.
#[derive(Debug)]
struct Group<'a> {
    digits: &'a str,
    /// Nothing but spaces and dashes is between it and the group before.
    goes_on: bool,
}

/// Whether some of these groups, from the first on, are one number.
fn starts_card_number(groups: &[Group<'_>]) -> bool {
    let mut number = String::with_capacity(DIGITS_MAX);
    let mut shape = Vec::new();
    for (place, group) in groups.iter().enumerate() {
        if (place > 0 && !group.goes_on) || number.len() + group.digits.len() > DIGITS_MAX {
            return false;
        }
        number.push_str(group.digits);
        shape.push(group.digits.len());
        if number.len() >= DIGITS_MIN && is_printed_so(&shape) && is_issued(&number) && has_its_check_digit(&number) {
            return true;
        }
    }
    false
}

/// In one run, or as it stands on a card: by fours, or 4, 6 and the rest. A customer, a day and a serial are no card.
fn is_printed_so(shape: &[usize]) -> bool {
    match shape {
        [_] | [4, 6, 4 | 5] => true,
        [fours @ .., last] => fours.iter().all(|digits| *digits == 4) && *last <= 4,
        [] => false,
    }
}

fn is_issued(number: &str) -> bool {
    let Ok(first) = number[..4].parse::<u16>() else { return false };
    ISSUED.iter().any(|(from, to, lengths)| (*from..=*to).contains(&first) && lengths.contains(&number.len()))
}

/// Luhn: every second digit from the right counts double, and the sum ends with a zero.
fn has_its_check_digit(number: &str) -> bool {
    let sum: u32 = number
        .bytes()
        .rev()
        .enumerate()
        .map(|(place, digit)| match (u32::from(digit - b'0'), place % 2) {
            (digit, 0) => digit,
            (digit, _) => digit * 2 / 10 + digit * 2 % 10,
        })
        .sum();
    sum.is_multiple_of(10)
}

/// The groups of digits, without those that belong to an identifier.
fn groups(text: &str) -> Vec<Group<'_>> {
    let words = words(text);
    let (mut groups, mut read_to, mut place) = (Vec::new(), 0, 0);
    while let Some(word) = words.get(place) {
        let identifier = identifier(text, &words[place..]);
        if identifier > 0 {
            place += identifier;
            continue;
        }
        let before = &text[read_to..word.start];
        let mut goes_on = !groups.is_empty() && before.chars().all(is_separator);
        let mut at = word.start;
        for piece in text[word.clone()].as_bytes().chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit()) {
            let end = at + piece.len();
            if piece[0].is_ascii_digit() {
                groups.push(Group { digits: &text[at..end], goes_on });
                read_to = end;
            }
            (goes_on, at) = (false, end);
        }
        place += 1;
    }
    groups
}

/// Where the runs of ASCII letters and digits are.
fn words(text: &str) -> Vec<Range<usize>> {
    let (mut words, mut at) = (Vec::new(), 0);
    for run in text.as_bytes().chunk_by(|a, b| a.is_ascii_alphanumeric() == b.is_ascii_alphanumeric()) {
        if run[0].is_ascii_alphanumeric() {
            words.push(at..at + run.len());
        }
        at += run.len();
    }
    words
}

/// How many of the first words are a UUID or another long identifier; none, usually.
fn identifier(text: &str, words: &[Range<usize>]) -> usize {
    let is_hex = |word: &str| word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let uuid = words.len() >= UUID.len()
        && words.iter().zip(UUID).all(|(word, length)| word.len() == length && is_hex(&text[word.clone()]))
        && words[..UUID.len()].windows(2).all(|pair| &text[pair[0].end..pair[1].start] == "-");
    if uuid {
        return UUID.len();
    }
    let word = &text[words[0].clone()];
    let digest = word.len() >= HEX_WORD_MIN && is_hex(word) && word.bytes().any(|byte| byte.is_ascii_alphabetic());
    usize::from(digest)
}

fn is_separator(c: char) -> bool {
    c.is_whitespace() || matches!(c, '-' | '\u{2010}'..='\u{2015}' | '\u{2212}')
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    /// The numbers that networks publish for tests.
    const CARDS: [&str; 12] = [
        "4242424242424242",
        "4222222222222",
        "5555555555554444",
        "2223003122003222",
        "378282246310005",
        "371449635398431",
        "6011111111111117",
        "30569309025904",
        "36227206271667",
        "3566002020360505",
        "6200000000000005",
        "6304000000000000",
    ];

    #[test]
    fn a_card_number_is_found_however_it_is_written_and_whatever_is_around_it() {
        for card in CARDS {
            let spaced: Vec<&str> = card.as_bytes().chunks(4).map(|four| std::str::from_utf8(four).unwrap()).collect();
            for text in [
                card.to_owned(),
                spaced.join(" "),
                spaced.join("-"),
                spaced.join("\u{a0}"),
                format!("card {card}, please"),
                format!("{} 12/28 123", spaced.join(" ")),
                format!("{card} 123"),
                format!("12 {card}"),
                format!("pm_{card}"),
                format!("pm{card}x"),
                format!("{}:{card}", Uuid::nil()),
            ] {
                assert!(holds_card_number(&text), "{text}");
            }
        }
    }

    #[test]
    fn a_number_that_no_card_has_is_none() {
        for text in [
            "",
            "4242424242424241",
            "424242424242",
            "42424242424242424242",
            // The check digit is right, and no network gives them out.
            "0000000000000000",
            "1764543990122",
            "9999999999999995",
            "2026113023590007",
            // Not one number.
            "4242.4242.4242.4242",
            "4242x4242x4242x4242",
            "+49 170 1234567",
            "DE89 3704 0044 0532 0130 00",
        ] {
            assert!(!holds_card_number(text), "{text}");
        }
    }

    /// About a tenth of all numbers have the right check digit: with 20,000 of each a rule that lets chance decide is seen.
    #[test]
    fn an_identifier_is_never_taken_for_a_card() {
        // All decimal, and the groups by themselves add up to a card.
        assert!(!holds_card_number("42424242-4242-4242-0000-000000000000"));
        for serial in 0..20_000_u128 {
            let random = Uuid::new_v4();
            let decimal: String =
                random.to_string().chars().map(|c| if c.is_ascii_alphabetic() { '4' } else { c }).collect();
            let millis = format!("order-{}", 1_700_000_000_000 + serial * 7919);
            let micros = format!("{}", 1_700_000_000_000_000 + serial * 7_919_003);
            let digest = format!("{}{}", random.simple(), &random.simple().to_string()[..8]);
            for text in [
                random.to_string(),
                random.to_string().to_uppercase(),
                decimal,
                Uuid::now_v7().to_string(),
                format!("pay:{random}:1"),
                format!("{{{random}}}"),
                random.simple().to_string(),
                random.simple().to_string()[..24].to_owned(),
                digest,
                millis,
                micros,
            ] {
                assert!(!holds_card_number(&text), "{text}");
            }
        }
    }

    /// Customer, day and serial: the commonest key of a batch job that has one of its own.
    #[test]
    fn a_key_made_of_customer_day_and_serial_is_no_card() {
        let keys = (4000..5000).map(|customer| format!("order-{customer}-20261130-{:04}", customer * 7 % 10_000));
        let refused: Vec<_> = keys.filter(|key| holds_card_number(key)).collect();
        assert!(refused.is_empty(), "{} of 1000, as {:?}", refused.len(), refused.first());
    }
}
