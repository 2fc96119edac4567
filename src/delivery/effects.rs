//! The two consumers: bookkeeping, whose effect is in our database, and receipts, whose effect is a mail.

use std::{collections::HashMap, time::Duration};

use futures_util::future::join_all;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::consume::{Effect, NoEffect, Step};
use crate::{
    crash_point::crash_point,
    customers, database,
    ids::{CustomerId, EventId},
    ledger::{self, posting::Posting},
    receipts::{self, Found, Letter, MailClient, Sending, store::Addressed},
    wire::event::{CHARGE_SUCCEEDED, Event, ORDER_CREATED, ORDER_REFUNDED, REFUND_FAILED},
};

/// The consumers, by name.
pub const LEDGER: &str = "ledger";
pub const RECEIPTS: &str = "receipts";

/// Books every event. Nothing happens outside the transaction.
#[derive(Debug, Clone, Copy)]
pub struct Bookkeeping;

impl Effect for Bookkeeping {
    type Made = Posting;

    fn consumer(&self) -> &'static str {
        LEDGER
    }

    async fn at(&self, step: Step) {
        match step {
            Step::Read => crash_point!(LedgerRead),
            Step::Made => crash_point!(LedgerEffect),
            Step::BeforeCommit => crash_point!(LedgerBeforeCommit),
            Step::BeforeAck => crash_point!(LedgerBeforeAck),
        }
    }

    async fn make(&self, events: &[&Event]) -> Vec<Result<Posting, NoEffect>> {
        events.iter().map(|event| Posting::of(event).map_err(|why| NoEffect::Refused { why })).collect()
    }

    async fn record(&self, tx: &mut PgConnection, made: &[(&Event, &Posting)]) -> sqlx::Result<()> {
        ledger::store::book(tx, made).await
    }
}

/// Mails under way at once. At 20 ms each that is 3,200 a second.
const SENDING_MAX: usize = 64;
/// How long the mail service is relied upon to remember a key: it says 24 hours.
const REMEMBERED: time::Duration = time::Duration::hours(23);

/// Sends a receipt for every order, charge and refund, under the event's id. Who dies after the sending sends it again, and the mail service
/// recognises it.
#[derive(Debug, Clone)]
pub struct Receipting {
    pool: PgPool,
    mail: MailClient,
    /// Longest that one mail is waited for.
    send_max: Duration,
    /// No mail is begun after it: a batch at a service that hangs takes many times `send_max`, and a process that is asked to
    /// stop does not have that long.
    stop: CancellationToken,
}

/// What came of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Receipt {
    Sent {
        mail_id: String,
    },
    /// Not every event is one that a customer gets mail for.
    NotWanted,
}

impl Receipting {
    pub fn new(pool: PgPool, mail: MailClient, send_max: Duration, stop: CancellationToken) -> Self {
        Self { pool, mail, send_max, stop }
    }

    /// Where each of these letters goes, which is written down before any of them is sent: what is sent again under its key must
    /// be the same mail, whatever address its customer has set meanwhile.
    async fn address(&self, letters: &[&Letter]) -> sqlx::Result<HashMap<EventId, Addressed>> {
        if letters.is_empty() {
            return Ok(HashMap::new());
        }
        let mut tx = database::begin(&self.pool).await?;
        let customers: Vec<CustomerId> = letters.iter().map(|letter| letter.customer).collect();
        let emails = customers::store::emails(&mut tx, &customers).await?;
        let recipient = |letter: &Letter| letter.recipient(emails.get(&letter.customer).map(String::as_str));
        let recipients = letters.iter().map(|letter| (letter.event, recipient(letter))).collect();
        let addressed = receipts::store::address(&mut tx, &recipients).await?;
        tx.commit().await?;
        Ok(addressed)
    }

    async fn send(
        &self,
        event: &Event,
        letter: Letter,
        addressed: Option<Addressed>,
        now: OffsetDateTime,
    ) -> Result<Receipt, NoEffect> {
        let mail = match addressed {
            Some(Addressed::To(recipient)) => letter.to(recipient),
            Some(Addressed::Sent { mail_id }) => return Ok(Receipt::Sent { mail_id }),
            // Booked by somebody else in this very moment: the next round finds it so.
            None => return Err(NoEffect::NotTried),
        };
        // It may have been sent before, so long ago that the service would take it for another one.
        if now - event.occurred_at > REMEMBERED
            && let Some(receipt) = self.sent_before(event.id).await?
        {
            return Ok(receipt);
        }
        match self.mail.send(&mail, self.send_max).await {
            Sending::Sent { mail_id } => Ok(Receipt::Sent { mail_id }),
            // Another version of us may have sent it in other words: then it is this mail that is refused, and not the event.
            Sending::Refused { why } => self.sent_before(event.id).await?.ok_or(NoEffect::Refused { why }),
            Sending::Unavailable { why } => Err(NoEffect::Unavailable { why }),
        }
    }

    /// Asks the mail service's own record, which forgets nothing.
    async fn sent_before(&self, event: EventId) -> Result<Option<Receipt>, NoEffect> {
        match self.mail.find(event, self.send_max).await {
            Found::Delivered { mail_id } => Ok(Some(Receipt::Sent { mail_id })),
            Found::NotDelivered => Ok(None),
            Found::Unavailable { why } => Err(NoEffect::Unavailable { why }),
        }
    }
}

/// What there is to tell about an event. `None`: not every event is one that a customer gets mail for.
fn letter_about(event: &Event) -> Result<Option<Letter>, NoEffect> {
    let letter = match event.kind.as_str() {
        ORDER_CREATED => receipts::of_order_created(event.id, &event.payload),
        ORDER_REFUNDED => receipts::of_order_refunded(event.id, &event.payload),
        REFUND_FAILED => receipts::of_refund_failed(event.id, &event.payload),
        CHARGE_SUCCEEDED => receipts::of_charge_succeeded(event.id, &event.payload),
        _ => return Ok(None),
    };
    letter.map(Some).map_err(|unreadable| NoEffect::Refused { why: unreadable.to_string() })
}

impl Effect for Receipting {
    type Made = Receipt;

    fn consumer(&self) -> &'static str {
        RECEIPTS
    }

    async fn at(&self, step: Step) {
        match step {
            Step::Read => crash_point!(ReceiptsRead),
            Step::Made => crash_point!(ReceiptsSent),
            Step::BeforeCommit => crash_point!(ReceiptsBeforeCommit),
            Step::BeforeAck => crash_point!(ReceiptsBeforeAck),
        }
    }

    async fn make(&self, events: &[&Event]) -> Vec<Result<Receipt, NoEffect>> {
        let letters: Vec<_> = events.iter().map(|event| letter_about(event)).collect();
        let readable: Vec<&Letter> = letters.iter().flatten().flatten().collect();
        let (addressed, now) = match tokio::try_join!(self.address(&readable), database::clock(&self.pool)) {
            Ok(known) => known,
            Err(error) => {
                return events.iter().map(|_| Err(NoEffect::Unavailable { why: error.to_string() })).collect();
            }
        };
        // Not a stream that keeps the order: in that, one mail that is not answered keeps the places of all that are.
        let places = Semaphore::new(SENDING_MAX);
        let send = async |event: &Event, letter: Result<Option<Letter>, NoEffect>| {
            let _place = places.acquire().await;
            if self.stop.is_cancelled() {
                return Err(NoEffect::NotTried);
            }
            match letter? {
                Some(letter) => self.send(event, letter, addressed.get(&event.id).cloned(), now).await,
                None => Ok(Receipt::NotWanted),
            }
        };
        join_all(events.iter().zip(letters).map(|(event, letter)| send(event, letter))).await
    }

    async fn record(&self, tx: &mut PgConnection, made: &[(&Event, &Receipt)]) -> sqlx::Result<()> {
        let sent: Vec<(&Event, &str)> = made
            .iter()
            .filter_map(|(event, receipt)| match receipt {
                Receipt::Sent { mail_id } => Some((*event, mail_id.as_str())),
                Receipt::NotWanted => None,
            })
            .collect();
        receipts::store::record(tx, &sent).await
    }
}
