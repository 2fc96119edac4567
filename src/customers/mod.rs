//! The room of customers: what they tell of themselves.

pub mod request;
pub mod store;
