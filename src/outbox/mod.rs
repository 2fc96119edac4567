//! The room of events: what happened, written in the transaction in which it happened.

pub mod store;
