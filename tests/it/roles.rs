//! A role starts on a free port, stops when it is asked to, and does not outlive its parent.

use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::support::{Process, Shop, fresh_key, install_tls_provider, is_running, wait_for, wait_until};

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

fn client() -> reqwest::Client {
    install_tls_provider();
    reqwest::Client::builder().no_proxy().build().unwrap()
}
