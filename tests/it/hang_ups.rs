//! Phones hang up. Hundreds of real connections are cut at random moments; nothing is lost, doubled or stuck.

use std::time::Duration;

use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::support::{CUSTOMER, Shop, fresh_key, grinder, wait_for};

const CONNECTIONS: usize = 400;

/// A small reproducible generator: the moments are random, and the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_connections_cut_at_random_moments_leave_nothing_behind() {
    // No worker: what a hung-up request claimed must be finished by the api itself, not healed later by recovery.
    let shop = Shop::open().await;
    let (host, token) = (shop.api_url.trim_start_matches("http://").to_owned(), shop.token(CUSTOMER));
    shop.fault("latency_before", u32::try_from(CONNECTIONS / 2).unwrap(), 15).await;

    let mut dice = Dice(20);
    let mut phones = Vec::new();
    let mut keys = Vec::new();
    for _ in 0..CONNECTIONS {
        let key = fresh_key();
        let body = grinder("pm_card_visa").to_string();
        let request = format!(
            "POST /v1/orders HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nIdempotency-Key: {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        // One in five hangs up while it is still sending, the others within 40 ms of having sent.
        let sent = if dice.roll(5) == 0 { dice.roll(request.len() as u64) as usize } else { request.len() };
        let (patience, reset, host) = (Duration::from_micros(dice.roll(40_000)), dice.roll(2) == 0, host.clone());
        phones.push(tokio::spawn(async move {
            let mut phone = TcpStream::connect(host).await.unwrap();
            phone.write_all(&request.as_bytes()[..sent]).await.unwrap();
            tokio::time::sleep(patience).await;
            if reset {
                phone.set_zero_linger().unwrap();
            }
        }));
        keys.push(key);
    }
    for phone in phones {
        phone.await.unwrap();
    }
    // Requests of phones that are gone may still lie unread in the api's sockets, so this is asked until it holds.
    wait_for("everything that was claimed is finished, and charged once", async || {
        let open = shop.count("idempotency_records WHERE state = 'in_flight'").await;
        let finished = shop.count("orders").await;
        open == 0 && finished > 0 && shop.captures().await == u64::try_from(finished).unwrap()
    })
    .await;

    for key in &keys {
        let mut answer = shop.order(key, &grinder("pm_card_visa")).await;
        wait_for("nobody is at it", async || {
            answer = shop.order(key, &grinder("pm_card_visa")).await;
            answer.status != 409
        })
        .await;
        answer.expect_order();
    }
    assert_eq!(shop.count("orders").await, CONNECTIONS as i64);
    assert_eq!(shop.captures().await, CONNECTIONS as u64);
    shop.close().await;
}
