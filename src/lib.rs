//! Checkout: a runnable reference for idempotent payments.

pub mod app;
pub mod config;
pub mod console;
pub mod database;
pub mod demo;
pub mod http;
pub mod ids;
pub mod mock_gateway;
pub mod money;
pub mod serve;
pub mod stop;
pub mod telemetry;
