//! The database is gone: what does each route say?
//!
//! Read off the contract, route by route: whatever says that it may be `unavailable` has to be, in the words of the catalogue,
//! and everything else works as ever. A new route is in here by being documented.

use checkout::{
    database::embedded::{Cluster, ClusterOptions, Lifetime},
    http::contract::{Auth, Body, Method, ROUTES, Route},
    stop::{Signal, send},
    wire::problem::Code,
};
use futures_util::future::join_all;
use serde_json::json;

use crate::support::{
    Answer, CHECKOUT, CUSTOMER, MACHINE, Opening, Shop, TestDatabase, WEBHOOK_SECRET, answer, fresh_key, grinder, sign,
    wait_for,
};

/// The route as somebody asks it who may: with ids that are well-formed, the body of the documentation, and a key of its own.
async fn ask(shop: &Shop, route: &Route, order: &str) -> Answer {
    let path = route.path.replace("{id}", order).replace("{refund_id}", &fresh_key());
    let path = path.replace("{operation}", "orders.create").replace("{key}", "k");
    let url = format!("{}{path}", shop.api_url);
    let request = match route.method {
        Method::Get => shop.http.get(url),
        Method::Post => shop.http.post(url),
        Method::Put => shop.http.put(url),
    };
    let body = match route.request {
        Some(Body::Json { example, .. }) => example().to_string(),
        Some(Body::Text { .. }) | None => String::new(),
    };
    let request = match route.auth {
        Auth::Nobody => request,
        Auth::Customer => request.bearer_auth(shop.token(CUSTOMER)),
        Auth::Operator => request.bearer_auth(shop.operator_token()),
        Auth::Signature => request.header("Stripe-Signature", sign(WEBHOOK_SECRET, 0, &body)),
    };
    let request = if route.is_keyed() { request.header("Idempotency-Key", fresh_key()) } else { request };
    let request = if body.is_empty() { request } else { request.header("Content-Type", "application/json").body(body) };
    answer(request).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_that_asks_the_database_says_that_it_is_gone() {
    let _shared = MACHINE.read().await;
    let options = ClusterOptions { lifetime: Lifetime::Ephemeral, program: CHECKOUT.into() };
    let cluster = Cluster::start(options).await.expect("a cluster");
    let database = TestDatabase::create_on(&cluster, "gone").await;
    let opening = Opening { gateway_in_memory: true, database: Some(database), ..Opening::default() };
    let shop = Shop::open_with(opening).await;
    let order = shop.order(&fresh_key(), &grinder("pm_card_visa")).await.expect_order();
    let given = fresh_key();
    assert_eq!(shop.refund(&order, &given, Some(1000)).await.status, 201);

    let (server, guardian) = (cluster.server_pid().expect("a server"), cluster.guardian_pid());
    // The guardian would start it again.
    assert!(send(guardian, Signal::Stop) && send(server, Signal::Quit));
    wait_for("nobody is let in any more", async || shop.pool.acquire().await.is_err()).await;

    // Its money did go back: whoever lost that answer and asks again must not be told that nothing was refunded.
    let retried = shop.refund(&order, &given, Some(1000)).await;
    let answers = join_all(ROUTES.iter().map(|route| ask(&shop, route, &order))).await;
    let mut wrong = Vec::new();
    for (route, answer) in ROUTES.iter().zip(&answers) {
        let asks_the_database = route.problems().contains(&Code::Unavailable);
        let as_it_should = if asks_the_database {
            let told = (answer.status, answer.code());
            told == (503, "unavailable".to_owned())
                && answer.json()["retry"] == json!("same_key")
                && answer.retry_after_s.is_some_and(|wait| wait > 0)
        } else {
            answer.status == route.success.status
        };
        if !as_it_should {
            wrong.push(format!("{}: {} {}", route.id, answer.status, answer.text()));
        }
        assert!(asks_the_database || route.auth != Auth::Customer, "{} keeps nothing for its customer?", route.id);
    }

    assert!(send(guardian, Signal::Continue));
    wait_for("another server runs", async || {
        cluster.server_pid().is_some_and(|pid| pid != server) && shop.pool.acquire().await.is_ok()
    })
    .await;
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    retried.expect(503, "unavailable");
    let detail = retried.json()["detail"].as_str().expect("a detail").to_owned();
    assert_eq!(detail, "This attempt moved no money. Send it again, unchanged.");
    assert_eq!((shop.count("refunds").await, shop.count("customers").await, shop.captures().await), (1, 0, 1));
    shop.close().await;
    cluster.stop().await.expect("the cluster stops");
}
