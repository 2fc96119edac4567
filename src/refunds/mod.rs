//! The room of refunds: what may be asked for, and our own books of what went back to whom.

pub mod request;
pub mod store;
