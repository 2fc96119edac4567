//! `checkout charge-run` against a real shop: however the run ends, and however often it is run, each line is charged once.

use std::{
    collections::{BTreeMap, HashSet},
    fmt::Write as _,
    path::PathBuf,
    process::Command,
};

use checkout::stop::{Signal, send};
use tempfile::TempDir;

use crate::support::{Opening, Process, SECRET, Shop, wait_until};

const HEADER: &str = "customer,invoice_line,billing_period,amount,currency,payment_method\n";
/// Enough to be in the middle of for a while.
const LINES: usize = 120;

/// A file to charge, in a folder of its own.
struct Batch {
    folder: TempDir,
}

/// One row of the results file, by column.
type Row = BTreeMap<String, String>;

impl Batch {
    fn new(rows: &str) -> Self {
        let batch = Self { folder: tempfile::tempdir().unwrap() };
        batch.rewrite(rows);
        batch
    }

    /// Many lines of a few customers. The gateway takes its time with each, and loses the answer of every tenth.
    fn of_many_lines() -> Self {
        let mut rows = String::new();
        for number in 1..=LINES {
            let method = if number % 10 == 0 { "pm_mock_drop_after" } else { "pm_mock_latency_after_40" };
            writeln!(rows, "{},INV-{number},2026-11,{},eur,{method}", 40 + number % 5, 100 + number).unwrap();
        }
        Self::new(&rows)
    }

    fn rewrite(&self, rows: &str) {
        std::fs::write(self.file("csv"), format!("{HEADER}{rows}")).unwrap();
    }

    fn file(&self, extension: &str) -> PathBuf {
        self.folder.path().join("november").with_extension(extension)
    }

    /// As it is run by whoever has the shop's secret.
    fn command(&self, shop: &Shop, flags: &[&str]) -> Command {
        let mut command = Process::command(&["charge-run"]);
        command.arg(self.file("csv")).args(flags);
        command.env("CHECKOUT_API_URL", &shop.api_url).env("CHECKOUT_SECRET", SECRET);
        command
    }

    /// Runs it to its end: exit code and stdout.
    fn run(&self, shop: &Shop, flags: &[&str]) -> (Option<i32>, String) {
        let output = self.command(shop, flags).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), format!("{said}{}", String::from_utf8_lossy(&output.stderr)))
    }

    /// The rows that are there, also while they are being written.
    fn results(&self) -> Vec<Row> {
        let Ok(text) = std::fs::read_to_string(self.file("results.csv")) else { return Vec::new() };
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let mut reader = csv::Reader::from_reader(whole.as_bytes());
        reader.deserialize().map(Result::unwrap).collect()
    }

    fn wait_for_results(&self, rows: usize) {
        wait_until("so many lines have their results", || self.results().len() >= rows);
    }

    /// How many lines ended how.
    fn outcomes(&self) -> BTreeMap<String, usize> {
        let mut outcomes = BTreeMap::new();
        for row in self.results() {
            *outcomes.entry(row["outcome"].clone()).or_default() += 1;
        }
        outcomes
    }
}

fn counts(expected: &[(&str, usize)]) -> BTreeMap<String, usize> {
    expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// Every line of [`Batch::of_many_lines`] was paid for once, with its own amount, and nothing else was.
async fn each_line_is_charged_once(shop: &Shop) {
    let ledger = shop.ledger().await;
    let captures = ledger["captures"].as_array().unwrap();
    assert_eq!(captures.len(), LINES);
    let paid: HashSet<(String, i64)> = captures
        .iter()
        .map(|capture| (capture["reference"].as_str().unwrap().to_owned(), capture["amount"].as_i64().unwrap()))
        .collect();
    for number in 1..=LINES {
        let expected = (format!("{}/INV-{number}/2026-11", 40 + number % 5), 100 + number as i64);
        assert!(paid.contains(&expected), "{expected:?} is missing");
    }
}

/// Each line of the file has one row, with the ids of its charge.
fn results_are_complete(batch: &Batch) {
    let rows = batch.results();
    let lines: HashSet<&str> = rows.iter().map(|row| row["line"].as_str()).collect();
    let charges: HashSet<&str> = rows.iter().map(|row| row["charge_id"].as_str()).collect();
    assert_eq!((rows.len(), lines.len(), charges.len()), (LINES, LINES, LINES));
    assert!(rows.iter().all(|row| row["gateway_id"].starts_with("pi_") && row["idempotency_key"].len() == 68));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_killed_in_the_middle_and_run_again_charges_each_line_once() {
    let shop = Shop::open().await;
    let batch = Batch::of_many_lines();
    let mut killed = Process::spawn(batch.command(&shop, &["--at-once", "4"]));
    tokio::task::block_in_place(|| batch.wait_for_results(20));
    killed.kill();
    let known = batch.results().len();
    assert!(shop.captures().await < LINES as u64, "it was killed too late to prove anything");

    let (code, said) = tokio::task::block_in_place(|| batch.run(&shop, &[]));
    assert_eq!(code, Some(0), "{said}");
    each_line_is_charged_once(&shop).await;
    results_are_complete(&batch);
    let outcomes = batch.outcomes();
    let (now, before) = (outcomes["charged_now"], outcomes["charged_before"]);
    assert!(now + before == LINES && before >= known, "{known} known at the kill, then {outcomes:?}");
    assert!(said.contains(&format!("charged before {before:>8}")), "{said}");

    let (code, said) = tokio::task::block_in_place(|| batch.run(&shop, &[]));
    assert_eq!((code, batch.outcomes()), (Some(0), counts(&[("charged_before", LINES)])), "{said}");
    each_line_is_charged_once(&shop).await;
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_waits_for_what_is_under_way_and_says_what_was_sent() {
    let shop = Shop::open().await;
    let batch = Batch::of_many_lines();
    let mut run = Process::spawn(batch.command(&shop, &["--at-once", "4"]));
    tokio::task::block_in_place(|| batch.wait_for_results(20));
    assert!(send(run.pid(), Signal::Interrupt));
    let said = run.line_with("stopped: ");
    assert_eq!(tokio::task::block_in_place(|| run.ended()).code(), Some(1), "{}", run.stderr());
    let outcomes = batch.outcomes();
    let (sent, left) = (outcomes["charged_now"], outcomes["not_sent"]);
    assert_eq!(said, format!("stopped: {sent} lines were sent, {left} were not"));
    assert_eq!((sent + left, shop.captures().await), (LINES, sent as u64));

    let (code, said) = tokio::task::block_in_place(|| batch.run(&shop, &[]));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(batch.outcomes(), counts(&[("charged_before", sent), ("charged_now", left)]));
    each_line_is_charged_once(&shop).await;
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_that_dies_leaves_lines_unknown_and_the_next_run_settles_them() {
    // A dead api's claims are taken over after their lease, so that is short here.
    let flags = vec!["--gateway-budget-ms", "400", "--answer-ms", "2000", "--lease-ms", "2500"];
    let mut shop = Shop::open_with(Opening { gateway_in_memory: true, flags, ..Opening::default() }).await;
    let batch = Batch::of_many_lines();
    let mut run = Process::spawn(batch.command(&shop, &["--at-once", "4", "--patience-s", "1"]));
    tokio::task::block_in_place(|| batch.wait_for_results(20));
    shop.api.kill();
    run.line_with("given up: too many lines in a row without an outcome");
    run.line_with("run the same command again");
    assert_eq!(tokio::task::block_in_place(|| run.ended()).code(), Some(1), "{}", run.stderr());
    let outcomes = batch.outcomes();
    assert!(outcomes["unknown"] >= 10 && outcomes["not_sent"] > 0, "{outcomes:?}");
    assert_eq!(outcomes.values().sum::<usize>(), LINES);

    shop.restart_api();
    let (code, said) = tokio::task::block_in_place(|| batch.run(&shop, &[]));
    assert_eq!(code, Some(0), "{said}");
    each_line_is_charged_once(&shop).await;
    results_are_complete(&batch);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_line_ends_in_its_own_way_and_what_needs_a_person_is_kept() {
    let shop = Shop::open().await;
    let batch = Batch::new(
        "42,A,2026-11,100,eur,pm_card_visa\n\
         42,B,2026-11,100,eur,pm_card_visa\n\
         42,A,2026-11,100,eur,pm_card_visa\n\
         42,C,2026-11,1.00,eur,pm_card_visa\n\
         42,D,2026-11,500,eur,pm_card_visa\n\
         42,D,2026-11,600,eur,pm_card_visa\n\
         43,E,2026-11,300,eur,pm_card_visa_chargeDeclinedInsufficientFunds\n\
         43,A,2026-11,100,eur,pm_card_visa\n\
         42,F\n",
    );
    let (code, said) = tokio::task::block_in_place(|| batch.run(&shop, &[]));
    assert_eq!(code, Some(1), "{said}");
    let expected = [("charged_now", 3), ("declined", 1), ("rejected", 4), ("repeated", 1)];
    assert_eq!(batch.outcomes(), counts(&expected), "{said}");
    assert_eq!(shop.ledger().await["amount"], 300);
    for sentence in
        ["line 5: rejected: amount", "line 6: rejected: customer 42, D of 2026-11 is also on line 7", "declined"]
    {
        assert!(said.contains(sentence), "{said}");
    }
    let kept = std::fs::read_to_string(batch.file("rejected.csv")).unwrap();
    assert_eq!(kept.lines().count(), 5, "{kept}");
    assert!(kept.ends_with("10,has 2 fields instead of 6,42,F\n"), "{kept}");

    // Another amount for a line that is paid is a question, not a second charge.
    batch.rewrite("42,A,2026-11,101,eur,pm_card_visa\n42,B,2026-11,100,eur,pm_card_visa\n");
    let (code, said) = tokio::task::block_in_place(|| batch.run(&shop, &[]));
    assert_eq!((code, batch.outcomes()), (Some(1), counts(&[("charged_before", 1), ("rejected", 1)])), "{said}");
    assert!(said.contains("idempotency_key_reused"), "{said}");
    let kept = std::fs::read_to_string(batch.file("rejected.csv")).unwrap();
    assert!(kept.contains("42,A,2026-11,101,eur,pm_card_visa"), "{kept}");
    assert_eq!(shop.captures().await, 3);

    // A week later the api only remembers what was bought.
    batch.rewrite("42,A,2026-11,100,eur,pm_card_visa\n42,B,2026-11,100,eur,pm_card_visa\n");
    shop.set_clock("80 hours").await;
    let (code, said) = tokio::task::block_in_place(|| batch.run(&shop, &[]));
    assert_eq!((code, batch.outcomes()), (Some(0), counts(&[("charged_before", 2)])), "{said}");
    assert!(!batch.file("rejected.csv").exists());
    assert_eq!(shop.captures().await, 3);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_begin_sends_nothing_and_leaves_nothing_behind() {
    let shop = Shop::open().await;
    let batch = Batch::new("42,A,2026-11,100,eur,pm_card_visa\n42,A,2026-12,100,eur,pm_card_visa\n");
    let left = || std::fs::read_dir(batch.folder.path()).unwrap().count();

    let (code, said) = batch.run(&shop, &["--dry-run"]);
    assert_eq!((code, left()), (Some(0), 1), "{said}");
    assert!(said.contains("customer 42, A of 2026-12") && said.contains("2.00 eur"), "{said}");
    assert_eq!(said.matches("run_").count(), 2, "{said}");

    let refusals = [
        ("--secret=another-secret-of-32-characters!", "401 unauthenticated: is this its secret?"),
        ("--api-url=http://127.0.0.1:1", "Connection refused"),
        ("--api-url=nowhere", "nowhere is not a URL"),
        ("--secret=short", "at least 32 characters"),
        ("--api-url=", "a secret is given"),
    ];
    for (flag, reason) in refusals {
        let (code, said) = tokio::task::block_in_place(|| batch.run(&shop, &[flag]));
        assert_eq!((code, left()), (Some(1), 1), "{said}");
        assert!(said.starts_with("checkout: ") && said.contains(reason) && said.lines().count() == 1, "{said}");
    }
    std::fs::write(batch.file("csv"), "customer,amount\n42,100\n").unwrap();
    let (code, said) = tokio::task::block_in_place(|| batch.run(&shop, &[]));
    assert_eq!((code, left(), said.lines().count()), (Some(1), 1, 1), "{said}");
    assert!(said.contains("lacks invoice_line, billing_period, currency, payment_method"), "{said}");
    assert_eq!(shop.captures().await, 0);
    shop.close().await;
}
