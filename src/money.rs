//! Money: whole minor units and a currency, never a float, never negative.

use std::fmt;

use serde::Serialize;

/// The largest amount one charge may have, in minor units. The gateway's dialect stops at eight digits.
pub const AMOUNT_MINOR_MAX: i64 = 99_999_999;

/// An amount in minor units of one currency (4299 and `eur` are 42.99 euro), between 1 and [`AMOUNT_MINOR_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Money {
    amount_minor: i64,
    currency: Currency,
}

/// What this shop sells in. One more is one more variant, and the compiler names the places that must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Currency {
    Eur,
}

impl Money {
    /// `None` outside 1 to [`AMOUNT_MINOR_MAX`].
    pub fn new(amount_minor: i64, currency: Currency) -> Option<Self> {
        (1..=AMOUNT_MINOR_MAX).contains(&amount_minor).then_some(Self { amount_minor, currency })
    }

    pub fn amount_minor(self) -> i64 {
        self.amount_minor
    }

    pub fn currency(self) -> Currency {
        self.currency
    }
}

impl Currency {
    /// The ISO 4217 code in lower case, as the wire and the books spell it.
    pub fn code(self) -> &'static str {
        match self {
            Self::Eur => "eur",
        }
    }

    pub fn from_code(code: &str) -> Option<Self> {
        match code {
            "eur" => Some(Self::Eur),
            _ => None,
        }
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02} {}", self.amount_minor / 100, self.amount_minor % 100, self.currency.code())
    }
}
