//! Checkout: a runnable reference for idempotent payments.

pub mod audit;
pub mod config;
pub mod console;
pub mod credential;
pub mod database;
pub mod idempotency;
pub mod ids;
pub mod mock_gateway;
pub mod money;
pub mod serve;
