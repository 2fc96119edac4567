//! Captures against charges: does the gateway's ledger tell the same story as our books? Pure: rows in, findings out.

use std::collections::{HashMap, HashSet};

use super::{
    anomaly::Kind,
    balance::Balance,
    ledger::{Capture, Ledger},
    report::{Example, Found, Leftover},
    store::{charges::SucceededCharge, keys::KnownKey},
};

/// Most ids that one finding spells out.
const IDS_MAX: usize = 10;

/// The charge of ours that a capture belongs to.
#[derive(Debug, Clone)]
struct Explained {
    customer: i64,
    charge: String,
    digest: Vec<u8>,
}

/// Fed with every succeeded charge, then finished. Grows with the ledger, not with our books.
#[derive(Debug)]
pub(super) struct Matching<'a> {
    ledger: &'a Ledger,
    position: HashMap<&'a str, usize>,
    explained: Vec<Option<Explained>>,
    /// Payment intents that reconciliation is refunding.
    going_back: HashSet<String>,
    /// What our ledger says the gateway owes us, beside what it took and kept.
    pub(super) balance: Balance,
}

impl<'a> Matching<'a> {
    pub(super) fn new(ledger: &'a Ledger, going_back: HashSet<String>) -> Self {
        let position = ledger.captures.iter().enumerate().map(|(at, c)| (c.payment_intent.as_str(), at)).collect();
        let explained = vec![None; ledger.captures.len()];
        Self { ledger, position, explained, going_back, balance: Balance::default() }
    }

    /// Looks a charge up in the ledger.
    pub(super) fn charge(&mut self, charge: &SucceededCharge, found: &mut Found) {
        let example =
            |ids: Vec<String>, detail: String| Example { key: Some(hex::encode(&charge.key_digest)), ids, detail };
        let Some(&at) = self.position.get(charge.gateway_id.as_str()) else {
            if charge.created_at < self.ledger.asked_at {
                found.add_one(Kind::UncapturedCharge, || {
                    let detail =
                        format!("charge {} names {}, which is not in the ledger", charge.id, charge.gateway_id);
                    example(vec![charge.id.to_string(), charge.gateway_id.clone()], detail)
                });
            }
            return;
        };
        let capture = &self.ledger.captures[at];
        let agrees = capture.amount == charge.amount_minor && capture.currency.eq_ignore_ascii_case(&charge.currency);
        if !agrees {
            found.add_one(Kind::AmountMismatch, || {
                let detail = format!(
                    "charge {} is booked as {} {}, the gateway captured {} {}",
                    charge.id, charge.amount_minor, charge.currency, capture.amount, capture.currency
                );
                example(vec![charge.id.to_string(), charge.gateway_id.clone()], detail)
            });
        }
        // What went back is known by capture: of two charges that name one, the first speaks for both.
        if self.explained[at].is_none() {
            let went_back = charge.went_back.contains(&capture.amount_refunded);
            if !went_back {
                found.add_one(Kind::RefundMismatch, || {
                    example(vec![charge.id.to_string(), charge.gateway_id.clone()], refunded_otherwise(charge, capture))
                });
            }
            if let (true, true, Some(booked)) = (agrees, went_back, &charge.booked) {
                self.balance.add(&charge.currency, booked.net_minor, capture.amount - booked.back_minor);
            }
        }
        match &self.explained[at] {
            Some(first) if first.digest != charge.key_digest => found.add_one(Kind::SharedCapture, || {
                let detail = format!("charges {} and {} both name {}", first.charge, charge.id, charge.gateway_id);
                example(vec![first.charge.clone(), charge.id.to_string(), charge.gateway_id.clone()], detail)
            }),
            // A second charge row of the same key is a duplicate, which the database tells by itself.
            Some(_) => {}
            None => {
                self.explained[at] = Some(Explained {
                    customer: charge.customer_id,
                    charge: charge.id.to_string(),
                    digest: charge.key_digest.clone(),
                });
            }
        }
    }

    /// The keys of captures that no charge explains, for a look at their records.
    pub(super) fn unexplained_keys(&self) -> Vec<[u8; 32]> {
        self.unexplained().filter_map(|at| self.ledger.captures[at].key_digest()).collect()
    }

    /// Names what is left over, and returns what of it is no anomaly.
    pub(super) fn finish(self, known: &HashMap<Vec<u8>, KnownKey>, found: &mut Found) -> Leftover {
        let by_key = self.by_key();
        let by_intent = self.by_intent(known);
        for group in by_key.iter().filter(|group| group.len() > 1) {
            let first = &self.ledger.captures[group[0]];
            // A key of ours is named by its digest, a foreign one can only be quoted.
            let key = match (first.key_digest(), &first.idempotency_key) {
                (None, Some(foreign)) => format!("the gateway key {foreign:?}"),
                _ => "one gateway key".to_owned(),
            };
            self.name_duplicate(group, format!("{} captures under {key}", group.len()), found);
        }
        for group in by_intent.iter().filter(|group| !self.same_key(group)) {
            let reference = self.ledger.captures[group[0]].reference.as_deref().unwrap_or_default();
            self.name_duplicate(
                group,
                format!("{} captures for the client_reference {reference:?}", group.len()),
                found,
            );
        }

        // The surplus capture of something that was bought is named once, as a duplicate.
        let mut surplus = vec![false; self.ledger.captures.len()];
        for group in
            by_key.iter().chain(&by_intent).filter(|group| group.iter().any(|&at| self.explained[at].is_some()))
        {
            group.iter().for_each(|&at| surplus[at] = true);
        }
        let mut leftover = Leftover::default();
        for at in self.unexplained() {
            let capture = &self.ledger.captures[at];
            let known = capture.key_digest().and_then(|digest| known.get(&digest[..]));
            if known.is_some_and(|key| key.unresolved) {
                leftover.pending += 1;
            } else if capture.is_undone() {
                leftover.refunded += 1;
            } else if self.going_back.contains(&capture.payment_intent) {
                leftover.pending += 1;
            } else if !surplus[at] {
                found.add_one(Kind::OrphanCharge, || orphan(capture, known));
            }
        }
        leftover
    }

    /// A capture that nobody here names and that goes back, or went back in full, costs nobody anything: it duplicates none.
    fn counts(&self, at: usize) -> bool {
        let capture = &self.ledger.captures[at];
        self.explained[at].is_some() || !(capture.is_undone() || self.going_back.contains(&capture.payment_intent))
    }

    fn unexplained(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.explained.len()).filter(|&at| self.explained[at].is_none())
    }

    /// Positions of captures under one gateway key.
    fn by_key(&self) -> Vec<Vec<usize>> {
        let mut groups: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, capture) in self.ledger.captures.iter().enumerate() {
            if let Some(key) = capture.idempotency_key.as_ref().filter(|_| self.counts(at)) {
                groups.entry(key).or_default().push(at);
            }
        }
        in_order(groups)
    }

    /// Positions of captures for one customer's client_reference. Two customers may use one reference for two purchases, so
    /// the customer is asked of our books; a capture that they do not know counts to the only customer who uses its reference.
    fn by_intent(&self, known: &HashMap<Vec<u8>, KnownKey>) -> Vec<Vec<usize>> {
        let mut by_reference: HashMap<&str, Vec<(usize, Option<i64>)>> = HashMap::new();
        for (at, capture) in self.ledger.captures.iter().enumerate() {
            let Some(reference) = capture.reference.as_ref().filter(|_| self.counts(at)) else { continue };
            let of_charge = self.explained[at].as_ref().map(|explained| explained.customer);
            let of_record = || Some(known.get(&capture.key_digest()?[..])?.customer_id);
            by_reference.entry(reference).or_default().push((at, of_charge.or_else(of_record)));
        }
        let mut groups: HashMap<(&str, Option<i64>), Vec<usize>> = HashMap::new();
        for (reference, captures) in by_reference {
            let mut customers: Vec<i64> = captures.iter().filter_map(|(_, customer)| *customer).collect();
            customers.sort_unstable();
            customers.dedup();
            let only = if let [only] = customers[..] { Some(only) } else { None };
            for (at, customer) in captures {
                groups.entry((reference, customer.or(only))).or_default().push(at);
            }
        }
        in_order(groups)
    }

    /// Whether a group is one that its gateway key holds together already, or no group at all.
    fn same_key(&self, group: &[usize]) -> bool {
        let key = |at: usize| self.ledger.captures[at].idempotency_key.as_deref();
        group.len() < 2 || (key(group[0]).is_some() && group.iter().all(|&at| key(at) == key(group[0])))
    }

    fn name_duplicate(&self, group: &[usize], detail: String, found: &mut Found) {
        found.add_one(Kind::DuplicateCharge, || Example {
            key: self.ledger.captures[group[0]].key_digest().filter(|_| self.same_key(group)).map(hex::encode),
            ids: group.iter().take(IDS_MAX).map(|&at| self.ledger.captures[at].payment_intent.clone()).collect(),
            detail,
        });
    }
}

fn in_order<K>(groups: HashMap<K, Vec<usize>>) -> Vec<Vec<usize>> {
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_unstable();
    groups
}

fn refunded_otherwise(charge: &SucceededCharge, capture: &Capture) -> String {
    let (least, most) = (charge.went_back.start(), charge.went_back.end());
    let ours = if least == most { least.to_string() } else { format!("{least} to {most}") };
    format!(
        "of charge {} the gateway gave {} {} back, and our refunds say {ours}",
        charge.id, capture.amount_refunded, capture.currency
    )
}

fn orphan(capture: &Capture, known: Option<&KnownKey>) -> Example {
    let record = match known {
        Some(key) => format!("its record is {}", key.states),
        None => "no record has its key".to_owned(),
    };
    Example {
        key: capture.key_digest().map(hex::encode),
        ids: vec![capture.payment_intent.clone()],
        detail: format!(
            "{} {} captured and {} of it refunded, no succeeded charge names it, {record}",
            capture.amount, capture.currency, capture.amount_refunded
        ),
    }
}
