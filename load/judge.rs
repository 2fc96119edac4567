//! Intents against books. Question: was every customer charged once for what they meant, and can each exception be explained?
//!
//! The phones know what was meant and what they were told; the database and the gateway's own ledger know what was done. They
//! are joined by the intent's name, which no server reads. What was foreseen from the seed is laid beside what is found: in a
//! network that decides everything the difference is zero, purchase by purchase, or something is wrong with one of the two.
//! Where something raced, what was sent says how many orders there are at least and at most.

use std::collections::BTreeMap;

use checkout::phone::{Fate, Mode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    found::{AttemptMade, Offending, OrderMade, Story},
    oracle::{Foreseen, foresee, orders_of},
    swarm::{NEXT_TAP, Plan},
    told::{Belief, Counts, Kept},
};

/// What the books hold for one intent.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Entry {
    /// In the order in which they were made.
    pub(crate) orders: Vec<OrderMade>,
    pub(crate) captures: u64,
}

/// All of it, by intent; and what belongs to none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Joined {
    pub(crate) intents: BTreeMap<u64, Entry>,
    pub(crate) strangers: u64,
}

/// The judgement over one run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Judged {
    /// Purchases that customers meant.
    pub(crate) intents: u64,
    pub(crate) orders: u64,
    pub(crate) captures: u64,
    /// Orders beyond the first of an intent.
    pub(crate) duplicate_orders: u64,
    /// The same, from the seed alone, over the intents whose fate the network decided.
    pub(crate) predicted_duplicate_orders: u64,
    /// Intents with other orders than were foreseen.
    pub(crate) surprises: u64,
    /// Intents whose end depended on who was quicker. What is foreseen from the seed says nothing of them.
    pub(crate) raced: u64,
    pub(crate) duplicate_orders_of_races: u64,
    /// Of these, at least so many by what certainly arrived at the api, and at most so many by what was sent to it.
    pub(crate) duplicate_orders_of_races_least: u64,
    pub(crate) duplicate_orders_of_races_most: u64,
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
    /// Some of the intents that are not as foreseen.
    pub(crate) offending: Vec<Offending>,
    /// The purchase that went through most.
    pub(crate) worst: Option<Story>,
    /// Duplicate orders by the second after the start in which they were made.
    pub(crate) duplicates_by_second: Vec<u64>,
    /// How long after the one before it a duplicate was made: their number by bins of `gap_bin_ms`, from 0 on. The last bin
    /// holds all later ones too.
    pub(crate) duplicate_gaps: Vec<u64>,
    pub(crate) gap_bin_ms: f64,
    /// Every intent with more than one order, and how many. Two clients can be compared by it.
    #[serde(skip)]
    pub(crate) duplicates: BTreeMap<u64, u64>,
}

/// More would be read by nobody.
const OFFENDING_MAX: usize = 20;
/// Bins to the client's time-out, and in all.
const GAP_BINS_TO_TIMEOUT: f64 = 20.0;
const GAP_BINS: usize = 121;
/// A day. What lies later is no moment of a run.
const SECONDS_MAX: usize = 86_400;

impl Judged {
    pub(crate) fn of(plan: &Plan, taps: u64, counts: &Counts, joined: &Joined) -> Self {
        let timeout_ms = plan.patience().answer_max.as_secs_f64() * 1000.0;
        let mut judged = Self {
            intents: counts.beliefs.len() as u64,
            strangers: joined.strangers,
            duplicate_gaps: vec![0; GAP_BINS],
            gap_bin_ms: timeout_ms / GAP_BINS_TO_TIMEOUT,
            ..Self::default()
        };
        let none = Entry::default();
        for (intent, belief) in &counts.beliefs {
            judged.one(plan, counts, *intent, belief, joined.intents.get(intent).unwrap_or(&none));
        }
        // Of a tap that was dropped, or of none.
        let unheard = joined.intents.keys().filter(|intent| !counts.beliefs.contains_key(intent) || **intent >= taps);
        judged.strangers += unheard.count() as u64;
        judged.worst = worst(counts, joined);
        judged
    }

    /// Duplicate orders where the network decided, and nobody raced anybody.
    pub(crate) fn duplicate_orders_decided(&self) -> u64 {
        self.duplicate_orders.saturating_sub(self.duplicate_orders_of_races)
    }

    /// Of these, how many more there are than were foreseen from the seed.
    pub(crate) fn difference(&self) -> i128 {
        i128::from(self.duplicate_orders_decided()) - i128::from(self.predicted_duplicate_orders)
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
            self.clock(&found.orders);
        }
        let mut wrong = Vec::new();
        match foresee(plan, intent) {
            Foreseen::Orders(foreseen) => {
                self.predicted_duplicate_orders += foreseen.saturating_sub(1);
                if foreseen != orders {
                    wrong.push(format!("{orders} orders, {foreseen} foreseen"));
                }
            }
            Foreseen::Race => {
                let (least, most) = bounds(plan.mode, counts, intent);
                self.raced += 1;
                self.duplicate_orders_of_races += extra;
                self.duplicate_orders_of_races_least += least.saturating_sub(1);
                self.duplicate_orders_of_races_most += most.saturating_sub(1);
                if !(least..=most).contains(&orders) {
                    wrong.push(format!("{orders} orders, {least} to {most} by what was sent"));
                }
            }
        }
        self.surprises += u64::from(!wrong.is_empty());
        if found.captures > orders {
            self.orphan_charges += found.captures - orders;
            wrong.push(format!("{} captures for {orders} orders", found.captures));
        }
        match belief {
            Belief::Confirmed(location) => {
                let named = location.as_deref().and_then(|path| path.rsplit('/').next());
                if !named.is_some_and(|named| found.orders.iter().any(|order| order.id == named)) {
                    self.lost_orders += 1;
                    wrong.push(format!("confirmed as {location:?}, and not there"));
                }
            }
            Belief::Refused(_) | Belief::Unknown if found.captures > 0 => self.charged_untold += 1,
            Belief::Refused(_) | Belief::Unknown => self.missed_sales += 1,
        }
        if !wrong.is_empty() && self.offending.len() < OFFENDING_MAX {
            self.offending.push(Offending { why: wrong.join("; "), story: story(counts, intent, found) });
        }
    }

    /// When the orders beyond the first were made, and how long after the one before.
    fn clock(&mut self, orders: &[OrderMade]) {
        for pair in orders.windows(2) {
            let second = (pair[1].at_s.max(0.0) as usize).min(SECONDS_MAX);
            if self.duplicates_by_second.len() <= second {
                self.duplicates_by_second.resize(second + 1, 0);
            }
            self.duplicates_by_second[second] += 1;
            let gap_ms = (pair[1].at_s - pair[0].at_s).max(0.0) * 1000.0;
            let bin = (gap_ms / self.gap_bin_ms.max(f64::MIN_POSITIVE)) as usize;
            self.duplicate_gaps[bin.min(GAP_BINS - 1)] += 1;
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

/// How many orders an intent has at least, by what certainly arrived, and at most, by what may have.
fn bounds(mode: Mode, counts: &Counts, intent: u64) -> (u64, u64) {
    let attempts = counts.histories.get(&intent).map(Vec::as_slice).unwrap_or_default();
    let first = attempts.iter().filter(|kept| kept.tap < NEXT_TAP);
    let second = attempts.iter().filter(|kept| kept.tap >= NEXT_TAP);
    let taps = [first.collect::<Vec<_>>(), second.collect()];
    let arrived = |copies: fn(&Kept) -> (u64, u64)| {
        taps.each_ref().map(|tap| tap.iter().map(|kept| copies(kept)).fold((0, 0), |(a, b), (c, d)| (a + c, b + d)))
    };
    let requests = arrived(copies_arrived);
    let attempts = arrived(|kept| {
        let (least, most) = copies_arrived(kept);
        (least.min(1), most.min(1))
    });
    let least = orders_of(mode, attempts.map(|(least, _)| least), requests.map(|(least, _)| least));
    let most = orders_of(mode, attempts.map(|(_, most)| most), requests.map(|(_, most)| most));
    (least, most)
}

/// Copies of this attempt that were executed, at least and at most.
fn copies_arrived(kept: &Kept) -> (u64, u64) {
    match kept.fate {
        Some(Fate::RequestLost) => (0, 0),
        _ if kept.was_answered => {
            let copies = if kept.fate == Some(Fate::SentTwice) { 2 } else { 1 };
            (1, copies)
        }
        Some(Fate::AnswerLost) if kept.was_sent => (1, 1),
        Some(Fate::Answered | Fate::AnswerLost | Fate::HangUp { .. } | Fate::Reset) => (0, 1),
        // What was under way when the app was killed may have been sent twice.
        Some(Fate::SentTwice) | None => (0, 2),
    }
}

/// Of everybody, the one who had to try most often; of several the one who waited longest.
fn worst(counts: &Counts, joined: &Joined) -> Option<Story> {
    let through = |attempts: &Vec<Kept>| {
        let ended = attempts.iter().map(|kept| kept.began + kept.took).max();
        (attempts.len(), ended.zip(attempts.iter().map(|kept| kept.began).min()).map(|(end, start)| end - start))
    };
    let orders = |intent| joined.intents.get(intent).map_or(0, |entry: &Entry| entry.orders.len());
    let (intent, _) = counts.histories.iter().max_by_key(|(intent, attempts)| (orders(intent), through(attempts)))?;
    Some(story(counts, *intent, joined.intents.get(intent).unwrap_or(&Entry::default())))
}

fn story(counts: &Counts, intent: u64, found: &Entry) -> Story {
    let attempts = counts.histories.get(&intent).map(Vec::as_slice).unwrap_or_default();
    let made = |kept: &Kept| AttemptMade {
        touch: if kept.tap < NEXT_TAP { 1 } else { 2 },
        attempt: kept.attempt,
        key: kept.key.clone(),
        fate: kept.fate.map_or_else(|| "AppKilled".to_owned(), |fate| format!("{fate:?}")),
        heard: kept.heard.clone(),
        began_s: kept.began.as_secs_f64(),
        took_s: kept.took.as_secs_f64(),
    };
    Story {
        intent,
        belief: counts.beliefs.get(&intent).map(Belief::to_string).unwrap_or_default(),
        attempts: attempts.iter().map(made).collect(),
        orders: found.orders.clone(),
        captures: found.captures,
    }
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
            retry_budget: None,
            warmup: Duration::ZERO,
            open_max: 1,
        }
    }

    fn judged(beliefs: &[(u64, Belief)], books: &[(u64, &[&str], u64)]) -> Judged {
        let mut counts = Counts::new().unwrap();
        counts.beliefs = beliefs.iter().cloned().collect();
        let intents = books.iter().map(|(intent, orders, captures)| {
            let orders = orders.iter().map(|id| OrderMade { id: (*id).to_owned(), at_s: 0.0 }).collect();
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
