//! The checkout's client of the mail service, against the mock.
//!
//! It answers: does a sender that lost an answer end up with one mail, and can it tell its own mail's fault from everybody's?

use std::time::Duration;

use checkout::{
    config::MailClientArgs,
    ids::EventId,
    receipts::{Found, Mail, MailClient, Sending, of_order_created},
};
use serde_json::json;

use crate::{
    mail_world::World,
    support::{Opening, Shop},
};

const PATIENCE: Duration = Duration::from_secs(20);

fn client(url: &str) -> MailClient {
    MailClient::new(&MailClientArgs {
        mail_url: url.to_owned(),
        mail_key: "re_checkout".to_owned(),
        mail_timeout_ms: 5_000,
    })
    .expect("a client")
}

fn order_mail(customer: i64) -> Mail {
    let payload = json!({
        "order_id": EventId::mint(), "customer_id": customer, "charge_id": EventId::mint(), "gateway_id": "pi_1",
        "lines": [{"sku": "grinder", "quantity": 1, "unit_price": 4299}], "total": 4299, "currency": "eur",
    });
    let letter = of_order_created(EventId::mint(), &payload.to_string()).expect("a receipt");
    let recipient = letter.recipient(None);
    letter.to(recipient)
}

#[tokio::test]
async fn the_client_sends_once_and_finds_what_it_does_not_know() {
    for world in World::of_each_kind().await {
        let (client, mail) = (client(&world.url), order_mail(42));
        assert_eq!(client.find(mail.key, PATIENCE).await, Found::NotDelivered);
        for lost in ["unavailable_before", "drop_before", "drop_after", "http_500_after"] {
            world.fault(json!({"name": lost})).await;
            let sending = client.send(&mail, PATIENCE).await;
            assert!(matches!(sending, Sending::Unavailable { .. }), "{lost}: {sending:?}");
        }
        let Sending::Sent { mail_id } = client.send(&mail, PATIENCE).await else { panic!("not sent") };
        assert_eq!(client.find(mail.key, PATIENCE).await, Found::Delivered { mail_id: mail_id.clone() });
        // Past the key's day the service would send it again; the record still knows.
        world.control("clock", json!({"advance_s": 90_000})).await;
        assert_eq!(client.find(mail.key, PATIENCE).await, Found::Delivered { mail_id });
        assert_eq!(world.delivered().await, [mail.key.to_string()]);
        assert_eq!(world.get("/_mock/mails").await.json["mails"][0]["tags"]["event_id"], mail.key.to_string());

        let other = Mail { subject: "Another".to_owned(), ..mail };
        world.control("clock", json!({"advance_s": 0})).await;
        let first = client.send(&other, PATIENCE).await;
        assert!(matches!(first, Sending::Sent { .. }), "a new day, a new mail: {first:?}");
        let reused = client.send(&Mail { subject: "A third".to_owned(), ..other }, PATIENCE).await;
        assert!(matches!(reused, Sending::Refused { .. }), "{reused:?}");
    }
}

#[tokio::test]
async fn the_client_tells_a_poison_mail_from_everybodys_trouble() {
    let world = World::in_memory().await;
    let (client, mail) = (client(&world.url), order_mail(13));
    world.fault(json!({"name": "reject", "to": mail.to})).await;
    for _ in 0..2 {
        let refused = client.send(&mail, PATIENCE).await;
        assert!(matches!(&refused, Sending::Refused { why } if why.contains("validation_error")), "{refused:?}");
    }
    assert!(matches!(client.send(&order_mail(14), PATIENCE).await, Sending::Sent { .. }));
    world.fault(json!({"name": "hang_after"})).await;
    let hung = order_mail(15);
    let given_up = client.send(&hung, Duration::from_millis(200)).await;
    assert!(matches!(given_up, Sending::Unavailable { .. }), "{given_up:?}");

    let wrong_key = MailClientArgs { mail_url: world.url.clone(), mail_key: "sk_x".to_owned(), mail_timeout_ms: 5_000 };
    let stranger = MailClient::new(&wrong_key).expect("a client");
    assert!(matches!(stranger.send(&hung, PATIENCE).await, Sending::Unavailable { .. }));
    assert!(matches!(stranger.find(hung.key, PATIENCE).await, Found::Unavailable { .. }));
    world.service.stop().await;
    assert!(matches!(client.send(&hung, PATIENCE).await, Sending::Unavailable { .. }));
    assert!(matches!(client.find(hung.key, PATIENCE).await, Found::Unavailable { .. }));
}

/// The knobs that other tests stand on.
#[tokio::test]
async fn a_shop_has_a_mail_service_that_can_be_killed_and_told_to_fail() {
    let mut shop = Shop::open_with(Opening::default()).await;
    let (client, mail) = (client(&shop.mail_url), order_mail(42));
    shop.mail_fault(&json!({"name": "drop_after", "count": 1})).await;
    assert!(matches!(client.send(&mail, PATIENCE).await, Sending::Unavailable { .. }));
    assert_eq!(shop.mail_stats().await["faults"]["drop_after"], 1);
    shop.mail.kill();
    shop.restart_mail();
    assert!(matches!(client.send(&mail, PATIENCE).await, Sending::Sent { .. }));
    let mails = shop.mails().await;
    assert_eq!((mails.len(), &mails[0]["idempotency_key"]), (1, &json!(mail.key)));
    shop.close().await;
}
