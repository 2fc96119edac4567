//! A role starts on a free port, stops when it is asked to, and does not outlive its parent.

use crate::support::{Process, install_tls_provider, is_running, wait_until};

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

fn client() -> reqwest::Client {
    install_tls_provider();
    reqwest::Client::builder().no_proxy().build().unwrap()
}
