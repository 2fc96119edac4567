//! Intents against books. Question: was every customer charged once for what they meant, and can each exception be explained?
//!
//! The phones know what was meant and what they were told; the database and the gateway's own ledger know what was done. They
//! are joined by the intent's name, which no server reads. What was foreseen from the seed is laid beside what is found: in a
//! network that decides everything the difference is zero, purchase by purchase, or something is wrong with one of the two.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    oracle::{Foreseen, foresee},
    swarm::Plan,
    told::{Belief, Counts},
};

/// What the books hold for one intent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) orders: Vec<String>,
    pub(crate) captures: u64,
}

/// All of it, by intent; and what belongs to none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Joined {
    pub(crate) intents: BTreeMap<u64, Entry>,
    pub(crate) strangers: u64,
}

/// The judgement over one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Judged {
    pub(crate) intents: u64,
    pub(crate) orders: u64,
    pub(crate) captures: u64,
    /// Orders beyond the first of an intent.
    pub(crate) duplicate_orders: u64,
    pub(crate) predicted_duplicate_orders: u64,
    /// Intents whose end was a race; they are no part of the prediction.
    pub(crate) raced: u64,
    pub(crate) duplicate_orders_of_races: u64,
    /// Captures beyond the first of an intent.
    pub(crate) duplicate_charges: u64,
    /// Confirmed to a customer, and not there.
    pub(crate) lost_orders: u64,
    /// Captures beyond the orders of their intent.
    pub(crate) orphan_charges: u64,
    /// Not confirmed to the customer, and charged all the same.
    pub(crate) charged_untold: u64,
    /// Meant, and neither ordered nor charged.
    pub(crate) missed_sales: u64,
    /// Orders and captures of no intent.
    pub(crate) strangers: u64,
    /// Intents whose orders are not as many as foreseen.
    pub(crate) surprises: u64,
    /// Some of them, with what was found.
    pub(crate) offending: Vec<Offending>,
    /// Every intent with more than one order, and how many. Two clients can be compared by it.
    #[serde(skip)]
    pub(crate) duplicates: BTreeMap<u64, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Offending {
    pub(crate) intent: u64,
    pub(crate) why: String,
    /// Each attempt: the network's fate for it, and what the phone heard.
    pub(crate) timeline: Vec<String>,
}

/// More would be read by nobody.
const OFFENDING_MAX: usize = 20;

impl Judged {
    pub(crate) fn of(plan: &Plan, taps: u64, counts: &Counts, joined: &Joined) -> Self {
        let mut judged = Self {
            intents: counts.beliefs.len() as u64,
            orders: 0,
            captures: 0,
            duplicate_orders: 0,
            predicted_duplicate_orders: 0,
            raced: 0,
            duplicate_orders_of_races: 0,
            duplicate_charges: 0,
            lost_orders: 0,
            orphan_charges: 0,
            charged_untold: 0,
            missed_sales: 0,
            strangers: joined.strangers,
            surprises: 0,
            offending: Vec::new(),
            duplicates: BTreeMap::new(),
        };
        let none = Entry::default();
        for (intent, belief) in &counts.beliefs {
            judged.one(plan, counts, *intent, belief, joined.intents.get(intent).unwrap_or(&none));
        }
        // Of a tap that was dropped, or of none.
        let unheard = joined.intents.keys().filter(|intent| !counts.beliefs.contains_key(intent) || **intent >= taps);
        judged.strangers += unheard.count() as u64;
        judged
    }

    fn one(&mut self, plan: &Plan, counts: &Counts, intent: u64, belief: &Belief, found: &Entry) {
        let orders = found.orders.len() as u64;
        let extra = orders.saturating_sub(1);
        self.orders += orders;
        self.captures += found.captures;
        self.duplicate_orders += extra;
        self.duplicate_charges += found.captures.saturating_sub(1);
        if extra > 0 {
            self.duplicates.insert(intent, orders);
        }
        let mut wrong = Vec::new();
        match foresee(plan, intent) {
            Foreseen::Orders(foreseen) => {
                self.predicted_duplicate_orders += foreseen.saturating_sub(1);
                if foreseen != orders {
                    self.surprises += 1;
                    wrong.push(format!("{orders} orders, {foreseen} foreseen"));
                }
            }
            Foreseen::Race => {
                self.raced += 1;
                self.duplicate_orders_of_races += extra;
            }
        }
        if found.captures > orders {
            self.orphan_charges += found.captures - orders;
            wrong.push(format!("{} captures for {orders} orders", found.captures));
        }
        match belief {
            Belief::Confirmed(location) => {
                let named = location.as_deref().and_then(|path| path.rsplit('/').next());
                if !named.is_some_and(|named| found.orders.iter().any(|order| order == named)) {
                    self.lost_orders += 1;
                    wrong.push(format!("confirmed as {location:?}, and not there"));
                }
            }
            Belief::Refused(_) | Belief::Unknown if found.captures > 0 => self.charged_untold += 1,
            Belief::Refused(_) | Belief::Unknown => self.missed_sales += 1,
        }
        if !wrong.is_empty() && self.offending.len() < OFFENDING_MAX {
            self.offending.push(Offending { intent, why: wrong.join("; "), timeline: timeline(counts, intent) });
        }
    }

    /// In a run whose client is right, nothing of this may be there.
    pub(crate) fn broken_promises(&self) -> Vec<String> {
        let counted = [
            (self.duplicate_orders, "duplicate orders"),
            (self.duplicate_charges, "duplicate charges"),
            (self.lost_orders, "lost orders"),
            (self.orphan_charges, "orphan charges"),
            (self.strangers, "orders or captures of no intent"),
            (self.surprises, "intents with other orders than foreseen"),
        ];
        counted.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect()
    }
}

/// Each attempt of a purchase, as far as it was more than one that was answered at once.
fn timeline(counts: &Counts, intent: u64) -> Vec<String> {
    let attempts = counts.histories.get(&intent).map(Vec::as_slice).unwrap_or_default();
    let line = |kept: &crate::told::Kept| {
        format!(
            "{:.3} s, attempt {}: {:?}, heard \"{}\" after {:.3} s",
            kept.began.as_secs_f64(),
            kept.attempt,
            kept.fate,
            kept.heard,
            kept.took.as_secs_f64()
        )
    };
    attempts.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use checkout::phone::{Mode, Network, Patience, Profile};

    use super::*;

    fn plan(mode: Mode) -> Plan {
        Plan {
            mode,
            network: Network { seed: 42, profile: Profile::NONE },
            patience: Patience::PHONE,
            time_scale: 1,
            manual_retap: 0.0,
            warmup: Duration::ZERO,
            open_max: 1,
        }
    }

    fn judged(beliefs: &[(u64, Belief)], books: &[(u64, &[&str], u64)]) -> Judged {
        let mut counts = Counts::new().unwrap();
        counts.beliefs = beliefs.iter().cloned().collect();
        let intents = books.iter().map(|(intent, orders, captures)| {
            let orders = orders.iter().map(|id| (*id).to_owned()).collect();
            (*intent, Entry { orders, captures: *captures })
        });
        let joined = Joined { intents: intents.collect(), strangers: 0 };
        Judged::of(&plan(Mode::PerIntent), 10, &counts, &joined)
    }

    fn paid(order: &str) -> Belief {
        Belief::Confirmed(Some(format!("/v1/orders/{order}")))
    }

    #[test]
    fn a_purchase_that_is_as_it_was_meant_is_nothing_to_talk_about() {
        let fine = judged(&[(0, paid("a")), (1, paid("b"))], &[(0, &["a"], 1), (1, &["b"], 1)]);
        assert_eq!((fine.intents, fine.orders, fine.captures), (2, 2, 2));
        assert_eq!((fine.broken_promises(), fine.offending), (vec![], vec![]));
    }

    #[test]
    fn every_kind_of_wrong_is_told_apart() {
        let wrong = |belief, orders, captures| judged(&[(0, belief)], &[(0, orders, captures)]).broken_promises();
        assert_eq!(
            wrong(paid("a"), &["a", "b"], 2),
            ["1 duplicate orders", "1 duplicate charges", "1 intents with other orders than foreseen"]
        );
        assert_eq!(wrong(paid("a"), &["b"], 1), ["1 lost orders"]);
        assert_eq!(wrong(paid("a"), &["a"], 2), ["1 duplicate charges", "1 orphan charges"]);
        assert_eq!(
            judged(&[(0, paid("a"))], &[(0, &["a"], 1), (7, &["c"], 1)]).broken_promises(),
            ["1 orders or captures of no intent"]
        );
        let untold = judged(&[(0, Belief::Unknown)], &[(0, &["a"], 1)]);
        assert_eq!((untold.charged_untold, untold.missed_sales), (1, 0));
        let missed = judged(&[(0, Belief::Unknown)], &[]);
        assert_eq!((missed.charged_untold, missed.missed_sales, missed.surprises), (0, 1, 1));
    }
}
