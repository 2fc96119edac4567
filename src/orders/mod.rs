//! The room of orders: what may be asked for, what it costs, and what was bought.

pub mod catalogue;
pub mod refund_store;
pub mod request;
pub mod store;
