//! One line of the file, read strictly. Question: may money move on these words?
//!
//! One spelling for each meaning: ` 42`, `042` and `42` would be one customer and three texts, `4,299` two amounts. What a person
//! would have to guess about is refused with the reason.

use std::fmt;

use crate::{
    ids::CustomerId,
    money::{AMOUNT_MINOR_MAX, Currency, Money},
};

/// The header, in this order.
pub(super) const COLUMNS: [&str; 6] =
    ["customer", "invoice_line", "billing_period", "amount", "currency", "payment_method"];

const INVOICE_LINE_LENGTH_MAX: usize = 100;
/// What the api takes.
const PAYMENT_METHOD_LENGTH_MAX: usize = 100;

/// A charge to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// In the file, counted from 1, where the header is.
    pub(super) number: u64,
    pub(super) what: What,
    pub(super) amount: Money,
    pub(super) payment_method: String,
}

/// What is paid for: the identity of a charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct What {
    pub(super) customer: CustomerId,
    pub(super) invoice_line: String,
    pub(super) billing_period: String,
}

/// Why a row is no line. What it is about may be clear all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) reason: String,
    pub(super) what: Option<What>,
}

impl What {
    pub(super) fn key(&self) -> String {
        super::key::of(self.customer, &self.invoice_line, &self.billing_period)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "customer {}, {} of {}", self.customer, self.invoice_line, self.billing_period)
    }
}

impl Line {
    pub(super) fn read(number: u64, row: &csv::ByteRecord) -> Result<Self, Fault> {
        let unclear = |reason: String| Fault { reason, what: None };
        let fields: Vec<&str> = row
            .iter()
            .map(std::str::from_utf8)
            .collect::<Result<_, _>>()
            .map_err(|_| unclear("is not UTF-8".to_owned()))?;
        let &[customer, invoice_line, billing_period, amount, currency, payment_method] = fields.as_slice() else {
            return Err(unclear(format!("has {} fields instead of {}", fields.len(), COLUMNS.len())));
        };
        let what = What {
            customer: read_customer(customer).map_err(unclear)?,
            invoice_line: read_invoice_line(invoice_line).map_err(unclear)?,
            billing_period: read_period(billing_period).map_err(unclear)?,
        };
        let content = read_amount(amount, currency).and_then(|amount| Ok((amount, read_method(payment_method)?)));
        match content {
            Ok((amount, payment_method)) => Ok(Self { number, what, amount, payment_method }),
            Err(reason) => Err(Fault { reason, what: Some(what) }),
        }
    }

    pub(super) fn key(&self) -> String {
        self.what.key()
    }

    /// The same charge in every word, wherever it stands.
    pub(super) fn is_repeated_by(&self, other: &Self) -> bool {
        Self { number: self.number, ..other.clone() } == *self
    }

    /// As it stands in the file.
    pub(super) fn fields(&self) -> [String; 6] {
        let What { customer, invoice_line, billing_period } = &self.what;
        let (amount, currency) = (self.amount.amount_minor().to_string(), self.amount.currency().code().to_owned());
        [
            customer.to_string(),
            invoice_line.clone(),
            billing_period.clone(),
            amount,
            currency,
            self.payment_method.clone(),
        ]
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what.fmt(f)
    }
}

fn read_customer(text: &str) -> Result<CustomerId, String> {
    whole_number(text, i64::MAX)
        .map(CustomerId)
        .ok_or_else(|| wrong("customer", text, "a number from 1, without leading zeros"))
}

fn read_invoice_line(text: &str) -> Result<String, String> {
    let fits = (1..=INVOICE_LINE_LENGTH_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    let must_be = "1 to 100 letters, digits and signs of ASCII without spaces";
    if fits { Ok(text.to_owned()) } else { Err(wrong("invoice_line", text, must_be)) }
}

fn read_period(text: &str) -> Result<String, String> {
    let month = match text.as_bytes() {
        [a, b, c, d, b'-', month @ ..] if [a, b, c, d].into_iter().all(u8::is_ascii_digit) => month,
        _ => &[],
    };
    let is_month = matches!(month, [b'0', b'1'..=b'9'] | [b'1', b'0'..=b'2']);
    if is_month { Ok(text.to_owned()) } else { Err(wrong("billing_period", text, "a month as 2026-11")) }
}

fn read_amount(amount: &str, currency: &str) -> Result<Money, String> {
    let minor = whole_number(amount, AMOUNT_MINOR_MAX).ok_or_else(|| {
        wrong("amount", amount, &format!("whole minor units from 1 to {AMOUNT_MINOR_MAX} (4299 is 42.99)"))
    })?;
    let currency = Currency::from_code(currency).ok_or_else(|| wrong("currency", currency, "eur"))?;
    Money::new(minor, currency).ok_or_else(|| wrong("amount", amount, "within the limits of one charge"))
}

fn read_method(text: &str) -> Result<String, String> {
    let fits = (1..=PAYMENT_METHOD_LENGTH_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let must_be = "1 to 100 letters, digits and underscores, as pm_card_visa";
    if fits { Ok(text.to_owned()) } else { Err(wrong("payment_method", text, must_be)) }
}

/// Digits only, the first not 0, and at most `max`.
fn whole_number(text: &str, max: i64) -> Option<i64> {
    let digits = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits && (1..=max).contains(number))
}

/// A long field is not repeated whole, nor are its control characters.
fn wrong(column: &str, text: &str, must_be: &str) -> String {
    let shown: String = text.chars().take(40).collect();
    let cut = if shown.len() < text.len() { "…" } else { "" };
    format!("{column} {shown:?}{cut} must be {must_be}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [&str; 6] = ["42", "INV-7/1", "2026-11", "4299", "eur", "pm_card_visa"];

    fn read(fields: &[&str]) -> Result<Line, Fault> {
        Line::read(7, &csv::ByteRecord::from(fields.to_vec()))
    }

    fn with(column: usize, text: &str) -> Result<Line, Fault> {
        let mut fields = GOOD;
        fields[column] = text;
        read(&fields)
    }

    #[test]
    fn a_good_row_is_a_line_and_can_be_written_again() {
        let line = read(&GOOD).unwrap();
        assert_eq!(line.amount.to_string(), "42.99 eur");
        assert_eq!(line.to_string(), "customer 42, INV-7/1 of 2026-11");
        assert_eq!(line.fields(), GOOD.map(str::to_owned));
    }

    #[test]
    fn each_field_has_one_spelling_and_a_fault_names_its_column() {
        let long = "x".repeat(101);
        let faults: [&[&str]; 6] = [
            &["", "0", "042", "+42", " 42", "-1", "4.2", "9223372036854775808", "Ada"],
            &["", "INV 7", " INV-7", "INV\n7", "ÍNV", &long],
            &["", "2026-13", "2026-00", "2026-1", "26-11", "2026-11-01", "2026/11", "2026-Q4", "+026-11"],
            &["", "0", "-4299", "42.99", "42,99", "4299.0", "4e3", "04299", "+4299", " 4299", "100000000", "٤٢"],
            &["", "EUR", "usd", "eur "],
            &["", "pm card", "pm-card", "4242 4242", &long],
        ];
        for (column, texts) in faults.into_iter().enumerate() {
            for text in texts {
                let fault = with(column, text).expect_err(text);
                assert!(fault.reason.starts_with(COLUMNS[column]), "{}", fault.reason);
                assert!(fault.reason.len() < 200 && !fault.reason.contains('\n'), "{}", fault.reason);
                assert_eq!(fault.what.is_some(), column >= 3, "{text}");
            }
        }
        for period in ["2026-01", "2026-09", "2026-10", "2026-12"] {
            assert!(with(2, period).is_ok(), "{period}");
        }
    }

    #[test]
    fn a_row_of_another_length_and_one_of_other_bytes_are_refused() {
        assert_eq!(read(&GOOD[..5]).unwrap_err().reason, "has 5 fields instead of 6");
        let mut row = csv::ByteRecord::from(GOOD.to_vec());
        row.push_field(b"\xff");
        assert_eq!(Line::read(7, &row).unwrap_err().reason, "is not UTF-8");
    }
}
