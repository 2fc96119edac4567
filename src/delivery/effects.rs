//! The two consumers: bookkeeping, whose effect is in our database, and receipts, whose effect is a mail.

use sqlx::PgConnection;

use super::consume::{Effect, NoEffect};
use crate::{
    ledger::{self, posting::Posting},
    wire::event::Event,
};

/// Books every event. Nothing happens outside the transaction.
#[derive(Debug, Clone, Copy)]
pub struct Bookkeeping;

impl Effect for Bookkeeping {
    type Made = Posting;

    fn consumer(&self) -> &'static str {
        "ledger"
    }

    async fn make(&self, events: &[&Event]) -> Vec<Result<Posting, NoEffect>> {
        events.iter().map(|event| Posting::of(event).map_err(|why| NoEffect::Refused { why })).collect()
    }

    async fn record(&self, tx: &mut PgConnection, made: &[(&Event, &Posting)]) -> sqlx::Result<()> {
        ledger::store::book(tx, made).await
    }
}
