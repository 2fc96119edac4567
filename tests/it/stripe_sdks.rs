//! The official Stripe SDKs of Python and Node against the mock gateway, over both kinds of books: the programs of
//! `tests/stripe`, which also run against Stripe itself.
//!
//! It answers: would code written for the real thing find here what it relies on?

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use tokio::process::Command;

use crate::support::{Process, TestDatabase};

const REQUIREMENTS: &str = include_str!("../stripe/python/requirements.txt");
const PACKAGE: &str = include_str!("../stripe/node/package.json");
const LOCK: &str = include_str!("../stripe/node/package-lock.json");

const SEQUENCES: usize = 17;
/// Generous: a program takes a quarter of a minute, and this only bounds a hang.
const PATIENCE: Duration = Duration::from_secs(300);

#[tokio::test]
#[ignore = "needs the official Stripe SDKs: .ci/install-stripe-sdks puts them below target/"]
async fn the_official_sdks_are_at_home_over_books_in_memory() {
    let (_gateway, url) = Process::role("gateway", &["--in-memory", "--events"], &[]);
    both_sdks(&url).await;
}

#[tokio::test]
#[ignore = "needs the official Stripe SDKs: .ci/install-stripe-sdks puts them below target/"]
async fn the_official_sdks_are_at_home_over_durable_books() {
    let database = TestDatabase::create().await;
    let (_gateway, url) = Process::role("gateway", &["--events"], &[("DATABASE_URL", database.url.as_str())]);
    both_sdks(&url).await;
}

/// Python first: in the last sequence Node repeats what Python sent.
async fn both_sdks(url: &str) {
    let mut python = Command::new(installed("python/bin/python"));
    python.arg("-B").arg(source("python/sequences.py"));
    run(python, &format!("stripe-python {} against {url}", python_pin()), url).await;
    let mut node = Command::new("node");
    node.arg(source("node/sequences.js")).env("NODE_PATH", installed("node/node_modules"));
    run(node, &format!("stripe-node {} against {url}", node_pin()), url).await;
}

/// Every sequence ran and said so: one that was left out is no success.
async fn run(mut program: Command, title: &str, url: &str) {
    program.env("STRIPE_API_BASE", url).env("CROSS_SDK_RUN", "test").env_remove("STRIPE_TEST_KEY");
    program.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1").kill_on_drop(true);
    let ended = tokio::time::timeout(PATIENCE, program.output()).await.expect("the sequences end");
    let ended = ended.unwrap_or_else(|error| panic!("{title}: {error}"));
    let said = String::from_utf8_lossy(&ended.stdout);
    let trouble = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{title}:\n{said}\n{trouble}");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], title, "another version is installed: run .ci/install-stripe-sdks");
    assert_eq!(lines.len(), 1 + SEQUENCES, "{said}");
    for (number, line) in (1..).zip(&lines[1..]) {
        assert!(line.starts_with(&format!("{number:>2} ok ")), "{said}");
    }
}

fn installed(path: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/stripe-sdks");
    // Written last: a half installation is none.
    assert!(folder.join("installed").exists(), "the official Stripe SDKs are missing: run .ci/install-stripe-sdks");
    folder.join(path)
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stripe").join(path)
}

fn python_pin() -> &'static str {
    REQUIREMENTS.lines().find_map(|line| line.strip_prefix("stripe==")).expect("a pinned version")
}

fn node_pin() -> String {
    let package: Value = serde_json::from_str(PACKAGE).expect("JSON");
    package["dependencies"]["stripe"].as_str().expect("a version").to_owned()
}

#[test]
fn the_versions_are_pinned_and_come_from_whatever_registry_one_has() {
    let exact = |version: &str| version.split('.').all(|part| part.parse::<u32>().is_ok());
    assert!(exact(python_pin()) && exact(&node_pin()), "{} {}", python_pin(), node_pin());
    let lock: Value = serde_json::from_str(LOCK).expect("JSON");
    let locked = lock["packages"].as_object().expect("packages").iter().filter(|(path, _)| !path.is_empty());
    for (path, package) in locked {
        assert!(package["integrity"].is_string(), "{path} is not held by its digest");
        assert_eq!(package["resolved"], Value::Null, "{path} names somebody's registry");
    }
    assert_eq!(lock["packages"]["node_modules/stripe"]["version"], node_pin().as_str());
}
