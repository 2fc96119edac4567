//! The room of receipts: what the customer reads about an order, a charge or a refund, the service that delivers it, and the record that it did.
//!
//! The effect is HTTP, so no transaction of ours can hold it. What makes it happen once is the event's id, which the mail
//! service dedupes by for a day; and what ends the doubt after that day is [`MailClient::find`].

mod connection;
mod mail;
mod receipt;
pub mod store;

pub use self::{
    mail::{Found, Mail, MailClient, Sending},
    receipt::{Letter, Unreadable, of_charge_succeeded, of_order_created, of_order_refunded, of_refund_failed},
};
