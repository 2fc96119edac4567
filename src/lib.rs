//! Checkout: a runnable reference for idempotent payments.

pub mod app;
pub mod audit;
pub mod charges;
pub mod checkout;
pub mod config;
pub mod console;
pub mod credential;
pub mod database;
pub mod demo;
pub mod gateway;
pub mod http;
pub mod idempotency;
pub mod ids;
pub mod mock_gateway;
pub mod money;
pub mod orders;
pub mod outbox;
pub mod serve;
pub mod stop;
pub mod telemetry;
pub mod wire;
