//! The room of keys: what was asked under a key, who runs it, and what was answered.
//!
//! It knows nothing of orders or gateways. [`decide`] is pure; the stores are its SQL; who joins them to a purchase is
//! the checkout's story.

pub mod claim_store;
pub mod decide;
pub mod end_store;
pub mod fingerprint;
pub mod key;
pub mod live_keys_store;
pub mod partitions;
pub mod record;
pub mod store;
