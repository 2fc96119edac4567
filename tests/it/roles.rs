//! A role starts on a free port, stops when it is asked to, and does not outlive its parent.

use checkout::stop::{Signal, send};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::support::{CHECKOUT, Process, Shop, fresh_key, install_tls_provider, is_running, wait_for, wait_until};

#[tokio::test]
async fn a_role_says_where_it_listens_and_stops_on_sigterm() {
    let (mut gateway, url) = Process::role("gateway", &["--in-memory"], &[]);
    let answer = client().get(format!("{url}/_mock/stats")).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let status = gateway.stop();
    assert!(status.success(), "{status}: {}", gateway.stderr());
}

#[test]
fn a_paused_role_is_still_there_and_a_killed_one_is_not() {
    let (mut gateway, _) = Process::role("gateway", &["--in-memory"], &[]);
    gateway.pause();
    assert!(is_running(gateway.pid()));
    gateway.resume();
    gateway.kill();
    wait_until("it is gone", || !is_running(gateway.pid()));
}

/// Slow clients must not cost the others the end of their work: the claimed order is finished and its answer delivered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_never_finish_keep_no_api_from_stopping_in_order() {
    let mut shop = Shop::open().await;
    let host = shop.api_url.trim_start_matches("http://").to_owned();
    let mut held = Vec::new();
    for sent in
        ["", "POST /v1/orders HTTP/1.1\r\nHost:", "POST /v1/orders HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{"]
    {
        let mut client = TcpStream::connect(&host).await.unwrap();
        client.write_all(sent.as_bytes()).await.unwrap();
        held.push(client);
    }
    shop.fault("latency_after", 1, 1_000).await;
    let under_way = shop.order_in_background(&fresh_key());
    wait_for("the gateway has charged", async || shop.captures().await == 1).await;
    let status = tokio::task::block_in_place(|| shop.api.stop());
    assert!(status.success(), "{status}: {}", shop.api.stderr());
    assert!(shop.api.stderr().contains("everything that was claimed is finished"), "{}", shop.api.stderr());
    assert_eq!(under_way.await.unwrap().expect("an answer").status(), 201);
    drop(held);
    shop.close().await;
}

#[test]
fn an_error_is_one_line_and_exit_code_1() {
    let (_gateway, url) = Process::role("gateway", &["--in-memory"], &[]);
    let taken = url.trim_start_matches("http://");
    let mut second = Process::spawn(Process::command(&["gateway", "--in-memory", "--listen", taken]));
    assert_eq!(second.ended().code(), Some(1));
    let said = second.stderr();
    assert!(said.contains(&format!("checkout: cannot listen on {taken}: Address already in use")), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("checkout: ")).count(), 1, "{said}");
}

const SECRET: &str = "a-secret-of-the-tests-0123456789abcdef";

/// Runs a command that cannot get far, and returns its exit code and what it complained of.
fn refused(arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Process::command(arguments);
    command.envs(environment.iter().copied());
    let mut process = Process::spawn(command);
    (process.ended().code(), process.stderr())
}

/// A command line, its environment, and the exit code of its failure.
type Failing<'a> = (i32, Vec<&'a str>, Vec<(&'a str, &'a str)>);

/// Every command that needs a database, and how it is started with one of this URL.
fn commands_with_a_database(url: &str) -> [Failing<'_>; 8] {
    let (anywhere, gateway) = (["--listen", "127.0.0.1:0"], ("CHECKOUT_GATEWAY_URL", "http://127.0.0.1:1"));
    let with = |code, first: &'static str, more: &[&'static str]| {
        (code, [&[first], more].concat(), vec![("DATABASE_URL", url), gateway, ("CHECKOUT_SECRET", SECRET)])
    };
    [
        with(1, "api", &anywhere),
        with(1, "worker", &anywhere),
        with(1, "console", &anywhere),
        with(1, "gateway", &anywhere),
        with(1, "mail", &anywhere),
        with(1, "demo", &["--ephemeral", "--base-port", "65531"]),
        with(1, "review", &[]),
        with(2, "verify", &[]),
    ]
}

#[test]
fn a_database_that_is_not_there_is_named_as_the_cause_and_once() {
    for (code, arguments, environment) in commands_with_a_database("postgres://127.0.0.1:1/nowhere") {
        let (ended, said) = refused(&arguments, &environment);
        assert_eq!(ended, Some(code), "{arguments:?}: {said}");
        assert_eq!(said.matches("Connection refused").count(), 1, "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    }
}

#[test]
fn another_kind_of_database_has_its_own_sentence_without_the_password() {
    for (code, arguments, environment) in commands_with_a_database("mysql://me:hidden@127.0.0.1:1/shop") {
        if ["gateway", "mail"].contains(&arguments[0]) {
            // Other companies, with their own words.
            continue;
        }
        let (ended, said) = refused(&arguments, &environment);
        assert_eq!(ended, Some(code), "{arguments:?}: {said}");
        assert!(said.contains("only PostgreSQL is spoken here") && !said.contains("hidden"), "{arguments:?}: {said}");
    }
}

#[test]
fn an_empty_database_url_is_one_that_is_not_set() {
    for role in ["api", "worker", "console"] {
        let (ended, said) = refused(&[role], &[("DATABASE_URL", ""), ("CHECKOUT_SECRET", SECRET)]);
        assert!(ended == Some(2) && said.contains("--database-url"), "{role}: {ended:?} {said}");
    }
    let (_in_memory, _) = Process::role("gateway", &[], &[("DATABASE_URL", "")]);
    let nobodys = tempfile::tempdir().unwrap();
    let folder = nobodys.path().to_str().unwrap();
    let (ended, said) = refused(&["verify", "--data-dir", folder], &[("DATABASE_URL", "")]);
    assert!(ended == Some(2) && said.contains("no running demo found"), "{said}");
}

#[test]
fn flags_that_leave_each_other_no_say_are_refused_when_typed_and_ignored_when_only_set() {
    for typed in [
        &["demo", "--check", "--base-port", "9000"][..],
        &["--check", "--data-dir", "/nowhere"],
        &["demo", "--database-url", "postgres://127.0.0.1:1/x", "--check"],
        &["demo", "--ephemeral", "--data-dir", "/nowhere"],
    ] {
        let (ended, said) = refused(typed, &[]);
        assert!(ended == Some(2) && said.contains("cannot be used with"), "{typed:?}: {said}");
    }
    let set = [("CHECKOUT_DATA_DIR", "/nowhere"), ("DATABASE_URL", "postgres://127.0.0.1:1/x")];
    let (ended, said) = refused(&["demo", "--ephemeral", "--base-port", "65531"], &set);
    assert!(ended == Some(1) && said.contains("Connection refused"), "{said}");
}

#[test]
fn a_closed_terminal_stops_a_role_in_order_unless_it_was_started_to_outlive_it() {
    let (mut gateway, _) = Process::role("gateway", &["--in-memory"], &[]);
    send(gateway.pid(), Signal::HangUp);
    assert!(gateway.ended().success(), "{}", gateway.stderr());

    let mut command = std::process::Command::new("/bin/sh");
    let script = r#"trap '' HUP; exec "$0" gateway --in-memory --listen 127.0.0.1:0"#;
    command.args(["-c", script, CHECKOUT]);
    let mut kept = Process::spawn(command);
    kept.line_with("listening on ");
    send(kept.pid(), Signal::HangUp);
    assert!(kept.stop().success());
}

#[test]
fn every_option_of_every_role_is_explained() {
    for role in ["demo", "api", "worker", "console", "gateway", "mail", "token", "verify", "review"] {
        let output = Process::command(&[role, "--help"]).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        for line in help.lines().filter(|line| line.trim_start().starts_with("--")) {
            // A long help puts the explanation on the next line, a short one two spaces further right.
            let own_line =
                help.split_once(line).unwrap().1.lines().nth(1).unwrap_or_default().starts_with("          ");
            assert!(own_line || line.trim_start().contains("  "), "{role}: {line}");
        }
    }
    let console = Process::command(&["console", "--help"]).output().unwrap();
    assert!(!String::from_utf8(console.stdout).unwrap().contains("batch"), "a page that writes nothing has no batches");
}

fn client() -> reqwest::Client {
    install_tls_provider();
    crate::support::client()
}
