//! What the tests stand on. Question: how does a test get a real database and real processes, and leave neither behind?

mod database;
mod gateway_side;
mod process;
mod shop;
mod watch;

use tokio::sync::RwLock;

pub(crate) use self::{
    database::{TestDatabase, keep_days, usual_timing},
    gateway_side::{WEBHOOK_SECRET, sign},
    process::{PATIENCE, Process, client, is_running, wait_for, wait_until},
    shop::{Answer, CUSTOMER, Opening, SECRET, Shop, answer, fresh_key, grinder, set_clock},
    watch::on_watch,
};

/// The program under test.
pub(crate) const CHECKOUT: &str = env!("CARGO_BIN_EXE_checkout");

/// Who works the machine hard shares this; who has an appointment with the clock has it alone, and the others wait meanwhile.
pub(crate) static MACHINE: RwLock<()> = RwLock::const_new(());

/// Ways in which a database step fails through nobody's fault: its name, and what a trigger does to bring it about.
pub(crate) const FAILURES: [(&str, &str); 3] = [
    ("40001", "RAISE EXCEPTION 'could not serialize access' USING ERRCODE = '40001'"),
    ("40P01", "RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01'"),
    ("connection ended", "PERFORM pg_terminate_backend(pg_backend_pid())"),
];

/// Plays one part of a test on a thread and a runtime of its own, beside others that also wait for processes to start. A part
/// that panics ends alone; its words are the error.
pub(crate) async fn apart<T, F>(part: impl FnOnce() -> F + Send + 'static) -> Result<T, String>
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let played = tokio::task::spawn_blocking(move || runtime().expect("a runtime").block_on(part()));
    played.await.map_err(|broken| match broken.try_into_panic() {
        Ok(panic) => match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
            (Some(words), _) => words.clone(),
            (None, words) => words.copied().unwrap_or("it panicked without words").to_owned(),
        },
        Err(cancelled) => cancelled.to_string(),
    })
}

/// The provider is the whole process's, so the first test that needs one installs it for all.
pub(crate) fn install_tls_provider() {
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
}
