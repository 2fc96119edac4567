//! The room of receipts: the mail that tells a customer what was bought, and the record that it went out.

pub mod store;
