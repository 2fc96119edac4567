//! What the tests stand on. Question: how does a test get a real database and real processes, and leave neither behind?

mod database;
mod gateway_side;
mod process;
mod shop;

pub(crate) use self::{
    database::{TestDatabase, keep_days, usual_timing},
    gateway_side::{WEBHOOK_SECRET, sign},
    process::{Process, is_running, wait_for, wait_until},
    shop::{Answer, CUSTOMER, Opening, Shop, answer, fresh_key, grinder, set_clock},
};

/// The program under test.
pub(crate) const CHECKOUT: &str = env!("CARGO_BIN_EXE_checkout");

/// The provider is the whole process's, so the first test that needs one installs it for all.
pub(crate) fn install_tls_provider() {
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
}
