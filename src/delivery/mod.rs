//! THE SECOND STORY: what follows from an order, a charge or a refund, after its commit. Each event reaches the ledger and the customer's mailbox,
//! whoever dies on the way, and works there once.
//!
//! ```text
//!   outbox ── relay ──▶ event_log ──┬── consume ──▶ ledger     (the effect is in our database: one transaction)
//!    (status)  (lease)   (offset)   └── consume ──▶ receipts   (the effect is a mail: sent under the event's id, then recorded)
//! ```
//!
//! Every arrow may repeat itself. What makes an effect happen once is the row in `processed`, written with it.

pub mod consume;
pub mod effects;
pub mod health;
mod health_store;
pub mod relay;

/// What to do after a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Everything that was there is done. After a pause there will be a batch again.
    Rest,
    /// More is waiting than one round takes.
    GoOn,
    /// The other side cannot be reached: look again after a longer pause.
    Wait,
}
