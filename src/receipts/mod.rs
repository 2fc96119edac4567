//! The room of receipts: what the customer reads about an order, and the service that delivers it.
//!
//! The effect is HTTP, so no transaction of ours can hold it. What makes it happen once is the event's id, which the mail
//! service dedupes by for a day; and what ends the doubt after that day is [`MailClient::find`].

mod connection;
mod mail;
mod receipt;

pub use self::{
    mail::{Found, Mail, MailClient, Sending},
    receipt::{Unreadable, of_order_created},
};
