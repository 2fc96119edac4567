//! The mock gateway's refunds, as a client meets them.
//!
//! It answers: can a customer get back more than was taken, and does a charge say what happened to it since?

use checkout::mock_gateway::{Books, Settings};
use serde_json::json;
use sqlx::Connection;

use crate::{
    gateway_world::{Answer, GRINDER, Pairs, World, grinder, stories},
    support::{Opening, Shop, TestDatabase, fresh_key, grinder as order_of_a_grinder, wait_for},
};

const VISA: &str = "pm_card_visa";

stories![
    a_refund_under_one_key_happens_once,
    partial_refunds_go_up_to_what_was_taken,
    only_what_was_taken_can_be_given_back,
    a_charge_is_shown_as_a_whole_when_asked,
    refunds_are_listed_once_page_by_page,
    a_refund_meets_faults_like_every_post,
    concurrent_refunds_never_exceed_the_capture,
    a_refund_ends_as_it_is_told_and_one_that_fails_gives_nothing_back,
    the_cards_whose_refunds_are_not_over_at_once_end_them_by_themselves,
];

async fn refund(world: &World, key: &str, form: Pairs<'_>) -> Answer {
    world.post("/v1/refunds", Some(key), form).await
}

async fn a_refund_under_one_key_happens_once(world: World) {
    let paid = world.pay("k1", GRINDER).await;
    let form = [("payment_intent", &*paid.id()), ("metadata[why]", "broken"), ("reason", "requested_by_customer")];
    let first = refund(&world, "r1", &form).await;
    assert_eq!(first.status, 200, "{}", first.text);
    for (field, value) in [
        ("object", json!("refund")),
        ("amount", json!(4299)),
        ("charge", paid.json["latest_charge"].clone()),
        ("currency", json!("eur")),
        ("metadata", json!({ "why": "broken" })),
        ("payment_intent", json!(paid.id())),
        ("reason", json!("requested_by_customer")),
        ("status", json!("succeeded")),
    ] {
        assert_eq!(first.json[field], value, "{field}");
    }
    assert!(first.id().starts_with("re_"));
    let second = refund(&world, "r1", &form).await;
    assert_eq!((second.status, &second.text), (200, &first.text));
    assert_eq!(second.header("idempotent-replayed"), Some("true"));
    assert_eq!(second.header("original-request"), first.header("request-id"));
    assert_eq!(world.get(&format!("/v1/refunds/{}", first.id())).await.text, first.text);

    let again = refund(&world, "r2", &form).await;
    assert_eq!((again.status, again.error("code")), (400, Some("charge_already_refunded")));
    let replayed = refund(&world, "r2", &form).await;
    assert_eq!((&replayed.text, replayed.header("idempotent-replayed")), (&again.text, Some("true")));
    // Keys belong to the account: the key of the charge is taken.
    let elsewhere = refund(&world, "k1", &form).await;
    assert_eq!((elsewhere.status, elsewhere.error("type")), (400, Some("idempotency_error")));

    let ledger = world.ledger().await;
    assert_eq!((&ledger["count"], &ledger["captures"][0]["amount_refunded"]), (&json!(1), &json!(4299)));
    let by_reference = world.get("/_mock/ledger?reference=order-1").await;
    assert_eq!(by_reference.json["captures"][0]["amount_refunded"], 4299);
}

/// What the control plane is asked, whatever it answers.
async fn ended(world: &World, id: &str, status: &str) -> Answer {
    world.control("refunds", json!({"id": id, "status": status})).await
}

async fn amount_refunded(world: &World) -> i64 {
    world.ledger().await["captures"][0]["amount_refunded"].as_i64().expect("an amount")
}

async fn a_refund_ends_as_it_is_told_and_one_that_fails_gives_nothing_back(world: World) {
    let paid = world.pay("k1", GRINDER).await;
    let intent = paid.id();
    let first = refund(&world, "r1", &[("payment_intent", &intent), ("amount", "1000")]).await;
    refund(&world, "r2", &[("payment_intent", &intent), ("amount", "299")]).await;
    for status in ["pending", "canceled", ""] {
        assert_eq!(ended(&world, &first.id(), status).await.status, 400, "{status}");
    }
    assert_eq!(ended(&world, "re_0", "failed").await.status, 404);
    assert_eq!(amount_refunded(&world).await, 1299);
    // Twice is once.
    for _ in 0..2 {
        let failed = ended(&world, &first.id(), "failed").await;
        let said = (&failed.json["status"], &failed.json["failure_reason"]);
        assert_eq!(said, (&json!("failed"), &json!("unknown")));
        assert_eq!(amount_refunded(&world).await, 299);
    }
    assert_eq!(ended(&world, &first.id(), "succeeded").await.status, 400, "what has failed stays so");
    assert_eq!(world.get(&format!("/v1/refunds/{}", first.id())).await.json["status"], "failed");
    let listed = world.get(&format!("/v1/refunds?payment_intent={intent}")).await.json;
    assert_eq!((&listed["data"][0]["status"], &listed["data"][1]["status"]), (&json!("succeeded"), &json!("failed")));
    // Its recorded answer stays what it was, and what it gave back can be given back anew.
    assert_eq!(refund(&world, "r1", &[("payment_intent", &intent), ("amount", "1000")]).await.text, first.text);
    assert_eq!(refund(&world, "r3", &[("payment_intent", &intent)]).await.json["amount"], 4000);
}

async fn the_cards_whose_refunds_are_not_over_at_once_end_them_by_themselves(world: World) {
    world.control("settings", json!({ "refund_ends_ms": 1 })).await;
    for (card, begins, ends, back) in
        [("pm_card_pendingRefund", "pending", "succeeded", 4299), ("pm_card_refundFail", "succeeded", "failed", 0)]
    {
        let paid = world
            .pay(card, &[("amount", "4299"), ("currency", "eur"), ("payment_method", card), ("confirm", "true")])
            .await;
        let made = refund(&world, &format!("r-{card}"), &[("payment_intent", &paid.id())]).await;
        assert_eq!(made.json["status"], begins, "{card}");
        let path = format!("/v1/refunds/{}", made.id());
        wait_for("it ends", async || world.get(&path).await.json["status"] == ends).await;
        let charge = world.get(&format!("/v1/charges/{}", made.json["charge"].as_str().expect("a charge"))).await;
        assert_eq!(charge.json["amount_refunded"], back, "{card}");
    }
}

async fn partial_refunds_go_up_to_what_was_taken(world: World) {
    let paid = world.pay("k1", GRINDER).await;
    let (intent, charge) = (paid.id(), paid.json["latest_charge"].as_str().expect("a charge").to_owned());
    let too_much = refund(&world, "r0", &[("payment_intent", &intent), ("amount", "9390")]).await;
    let said = (too_much.status, too_much.error("message"), too_much.error("param"));
    assert_eq!(said, (400, Some("Refund amount (€93.90) is greater than charge amount (€42.99)"), Some("amount")));
    let first = refund(&world, "r1", &[("payment_intent", &intent), ("amount", "1000")]).await;
    assert_eq!((first.status, &first.json["amount"]), (200, &json!(1000)));
    let shown = world.get(&format!("/v1/charges/{charge}")).await.json;
    assert_eq!((&shown["amount_refunded"], &shown["refunded"]), (&json!(1000), &json!(false)));
    let too_much = refund(&world, "r2", &[("charge", &charge), ("amount", "3300")]).await;
    let message = "Refund amount (€33.00) is greater than unrefunded amount on charge (€32.99)";
    assert_eq!((too_much.status, too_much.error("message")), (400, Some(message)));
    // Without an amount: all that is left.
    let rest = refund(&world, "r3", &[("charge", &charge)]).await;
    assert_eq!((rest.status, &rest.json["amount"]), (200, &json!(3299)));
    let shown = world.get(&format!("/v1/charges/{charge}")).await.json;
    assert_eq!((&shown["amount_refunded"], &shown["refunded"]), (&json!(4299), &json!(true)));
    assert_eq!((&shown["amount_captured"], &shown["status"]), (&json!(4299), &json!("succeeded")));
    let more = refund(&world, "r4", &[("charge", &charge), ("amount", "1")]).await;
    assert_eq!((more.status, more.error("code")), (400, Some("charge_already_refunded")));
    assert_eq!(world.ledger().await["captures"][0]["amount_refunded"], 4299);
}

async fn only_what_was_taken_can_be_given_back(world: World) {
    let declined = world.pay("k1", &grinder(&[("payment_method", "pm_card_chargeDeclined")])).await;
    let intent = declined.json["error"]["payment_intent"]["id"].as_str().expect("an id").to_owned();
    let refused = refund(&world, "r1", &[("payment_intent", &intent)]).await;
    assert_eq!((refused.status, refused.error("code")), (400, Some("charge_not_refundable")), "{}", refused.text);
    let waiting = world.pay("k2", &grinder(&[("confirm", "false")])).await;
    let refused = refund(&world, "r2", &[("payment_intent", &waiting.id())]).await;
    assert_eq!((refused.status, refused.error("type")), (400, Some("invalid_request_error")));
    let nobody = "ch_00000000000000000000000000000000";
    for (name, value) in [("charge", nobody), ("charge", "x"), ("payment_intent", "pi_x")] {
        let missing = refund(&world, "r3", &[(name, value)]).await;
        assert_eq!((missing.status, missing.error("code")), (404, Some("resource_missing")), "{name} {value}");
    }
    let paid = world.pay("k3", GRINDER).await;
    let (intent, charge) = (paid.id(), paid.json["latest_charge"].as_str().expect("a charge").to_owned());
    let wrong: [Pairs<'_>; 5] = [
        &[],
        &[("payment_intent", &intent), ("charge", &charge)],
        &[("payment_intent", &intent), ("amount", "0")],
        &[("payment_intent", &intent), ("reason", "boredom")],
        &[("payment_intent", &intent), ("speed", "fast")],
    ];
    for form in wrong {
        let refused = refund(&world, "r4", form).await;
        assert_eq!(refused.status, 400, "{form:?}: {}", refused.text);
    }
    // None of these burned its key.
    let done = refund(&world, "r4", &[("payment_intent", &intent)]).await;
    assert_eq!((done.status, done.header("idempotent-replayed")), (200, None));
    let wrong_method = world.client.delete(world.url("/v1/refunds")).bearer_auth("sk_test_1").send().await;
    assert_eq!(wrong_method.expect("an answer").status(), 405);
}

async fn a_charge_is_shown_as_a_whole_when_asked(world: World) {
    let paid = world.pay("k1", GRINDER).await;
    let id = paid.id();
    assert_eq!(refund(&world, "r1", &[("payment_intent", &id), ("amount", "299")]).await.status, 200);
    let charge_id = paid.json["latest_charge"].as_str().expect("a charge");
    let charge = world.get(&format!("/v1/charges/{charge_id}")).await.json;
    assert_eq!(charge["amount_refunded"], 299);
    let mut whole = paid.json.clone();
    whole["latest_charge"] = charge;
    let intent = format!("/v1/payment_intents/{id}");
    assert_eq!(world.get(&intent).await.json, paid.json);
    assert_eq!(world.get(&format!("{intent}?expand[]=latest_charge")).await.json, whole);
    // As some clients number what they ask for.
    assert_eq!(world.get(&format!("{intent}?expand%5B0%5D=latest_charge")).await.json, whole);
    let listed = world.get("/v1/payment_intents?limit=1&expand[]=data.latest_charge").await;
    assert_eq!(listed.json["data"], json!([whole]));
    let query = "query=metadata%5B%27order_id%27%5D%3A%27order-1%27";
    let found = world.get(&format!("/v1/payment_intents/search?{query}&expand[]=data.latest_charge")).await;
    assert_eq!(found.json["data"], json!([whole]));
    let found = world.get(&format!("/v1/payment_intents/search?{query}")).await;
    assert_eq!(found.json["data"], json!([paid.json]));
    // What has no charge shows none.
    let waiting = world.pay("k2", &grinder(&[("confirm", "false")])).await;
    let shown = world.get(&format!("/v1/payment_intents/{}?expand[]=latest_charge", waiting.id())).await;
    assert_eq!(shown.json["latest_charge"], json!(null));
}

async fn refunds_are_listed_once_page_by_page(world: World) {
    let (one, other) = (world.pay("k1", GRINDER).await.id(), world.pay("k2", GRINDER).await.id());
    let mut made = Vec::new();
    for serial in 0..7 {
        let intent = if serial == 3 { &other } else { &one };
        let answer = refund(&world, &format!("r{serial}"), &[("payment_intent", intent), ("amount", "10")]).await;
        made.push(answer.id());
    }
    made.reverse();
    let page_through = async |filter: &str| {
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let page = world.get(&format!("/v1/refunds?limit=3{filter}{after}")).await;
            assert_eq!((page.status, &page.json["url"]), (200, &json!("/v1/refunds")), "{}", page.text);
            let data = page.json["data"].as_array().expect("data");
            seen.extend(data.iter().map(|refund| refund["id"].as_str().expect("an id").to_owned()));
            if page.json["has_more"] == false {
                return seen;
            }
            after = format!("&starting_after={}", seen.last().expect("a full page"));
        }
    };
    assert_eq!(page_through("").await, made);
    let theirs = made.remove(3);
    assert_eq!(page_through(&format!("&payment_intent={one}")).await, made);
    assert_eq!(page_through(&format!("&payment_intent={other}")).await, [theirs]);
    let wrong = world.get("/v1/refunds?starting_after=pi_1").await;
    assert_eq!((wrong.status, wrong.error("code")), (400, Some("resource_missing")));
}

async fn a_refund_meets_faults_like_every_post(world: World) {
    let paid = world.pay("k1", GRINDER).await.id();
    let form = [("payment_intent", &*paid), ("amount", "100")];
    world.fault("drop_after", 1).await;
    assert!(world.send("/v1/refunds", Some("r1"), &form).await.is_err());
    let retried = refund(&world, "r1", &form).await;
    assert_eq!((retried.status, retried.header("idempotent-replayed")), (200, Some("true")));
    world.fault("http_503_before", 1).await;
    assert_eq!(refund(&world, "r2", &form).await.status, 503);
    // Given back, although 500, and for ever so.
    world.fault("http_500_after", 1).await;
    for _ in 0..2 {
        let failed = refund(&world, "r2", &form).await;
        assert_eq!((failed.status, failed.header("stripe-should-retry")), (500, Some("false")));
    }
    let asked = [("payment_intent", &*paid), ("amount", "100"), ("metadata[mock_fault]", "http_500_before")];
    assert_eq!(refund(&world, "r3", &asked).await.status, 500);
    assert_eq!(world.ledger().await["captures"][0]["amount_refunded"], 200);
}

async fn concurrent_refunds_never_exceed_the_capture(world: World) {
    let intent = world.pay("k1", GRINDER).await.id();
    let mut refunds = tokio::task::JoinSet::new();
    for serial in 0..24 {
        let (client, url) = (world.client.clone(), world.url("/v1/refunds"));
        let form = [("payment_intent", intent.clone()), ("amount", "1000".to_owned())];
        refunds.spawn(async move {
            // A charge that is being changed refuses, unrecorded, until it is not.
            for _ in 0..1000 {
                let request = client.post(&url).bearer_auth("sk_test_1").form(&form);
                let answer = request.header("Idempotency-Key", format!("r{serial}")).send().await.expect("an answer");
                match answer.status().as_u16() {
                    429 => assert_eq!(answer.headers()["stripe-should-retry"], "true"),
                    status => return status,
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            panic!("it is being changed for ever");
        });
    }
    let statuses = refunds.join_all().await;
    let count = |wanted| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!((count(200), count(400)), (4, 20), "{statuses:?}");
    assert_eq!(world.ledger().await["captures"][0]["amount_refunded"], 4000);
    let listed = world.get(&format!("/v1/refunds?payment_intent={intent}")).await;
    assert_eq!(listed.json["data"].as_array().map(Vec::len), Some(4));
}

/// Whatever the code believes.
#[tokio::test]
async fn the_books_themselves_refuse_to_give_back_more_than_was_taken() {
    let database = TestDatabase::create().await;
    let books = Books::open(&database.url).await.expect("the books open");
    let world = World::new(books, Settings::default()).await;
    world.pay("k1", GRINDER).await;
    world.pay("k2", &grinder(&[("payment_method", "pm_card_chargeDeclined")])).await;
    let mut connection = sqlx::PgConnection::connect(&database.url).await.expect("connect");
    for (amount, whose) in [(4300, "IS NULL"), (-1, "IS NULL"), (1, "IS NOT NULL")] {
        let update = format!("UPDATE mock_gateway.charges SET amount_refunded = {amount} WHERE decline_code {whose}");
        let refused = sqlx::query(sqlx::AssertSqlSafe(update)).execute(&mut connection).await;
        let refused = refused.expect_err("refused").to_string();
        assert!(refused.contains("charges_refunded_within_capture"), "{refused}");
    }
}

/// The customer has the money back: nobody may call that paid, however the person at the desk remembers it.
#[tokio::test]
async fn a_review_does_not_take_a_refunded_intent_for_a_charge() {
    let mut shop = Shop::open_with(Opening::default()).await;
    let key = fresh_key();
    // Charged, unheard of, and hidden from search for longer than anything may be sent.
    shop.set_gateway(&json!({"search_lag_ms": 1_000_000_000_u64})).await;
    shop.fault("drop_after", 2, 0).await;
    shop.order(&key, &order_of_a_grinder(VISA)).await.expect(504, "outcome_unknown");
    shop.reconcile_nothing().await;
    shop.set_clock("24 hours 1 minute").await;
    shop.start_worker();
    wait_for("a person is asked", async || shop.state_of(&key).await == "needs_review").await;
    let capture = shop.ledger().await["captures"][0].clone();
    let (intent, gateway_key) =
        (capture["payment_intent"].as_str().unwrap(), capture["idempotency_key"].as_str().unwrap());
    let refund = [("payment_intent", intent)];
    let url = format!("{}/v1/refunds", shop.gateway_url);
    let refunded = shop.http.post(url).bearer_auth("sk_test_checkout").form(&refund).send().await.unwrap();
    assert!(refunded.status().is_success());
    let said = shop.review(&[gateway_key, "--charged", intent, "--by", "Ada"]).unwrap_err();
    assert!(said.contains("did not take"), "{said}");
    assert_eq!((shop.state_of(&key).await.as_str(), shop.count("orders").await), ("needs_review", 0));
    shop.close().await;
}
