//! The room of bookkeeping: what an event means in money, as entries that sum to zero.

pub mod posting;
pub mod store;
