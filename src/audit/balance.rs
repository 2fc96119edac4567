//! The gateway's account in our ledger against the gateway's own books, in one figure per currency.
//!
//! Orders and charges that are named by themselves (booked, captured or refunded for another amount) are in neither side: what
//! differs here is a difference that none of them shows. Money that went back and is not booked yet still counts as kept.

use std::collections::BTreeMap;

use super::{
    anomaly::Kind,
    report::{Example, Found},
};

#[derive(Debug, Default)]
pub(super) struct Balance {
    by_currency: BTreeMap<String, Sides>,
}

/// In minor units.
#[derive(Debug, Default)]
struct Sides {
    booked: i64,
    /// Captured, and not refunded as far as that is booked.
    kept: i64,
    entries_of_nobody: Vec<String>,
}

impl Balance {
    /// An order or a charge that is booked, and what the gateway took and kept for it.
    pub(super) fn add(&mut self, currency: &str, booked: i64, kept: i64) {
        let sides = self.sides(currency);
        sides.booked += booked;
        sides.kept += kept;
    }

    /// Entries of what is not there: no capture stands behind them.
    pub(super) fn add_of_nobody(&mut self, currency: &str, booked: i64, aggregates: Vec<String>) {
        let sides = self.sides(currency);
        sides.booked += booked;
        sides.entries_of_nobody.extend(aggregates);
    }

    fn sides(&mut self, currency: &str) -> &mut Sides {
        self.by_currency.entry(currency.to_ascii_lowercase()).or_default()
    }

    pub(super) fn judge(self, found: &mut Found) {
        for (currency, Sides { booked, kept, entries_of_nobody }) in self.by_currency {
            if booked == kept {
                continue;
            }
            found.add_one(Kind::UnbalancedLedger, || {
                let behind = if entries_of_nobody.is_empty() { "" } else { "; some entries are of what is not there" };
                Example {
                    key: None,
                    ids: entries_of_nobody,
                    detail: format!(
                        "the gateway's account stands at {booked} {currency} over what is booked, and the gateway took and kept {kept}{behind}"
                    ),
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::report::{Counted, Report};

    fn judged(balance: Balance) -> u64 {
        let mut found = Found::default();
        balance.judge(&mut found);
        Report::new(found, Counted::default()).found(Kind::UnbalancedLedger)
    }

    #[test]
    fn a_difference_is_named_once_per_currency_and_never_offset_by_another_currency() {
        let mut balance = Balance::default();
        balance.add("eur", 4299, 4299);
        balance.add("EUR", 890, 890);
        assert_eq!(judged(balance), 0);
        let mut balance = Balance::default();
        balance.add("eur", 4299, 4200);
        balance.add("usd", 4200, 4299);
        balance.add_of_nobody("gbp", 1, vec!["an order".to_owned()]);
        assert_eq!(judged(balance), 3);
    }
}
