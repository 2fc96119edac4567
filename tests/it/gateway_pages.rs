//! The mock gateway's lists, as a client pages through them.
//!
//! It answers: does whoever pages, in either direction, meet everything once?

use serde_json::{Value, json};

use crate::{
    gateway_receiver::{Receiver, listen},
    gateway_world::{GRINDER, World, grinder, stories},
};

stories![
    a_list_pages_through_everything_once_in_either_direction,
    a_cursor_and_its_window_hold_together,
    a_list_that_cannot_be_is_refused,
    a_list_honours_its_window_of_time,
    events_are_listed_by_type_by_group_and_by_several,
];

fn ids(page: &Value) -> Vec<String> {
    let data = page["data"].as_array().unwrap_or_else(|| panic!("no data in {page}"));
    data.iter().map(|thing| thing["id"].as_str().expect("an id").to_owned()).collect()
}

/// Every page of two, one after the other, as an official client asks for them.
async fn pages(world: &World, path: &str, cursor: &str, from: Option<&str>) -> Vec<Vec<String>> {
    let join = if path.contains('?') { '&' } else { '?' };
    let mut from = from.map(ToOwned::to_owned);
    let mut pages = Vec::new();
    loop {
        let after = from.as_ref().map(|name| format!("&{cursor}={name}")).unwrap_or_default();
        let page = world.get(&format!("{path}{join}limit=2{after}")).await;
        assert_eq!((page.status, &page.json["object"]), (200, &json!("list")), "{}", page.text);
        assert_eq!(page.json["url"], path.split('?').next().expect("a path"));
        pages.push(ids(&page.json));
        let page_of = pages.last().expect("a page");
        match page.json["has_more"].as_bool() {
            Some(false) => return pages,
            _ if cursor == "starting_after" => from = page_of.last().cloned(),
            _ => from = page_of.first().cloned(),
        }
    }
}

/// Five of everything that there are lists of, and where they are listed.
async fn five_of_everything(world: &World) -> Vec<String> {
    listen(world, &Receiver::start().await).await;
    let paid = world.pay("k0", GRINDER).await;
    for serial in 1..5 {
        world.pay(&format!("k{serial}"), GRINDER).await;
    }
    for serial in 0..5 {
        let part = [("payment_intent", &*paid.id()), ("amount", "100")];
        let refund = world.post("/v1/refunds", Some(&format!("r{serial}")), &part).await;
        assert_eq!(refund.status, 200, "{}", refund.text);
    }
    let tried = world.pay("t", &[("amount", "890"), ("currency", "eur")]).await;
    let confirm = format!("/v1/payment_intents/{}/confirm", tried.id());
    for serial in 0..5 {
        let declined = [("payment_method", "pm_card_chargeDeclined")];
        assert_eq!(world.post(&confirm, Some(&format!("c{serial}")), &declined).await.status, 402);
    }
    vec![
        "/v1/payment_intents".to_owned(),
        "/v1/refunds".to_owned(),
        format!("/v1/refunds?payment_intent={}", paid.id()),
        format!("/v1/charges?payment_intent={}", tried.id()),
        "/v1/events?type=charge.refunded".to_owned(),
        "/v1/events".to_owned(),
    ]
}

async fn a_list_pages_through_everything_once_in_either_direction(world: World) {
    for path in five_of_everything(&world).await {
        let join = if path.contains('?') { '&' } else { '?' };
        let all = ids(&world.get(&format!("{path}{join}limit=100")).await.json);
        assert!(all.len() >= 5, "{path}: {all:?}");
        assert_eq!(pages(&world, &path, "starting_after", None).await.concat(), all, "{path}");
        // Backwards from the oldest: each page newest first, the pages from old to new.
        let oldest = all.last().expect("some");
        let mut newer = pages(&world, &path, "ending_before", Some(oldest)).await;
        newer.reverse();
        assert_eq!(newer.concat(), all[..all.len() - 1], "{path}");
    }
}

async fn a_cursor_and_its_window_hold_together(world: World) {
    let mut made = Vec::new();
    for serial in 0..4 {
        made.push(world.pay(&format!("k{serial}"), GRINDER).await);
        world.control("clock", json!({ "advance_s": 100 })).await;
    }
    let (oldest, third) = (made[0].id(), &made[2].json["created"]);
    let until = |limit| format!("/v1/payment_intents?ending_before={oldest}&created[lte]={third}&limit={limit}");
    let page = world.get(&until(1)).await.json;
    assert_eq!((ids(&page), &page["has_more"]), (vec![made[1].id()], &json!(true)));
    let page = world.get(&until(2)).await.json;
    assert_eq!((ids(&page), &page["has_more"]), (vec![made[2].id(), made[1].id()], &json!(false)));
    let newest = made[3].id();
    let nothing = world.get(&format!("/v1/payment_intents?ending_before={newest}")).await.json;
    assert_eq!((ids(&nothing), &nothing["has_more"]), (vec![], &json!(false)));
}

async fn a_list_that_cannot_be_is_refused(world: World) {
    let id = world.pay("k", GRINDER).await.id();
    let both = format!("starting_after={id}&ending_before={id}");
    for wrong in [
        "limit=0",
        "limit=101",
        "starting_after=x",
        "ending_before=x",
        "ending_before=ch_00000000000000000000000000000000",
        &both,
        "created[gte]=now",
        "created[eq]=1",
        "expand[]=data.customer",
        // Ignored, it would show the payments of everybody.
        "customer=cus_1",
    ] {
        let refused = world.get(&format!("/v1/payment_intents?{wrong}")).await;
        assert_eq!((refused.status, refused.error("type")), (400, Some("invalid_request_error")), "{wrong}");
        assert!(refused.error("param").is_some(), "{wrong}: {}", refused.text);
    }
    let everybodys = world.get("/v1/charges").await;
    assert_eq!((everybodys.status, everybodys.error("param")), (400, Some("payment_intent")));
}

async fn events_are_listed_by_type_by_group_and_by_several(world: World) {
    listen(&world, &Receiver::start().await).await;
    let paid = world.pay("k1", GRINDER).await;
    world.pay("k2", &grinder(&[("payment_method", "pm_card_chargeDeclined")])).await;
    world.post("/v1/refunds", Some("k3"), &[("payment_intent", &*paid.id())]).await;
    for (asked, expected) in [
        ("", vec!["k3", "k2", "k1"]),
        ("type=payment_intent.succeeded", vec!["k1"]),
        ("type=payment_intent.*", vec!["k2", "k1"]),
        ("types[]=charge.refunded&types[]=payment_intent.succeeded", vec!["k3", "k1"]),
        ("types[0]=charge.refunded&types[1]=customer.created", vec!["k3"]),
        ("type=customer.created", vec![]),
    ] {
        let page = world.get(&format!("/v1/events?{asked}")).await.json;
        let events = page["data"].as_array().expect("events");
        let keys: Vec<_> = events.iter().map(|event| &event["request"]["idempotency_key"]).collect();
        assert_eq!(json!(keys), json!(expected), "{asked}");
    }
}

async fn a_list_honours_its_window_of_time(world: World) {
    let mut made = Vec::new();
    for serial in 0..3 {
        made.push(world.pay(&format!("k{serial}"), GRINDER).await.json);
        world.control("clock", json!({ "advance_s": 100 })).await;
    }
    let second = made[1]["created"].as_i64().expect("a time");
    for (window, expected) in [
        (format!("created[gte]={second}"), vec![&made[2], &made[1]]),
        (format!("created={second}"), vec![&made[1]]),
        (format!("created[gt]={second}"), vec![&made[2]]),
        (format!("created[lte]={second}"), vec![&made[1], &made[0]]),
        (format!("created[lt]={second}"), vec![&made[0]]),
        (format!("created[gte]={second}&created[lte]={second}"), vec![&made[1]]),
        (format!("created[gt]={second}&created[lt]={second}"), vec![]),
    ] {
        let page = world.get(&format!("/v1/payment_intents?{window}")).await.json;
        assert_eq!(page["data"], json!(expected), "{window}");
    }
}
