//! What every answer to a refund means, as it arrives over a real connection.

use serde_json::{Value, json};
use tokio::net::TcpListener;
use wiremock::{
    Mock, MockServer, ResponseTemplate,
    matchers::{any, body_string, header, method, path, query_param, query_param_is_missing},
};

use super::*;
use crate::{
    config::GatewayClientArgs,
    money::{Currency, Money},
};

const PATIENCE: Duration = Duration::from_secs(5);

fn client(url: &str) -> GatewayClient {
    GatewayClient::new(&GatewayClientArgs { gateway_url: url.to_owned(), gateway_key: "sk_test_x".to_owned() }).unwrap()
}

fn request() -> RefundRequest {
    let amount = Money::new(1000, Currency::Eur).unwrap();
    RefundRequest { key: "rfd_1".to_owned(), gateway_id: "pi_1".to_owned(), amount }
}

fn answer(status: u16, body: &Value) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(body)
}

fn refund(status: &str, amount: i64) -> ResponseTemplate {
    answer(200, &json!({"id": "re_1", "status": status, "amount": amount, "currency": "eur"}))
}

fn error(kind: &str, code: &str, message: &str) -> Value {
    json!({"error": {"type": kind, "code": code, "message": message}})
}

async fn after(answer: ResponseTemplate) -> Outcome {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(answer).expect(1).mount(&server).await;
    client(&server.uri()).refund(&request(), PATIENCE).await
}

fn unknown(situation: Situation) -> Outcome {
    let frozen = matches!(situation, Situation::ServerErrorRecorded | Situation::OtherAmountGivenBack);
    Outcome::Unknown { why: situation.sentence().to_owned(), frozen }
}

fn misconfigured(situation: Situation) -> Outcome {
    Outcome::Misconfigured { why: situation.sentence().to_owned() }
}

fn not_sent(situation: Situation, retry_after: Option<Duration>) -> Outcome {
    Outcome::NotSent { why: situation.sentence().to_owned(), retry_after }
}

#[tokio::test]
async fn every_answer_means_what_a_charge_in_its_place_would_mean() {
    let refused = |why: &str| refused("refused", why.to_owned());
    let already = error("invalid_request_error", "charge_already_refunded", "has already been refunded.");
    let too_much =
        json!({"error": {"type": "invalid_request_error", "message": "Refund amount is greater", "param": "amount"}});
    let recorded = answer(500, &error("api_error", "", "")).insert_header("stripe-should-retry", "false");
    let table = [
        (refund("succeeded", 1000), Outcome::Approved { gateway_id: "re_1".to_owned() }),
        (refund("pending", 1000), Outcome::Pending { gateway_id: "re_1".to_owned() }),
        (refund("failed", 1000), refused("the gateway's refund failed")),
        (refund("requires_action", 1000), unknown(Situation::StillProcessing)),
        (refund("succeeded", 999), unknown(Situation::OtherAmountGivenBack)),
        (refund("pending", 999), unknown(Situation::OtherAmountGivenBack)),
        (refund("failed", 999), refused("the gateway's refund failed")),
        (refund("canceled", 1000), refused("the gateway's refund failed")),
        (answer(200, &json!({"oops": 1})), unknown(Situation::AnswerUnreadable)),
        (
            answer(400, &already),
            super::refused(ALREADY_REFUNDED, "The gateway says that nothing is left to give back.".to_owned()),
        ),
        (answer(400, &too_much), refused("Refund amount is greater")),
        (answer(404, &error("invalid_request_error", "resource_missing", "No such charge")), refused("No such charge")),
        (answer(400, &error("idempotency_error", "", "")), unknown(Situation::KeyReused)),
        (answer(409, &error("invalid_request_error", "idempotency_key_in_use", "")), unknown(Situation::KeyInUse)),
        (answer(500, &error("api_error", "", "")), unknown(Situation::ServerError)),
        (recorded, unknown(Situation::ServerErrorRecorded)),
        (ResponseTemplate::new(503), unknown(Situation::ServerError)),
        // A 4xx without the gateway's envelope comes from somebody in between.
        (ResponseTemplate::new(400).set_body_string("no"), unknown(Situation::AnswerUnreadable)),
        (answer(429, &error("invalid_request_error", "lock_timeout", "")), not_sent(Situation::RateLimited, None)),
        (
            answer(429, &error("invalid_request_error", "lock_timeout", "")).insert_header("retry-after", "2"),
            not_sent(Situation::RateLimited, Some(Duration::from_secs(2))),
        ),
        (answer(401, &error("invalid_request_error", "", "")), misconfigured(Situation::Unauthorised)),
        (refund("succeeded", 1000).set_delay(Duration::from_secs(20)), unknown(Situation::TimedOut)),
    ];
    for (template, expected) in table {
        assert_eq!(after(template).await, expected);
    }
}

#[tokio::test]
async fn only_a_connection_that_never_came_to_be_proves_that_nothing_was_sent() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    let accepted = tokio::spawn(async move { drop(closed.accept().await) });
    assert_eq!(client(&url).refund(&request(), PATIENCE).await, unknown(Situation::ConnectionLost));
    accepted.await.unwrap();
    assert_eq!(client(&url).refund(&request(), PATIENCE).await, not_sent(Situation::NeverConnected, None));
}

#[tokio::test]
async fn a_refund_is_the_same_bytes_every_time_and_is_sent_once() {
    let server = MockServer::start().await;
    Mock::given(method("POST"))
        .and(path("/v1/refunds"))
        .and(header("idempotency-key", "rfd_1"))
        .and(header("authorization", "Bearer sk_test_x"))
        .and(body_string("payment_intent=pi_1&amount=1000&metadata%5Bcheckout_key%5D=rfd_1"))
        .respond_with(answer(503, &json!({})))
        .expect(2)
        .mount(&server)
        .await;
    let client = client(&server.uri());
    for _ in 0..2 {
        assert_eq!(client.refund(&request(), PATIENCE).await, unknown(Situation::ServerError));
    }
}

/// The gateway's list of refunds of `pi_1`, in pages.
async fn listing(pages: Vec<Value>) -> MockServer {
    let server = MockServer::start().await;
    let last = pages.len() - 1;
    let mut after: Option<String> = None;
    for (place, page) in pages.into_iter().enumerate() {
        let next = page.as_array().and_then(|refunds| refunds.last()).and_then(|refund| refund["id"].as_str());
        let next = next.map(str::to_owned);
        let mock = Mock::given(method("GET")).and(path("/v1/refunds")).and(query_param("payment_intent", "pi_1"));
        let mock = match &after {
            Some(id) => mock.and(query_param("starting_after", id.as_str())),
            None => mock.and(query_param_is_missing("starting_after")),
        };
        let list = json!({"object": "list", "data": page, "has_more": place < last, "url": "/v1/refunds"});
        mock.respond_with(answer(200, &list)).mount(&server).await;
        after = next;
    }
    server
}

fn of_key(id: &str, key: &str, status: &str, amount: i64) -> Value {
    json!({"id": id, "status": status, "amount": amount, "currency": "eur", "metadata": {"checkout_key": key}})
}

#[tokio::test]
async fn a_refund_is_found_by_our_key_on_whatever_page_and_one_that_went_through_outweighs_one_that_failed() {
    let found = |id: &str| Lookup::Found(Outcome::Approved { gateway_id: id.to_owned() });
    let (other, ours) = (of_key("re_1", "rfd_0", "succeeded", 1000), of_key("re_2", "rfd_1", "succeeded", 1000));
    let failed = of_key("re_3", "rfd_1", "failed", 1000);
    let noted_by_nobody = json!({"id": "re_4", "status": "succeeded", "amount": 1000, "currency": "eur"});
    for (pages, expected) in [
        (vec![json!([])], Lookup::NothingFound),
        (vec![json!([&other, &noted_by_nobody])], Lookup::NothingFound),
        (vec![json!([&other, &ours])], found("re_2")),
        (vec![json!([&other]), json!([&noted_by_nobody]), json!([&ours])], found("re_2")),
        (vec![json!([&failed]), json!([&ours])], found("re_2")),
    ] {
        let server = listing(pages.clone()).await;
        assert_eq!(client(&server.uri()).lookup_refund(&request(), 0, PATIENCE).await, expected, "{pages:?}");
    }
    // Far more than the ten pages that anybody would call enough: neither the one that is there nor that there is none is missed.
    let many = || (0..25).map(|n| json!([of_key(&format!("re_0{n}"), "rfd_0", "succeeded", 1)]));
    for (last, expected) in [(&ours, found("re_2")), (&other, Lookup::NothingFound)] {
        let server = listing(many().chain([json!([last])]).collect()).await;
        assert_eq!(client(&server.uri()).lookup_refund(&request(), 0, PATIENCE).await, expected);
    }
    let server = listing(vec![json!([&failed])]).await;
    let only_failed = client(&server.uri()).lookup_refund(&request(), 0, PATIENCE).await;
    assert!(matches!(only_failed, Lookup::Found(Outcome::Declined { .. })), "{only_failed:?}");
    let server = listing(vec![json!([of_key("re_2", "rfd_1", "succeeded", 999)])]).await;
    let other_amount = client(&server.uri()).lookup_refund(&request(), 0, PATIENCE).await;
    assert_eq!(other_amount, Lookup::Found(unknown(Situation::OtherAmountGivenBack)));
    // What was asked for outweighs another amount, and another amount that went back one that failed.
    let (other_amount, failed) = (of_key("re_5", "rfd_1", "succeeded", 999), of_key("re_6", "rfd_1", "failed", 1000));
    for (page, expected) in [
        (json!([&other_amount, &ours]), found("re_2")),
        (json!([&other_amount, &failed]), Lookup::Found(unknown(Situation::OtherAmountGivenBack))),
    ] {
        let server = listing(vec![page]).await;
        assert_eq!(client(&server.uri()).lookup_refund(&request(), 0, PATIENCE).await, expected);
    }
}

#[tokio::test]
async fn one_refund_is_asked_for_by_name_and_only_the_gateway_can_say_that_it_is_not_there() {
    let shown = json!({"id": "re_1", "status": "canceled", "amount": 7, "currency": "usd", "created": 5,
        "payment_intent": "pi_1", "metadata": {"checkout_key": "rfd_1"}});
    let missing = error("invalid_request_error", "resource_missing", "No such refund");
    let expected = ShownRefund {
        gateway_id: "re_1".to_owned(),
        status: RefundStatus::Failed,
        amount: 7,
        currency: "usd".to_owned(),
        payment_intent: Some("pi_1".to_owned()),
        checkout_key: Some("rfd_1".to_owned()),
        created_s: 5,
    };
    let retrieve = async |template: ResponseTemplate, id: &str| {
        let server = MockServer::start().await;
        Mock::given(method("GET")).and(path("/v1/refunds/re_1")).respond_with(template).mount(&server).await;
        client(&server.uri()).retrieve_refund(id, PATIENCE).await
    };
    assert_eq!(retrieve(answer(200, &shown), "re_1").await, RefundFound::Shown(expected));
    assert_eq!(retrieve(answer(404, &missing), "re_1").await, RefundFound::NotThere);
    assert_eq!(retrieve(answer(200, &shown), "../re_1").await, RefundFound::NotThere);
    for nothing in [ResponseTemplate::new(404), answer(500, &missing), answer(200, &json!({"id": "re_1"}))] {
        assert!(matches!(retrieve(nothing, "re_1").await, RefundFound::Unreachable { .. }));
    }
}

#[tokio::test]
async fn a_list_that_cannot_be_read_proves_nothing() {
    for template in [
        answer(500, &json!({})),
        answer(200, &json!({"data": 7})),
        answer(401, &error("invalid_request_error", "", "")),
        answer(200, &json!({"data": [], "has_more": false})).set_delay(Duration::from_secs(20)),
    ] {
        let server = MockServer::start().await;
        Mock::given(any()).respond_with(template).mount(&server).await;
        let found = client(&server.uri()).lookup_refund(&request(), 0, Duration::from_millis(300)).await;
        assert!(matches!(found, Lookup::Unreachable { .. }), "{found:?}");
    }
}

/// Not to be among those that were shown proves nothing while there are more; and a page that comes again would come for ever.
#[tokio::test]
async fn a_list_that_announces_more_and_does_not_show_it_proves_nothing() {
    for (data, asked) in [(json!([]), 1), (json!([of_key("re_1", "rfd_0", "succeeded", 1)]), 2)] {
        let server = MockServer::start().await;
        let list = answer(200, &json!({"data": data, "has_more": true}));
        Mock::given(any()).respond_with(list).expect(asked).mount(&server).await;
        let found = client(&server.uri()).lookup_refund(&request(), 0, PATIENCE).await;
        assert!(matches!(found, Lookup::Unreachable { .. }), "{found:?}");
    }
}
