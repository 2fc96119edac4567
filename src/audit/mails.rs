//! The mail service's own list against our receipts: what has the customer really heard, and how often?

use std::collections::{BTreeMap, HashSet};

use anyhow::Context;
use serde::Deserialize;
use sqlx::PgPool;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{
    anomaly::Kind,
    listing,
    report::{Example, Found},
    store::effects::Receipt,
};
use crate::database;

/// Most ids that one finding spells out.
const IDS_MAX: usize = 10;

/// A mail that was delivered.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Line")]
pub struct Mail {
    pub id: String,
    /// What it tells of, if it is one of ours.
    pub event: Option<Uuid>,
    /// The order, or the charge that stands alone.
    pub aggregate: Option<Uuid>,
}

/// As the service lists it.
#[derive(Debug, Deserialize)]
struct Line {
    id: String,
    tags: Tags,
}

/// Of all tags those that are ours.
#[derive(Debug, Deserialize)]
struct Tags {
    event_id: Option<String>,
    order_id: Option<String>,
    charge_id: Option<String>,
}

impl From<Line> for Mail {
    fn from(Line { id, tags }: Line) -> Self {
        let read = |tag: Option<String>| tag?.parse().ok();
        Self { id, event: read(tags.event_id), aggregate: read(tags.order_id.or(tags.charge_id)) }
    }
}

/// All mails, as the list stood some time after `asked_at`.
///
/// It is read before the snapshot of the database, like the gateway's ledger, and no order of reading could make both
/// directions safe by itself. A mail without its receipt proves nothing, at any time: between the delivery and the commit
/// there is always a moment. A receipt without its mail does, if the list is younger than the mail: a receipt carries the
/// database's time of its booking, which is after the delivery, so one that was booked before the question must be listed.
/// One that was booked later is not looked for. A mail that is listed twice was delivered twice, whatever our books say.
#[derive(Debug, Clone)]
pub struct Mails {
    pub asked_at: OffsetDateTime,
    pub mails: Vec<Mail>,
}

#[derive(Debug, Deserialize)]
struct Listing {
    mails: Vec<Mail>,
    count: usize,
}

impl Mails {
    /// Reads the database's clock, then the whole list.
    pub async fn fetch(pool: &PgPool, mail_url: &str) -> anyhow::Result<Self> {
        let asked_at = database::clock(pool).await.context("reading the database's clock")?;
        let url = format!("{}/_mock/mails", mail_url.trim_end_matches('/'));
        let Listing { mails, count } =
            listing::read(&url).await.with_context(|| format!("cannot read the list of mails at {url}"))?;
        anyhow::ensure!(
            count == mails.len(),
            "the list of mails contradicts itself: it lists {} and announces {count}",
            mails.len(),
        );
        Ok(Self { asked_at, mails })
    }
}

/// Fed with every receipt, then asked what was repeated.
#[derive(Debug)]
pub(super) struct Mailbox<'a> {
    asked_at: OffsetDateTime,
    listed: HashSet<&'a str>,
    /// In order, so that two audits of one state say the same.
    by_event: BTreeMap<Uuid, Vec<&'a Mail>>,
}

impl<'a> Mailbox<'a> {
    pub(super) fn new(mails: &'a Mails) -> Self {
        let mut by_event: BTreeMap<Uuid, Vec<&Mail>> = BTreeMap::new();
        for mail in &mails.mails {
            if let Some(event) = mail.event {
                by_event.entry(event).or_default().push(mail);
            }
        }
        let listed = mails.mails.iter().map(|mail| mail.id.as_str()).collect();
        Self { asked_at: mails.asked_at, listed, by_event }
    }

    /// Looks a receipt's mail up.
    pub(super) fn receipt(&self, receipt: &Receipt, found: &mut Found) {
        if receipt.sent_at < self.asked_at && !self.listed.contains(receipt.mail_id.as_str()) {
            found.add_one(Kind::UnsentReceipt, || Example {
                key: None,
                ids: vec![receipt.aggregate.to_string(), receipt.event_id.to_string(), receipt.mail_id.clone()],
                detail: format!(
                    "a receipt about {} names mail {}, which was never delivered",
                    receipt.aggregate, receipt.mail_id
                ),
            });
        }
    }

    /// Names events with more than one mail.
    pub(super) fn name_repeated(&self, found: &mut Found) {
        for (event, mails) in self.by_event.iter().filter(|(_, mails)| mails.len() > 1) {
            found.add_one(Kind::RepeatedEffect, || Example {
                key: None,
                ids: std::iter::once(event.to_string())
                    .chain(mails.iter().map(|mail| mail.id.clone()))
                    .take(IDS_MAX)
                    .collect(),
                detail: format!("{} mails were delivered for event {event}", mails.len()),
            });
        }
    }

    /// By aggregate, the events of each that was told by more than one: whether they are of one kind is for the database
    /// to say.
    pub(super) fn with_several(&self) -> BTreeMap<Uuid, Vec<Uuid>> {
        let mut by_aggregate: BTreeMap<Uuid, Vec<Uuid>> = BTreeMap::new();
        for (event, mails) in &self.by_event {
            if let Some(aggregate) = mails.first().and_then(|mail| mail.aggregate) {
                by_aggregate.entry(aggregate).or_default().push(*event);
            }
        }
        by_aggregate.retain(|_, events| events.len() > 1);
        by_aggregate
    }
}

/// Names what was told twice, by two events. An event whose kind nobody remembers accuses nobody.
pub(super) fn name_confirmed_twice(told: &BTreeMap<Uuid, Vec<Uuid>>, only_once: &HashSet<Uuid>, found: &mut Found) {
    for (aggregate, events) in told {
        let confirmed: Vec<_> = events.iter().filter(|event| only_once.contains(event)).collect();
        if confirmed.len() > 1 {
            found.add_one(Kind::RepeatedEffect, || Example {
                key: None,
                ids: std::iter::once(aggregate)
                    .chain(confirmed.iter().copied())
                    .take(IDS_MAX)
                    .map(Uuid::to_string)
                    .collect(),
                detail: format!("{aggregate} was confirmed by the mails of {} events", confirmed.len()),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_list_names_its_event_and_what_it_is_about_by_tags_and_a_foreign_mail_names_none() {
        let (event, order) = (Uuid::now_v7(), Uuid::now_v7());
        let line = format!(
            r#"{{"id":"m1","idempotency_key":"k","to":"a@b","subject":"s","created":1,
                "tags":{{"event_id":"{event}","more":"x","order_id":"{order}"}}}}"#
        );
        let mail: Mail = serde_json::from_str(&line).unwrap();
        assert_eq!((mail.event, mail.aggregate), (Some(event), Some(order)));
        let mail: Mail = serde_json::from_str(&line.replace("order_id", "charge_id")).unwrap();
        assert_eq!((mail.event, mail.aggregate), (Some(event), Some(order)));
        let foreign: Mail = serde_json::from_str(r#"{"id":"m2","tags":{"event_id":"no uuid"}}"#).unwrap();
        assert_eq!((foreign.event, foreign.aggregate), (None, None));
    }

    #[test]
    fn only_mails_of_events_of_one_kind_confirm_an_order_twice() {
        let (order, created, again, other) = (Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7());
        let orders = BTreeMap::from([(order, vec![created, again, other])]);
        for (kinds, expected) in [(vec![created, other], 1), (vec![created], 0), (vec![], 0)] {
            let mut found = Found::default();
            name_confirmed_twice(&orders, &kinds.into_iter().collect::<HashSet<_>>(), &mut found);
            let report = super::super::report::Report::new(found, Default::default());
            assert_eq!(report.found(Kind::RepeatedEffect), expected);
        }
    }
}
