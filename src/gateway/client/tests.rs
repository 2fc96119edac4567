//! Every row of the classification table, as it arrives over a real connection: answers from wiremock, and a raw socket for
//! what an HTTP server will not do.

use std::collections::HashSet;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};
use wiremock::{
    Mock, MockServer, ResponseTemplate,
    matchers::{any, body_string, header, method, path, query_param},
};

use super::*;
use crate::{
    gateway::{
        Listed, ListedIntent,
        classify::{Meaning, Situation},
    },
    money::{Currency, Money},
};

const PATIENCE: Duration = Duration::from_secs(5);
/// When the purchase that is looked up began.
const SINCE_S: i64 = 1_700_000_000;

fn client(url: &str) -> GatewayClient {
    GatewayClient::new(&GatewayClientArgs { gateway_url: url.to_owned(), gateway_key: "sk_test_x".to_owned() }).unwrap()
}

fn request() -> ChargeRequest {
    ChargeRequest {
        key: "chk_1".to_owned(),
        amount: Money::new(4299, Currency::Eur).unwrap(),
        payment_method: "pm_card_visa".to_owned(),
        reference: Some("tap 1&x=ü".to_owned()),
    }
}

fn intent(status: &str) -> Value {
    json!({
        "id": "pi_1", "status": status, "amount": 4299, "currency": "eur", "created": SINCE_S, "last_payment_error": null
    })
}

fn refunded_in(latest_charge: impl Into<Value>) -> Value {
    let mut odd = intent("succeeded");
    odd["latest_charge"] = latest_charge.into();
    odd
}

/// As a lookup shows it, with its charge as a whole.
fn refunded(amount_refunded: i64) -> Value {
    refunded_in(json!({"id": "ch_1", "amount_refunded": amount_refunded}))
}

fn with_id(id: &str) -> Value {
    let mut odd = intent("succeeded");
    odd["id"] = json!(id);
    odd
}

fn error(kind: &str, code: &str) -> Value {
    json!({"error": {"type": kind, "code": code, "message": "a sentence", "param": "payment_method"}})
}

/// What a single answer makes of a charge.
async fn after(answer: ResponseTemplate) -> Outcome {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(answer).expect(1).mount(&server).await;
    client(&server.uri()).charge(&request(), PATIENCE).await
}

fn answer(status: u16, body: &Value) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(body)
}

fn unknown(situation: Situation) -> Outcome {
    Outcome::Unknown { why: situation.sentence().to_owned(), frozen: false }
}

#[tokio::test]
async fn every_answer_means_what_the_table_says() {
    use Situation::*;
    let should_not_retry = answer(500, &error("api_error", "")).insert_header("stripe-should-retry", "false");
    let limited = answer(429, &error("invalid_request_error", "rate_limit")).insert_header("retry-after", "3");
    let mut other_amount = intent("succeeded");
    other_amount["amount"] = json!(1);
    let plain: Vec<(ResponseTemplate, Outcome)> = vec![
        (answer(200, &intent("succeeded")), Outcome::Approved { gateway_id: "pi_1".to_owned() }),
        (
            answer(200, &refunded(4299)),
            Outcome::Declined {
                gateway_id: Some("pi_1".to_owned()),
                decline_code: "refunded".to_owned(),
                message: Refunded.sentence().to_owned(),
            },
        ),
        (answer(200, &refunded(4298)), Outcome::Approved { gateway_id: "pi_1".to_owned() }),
        (answer(200, &refunded_in("a charge that is none")), Outcome::Approved { gateway_id: "pi_1".to_owned() }),
        (answer(200, &refunded_in(7)), unknown(AnswerUnreadable)),
        (answer(200, &intent("processing")), unknown(StillProcessing)),
        (answer(200, &intent("requires_confirmation")), unknown(StillProcessing)),
        (answer(200, &other_amount), Outcome::Unknown { why: OtherAmountTaken.sentence().to_owned(), frozen: true }),
        (answer(200, &json!({"oops": 1})), unknown(AnswerUnreadable)),
        (answer(200, &with_id("")), unknown(AnswerUnreadable)),
        (answer(200, &with_id("pi\u{0}1")), unknown(AnswerUnreadable)),
        (answer(200, &with_id(&"x".repeat(256))), unknown(AnswerUnreadable)),
        (ResponseTemplate::new(200).set_body_string("<html>"), unknown(AnswerUnreadable)),
        (ResponseTemplate::new(302).insert_header("location", "/elsewhere"), unknown(AnswerUnreadable)),
        (answer(409, &error("invalid_request_error", "idempotency_key_in_use")), unknown(KeyInUse)),
        (answer(400, &error("idempotency_error", "")), unknown(KeyReused)),
        (answer(500, &error("api_error", "")), unknown(ServerError)),
        (ResponseTemplate::new(502).set_body_string("bad gateway"), unknown(ServerError)),
        (ResponseTemplate::new(503), unknown(ServerError)),
        (should_not_retry, Outcome::Unknown { why: ServerErrorRecorded.sentence().to_owned(), frozen: true }),
        // A 4xx without the gateway's envelope comes from somebody in between.
        (ResponseTemplate::new(400).set_body_string("no"), unknown(AnswerUnreadable)),
        (
            limited,
            Outcome::NotSent { why: RateLimited.sentence().to_owned(), retry_after: Some(Duration::from_secs(3)) },
        ),
        (answer(409, &error("invalid_request_error", "lock_timeout")), unknown(KeyInUse)),
        (
            answer(401, &error("invalid_request_error", "")),
            Outcome::Misconfigured { why: Unauthorised.sentence().to_owned() },
        ),
        (ResponseTemplate::new(403), Outcome::Misconfigured { why: Unauthorised.sentence().to_owned() }),
        (
            answer(400, &error("invalid_request_error", "parameter_unknown")),
            Outcome::Misconfigured { why: RequestRefused.sentence().to_owned() },
        ),
    ];
    for (template, expected) in plain {
        assert_eq!(after(template).await, expected);
    }
}

#[tokio::test]
async fn a_decline_carries_its_reason_and_the_gateways_name_for_it() {
    let decline = |gateway_id: Option<&str>, code: &str, message: &str| Outcome::Declined {
        gateway_id: gateway_id.map(str::to_owned),
        decline_code: code.to_owned(),
        message: message.to_owned(),
    };
    let card = json!({"error": {
        "type": "card_error", "code": "card_declined", "decline_code": "insufficient_funds", "message": "No funds.",
        "payment_intent": {"id": "pi_2"}
    }});
    assert_eq!(after(answer(402, &card)).await, decline(Some("pi_2"), "insufficient_funds", "No funds."));
    let expired = error("card_error", "expired_card");
    assert_eq!(after(answer(402, &expired)).await, decline(None, "expired_card", "a sentence"));
    let missing = error("invalid_request_error", "resource_missing");
    assert_eq!(after(answer(400, &missing)).await, decline(None, "payment_method_unknown", "a sentence"));
    // Whatever the gateway says is stored and shown: bounded, and without what a text column refuses.
    let endless = json!({"error": {
        "type": "card_error", "code": "card_declined", "decline_code": "odd\u{0}code", "message": "x".repeat(100_000)
    }});
    assert_eq!(after(answer(402, &endless)).await, decline(None, "oddcode", &"x".repeat(500)));
    let challenge = after(answer(200, &intent("requires_action"))).await;
    let sentence = Situation::ChallengeRequired.sentence();
    assert_eq!(challenge, decline(Some("pi_1"), "authentication_required", sentence));
}

#[tokio::test]
async fn a_charge_is_the_same_bytes_every_time_and_is_sent_once() {
    let form = "amount=4299&currency=eur&payment_method=pm_card_visa&confirm=true&metadata%5Bcheckout_key%5D=chk_1\
                &metadata%5Breference%5D=tap+1%26x%3D%C3%BC";
    let server = MockServer::start().await;
    Mock::given(method("POST"))
        .and(path("/v1/payment_intents"))
        .and(header("idempotency-key", "chk_1"))
        .and(header("authorization", "Bearer sk_test_x"))
        .and(header("content-type", "application/x-www-form-urlencoded"))
        .and(body_string(form))
        .respond_with(answer(503, &json!({})))
        .expect(2)
        .mount(&server)
        .await;
    let client = client(&server.uri());
    for _ in 0..2 {
        assert_eq!(client.charge(&request(), PATIENCE).await, unknown(Situation::ServerError));
    }
}

#[tokio::test]
async fn a_lookup_believes_a_success_before_any_other_trace_and_nothing_proves_nothing() {
    let declined = json!({
        "id": "pi_0", "status": "requires_payment_method", "amount": 4299, "currency": "eur", "created": SINCE_S,
        "last_payment_error": {"code": "card_declined", "decline_code": "lost_card", "message": "Lost."}
    });
    let found = |data: Value| answer(200, &json!({"object": "search_result", "data": data, "has_more": false}));
    let lookup = async |template: ResponseTemplate| {
        let server = MockServer::start().await;
        Mock::given(method("GET"))
            .and(path("/v1/payment_intents/search"))
            .and(query_param("query", "metadata['checkout_key']:'chk_1'"))
            .and(query_param("expand[]", "data.latest_charge"))
            .respond_with(template)
            .mount(&server)
            .await;
        client(&server.uri()).lookup(&request(), SINCE_S, PATIENCE).await
    };
    let approved = Lookup::Found(Outcome::Approved { gateway_id: "pi_1".to_owned() });
    assert_eq!(lookup(found(json!([&declined, intent("succeeded")]))).await, approved);
    assert!(matches!(
        lookup(found(json!([&declined]))).await,
        Lookup::Found(Outcome::Declined { decline_code, .. }) if decline_code == "lost_card"
    ));
    assert_eq!(lookup(found(json!([]))).await, Lookup::NothingFound);
    // An older purchase under the same key was declined; that says nothing of this one. Money taken always counts.
    let (mut older, mut paid_before) = (declined.clone(), intent("succeeded"));
    older["created"] = json!(SINCE_S - 1);
    paid_before["created"] = json!(SINCE_S - 1);
    assert_eq!(lookup(found(json!([older]))).await, Lookup::NothingFound);
    assert_eq!(lookup(found(json!([older, paid_before]))).await, approved);
    // Money that went back is history: it tells of this purchase only if it is of this purchase, and never outweighs money kept.
    let mut given_back = refunded(4299);
    given_back["id"] = json!("pi_0");
    let history = |outcome: &Lookup| matches!(outcome, Lookup::Found(Outcome::Declined { decline_code, .. }) if decline_code == "refunded");
    assert!(history(&lookup(found(json!([&given_back]))).await));
    assert_eq!(lookup(found(json!([&given_back, paid_before]))).await, approved);
    given_back["created"] = json!(SINCE_S - 1);
    assert_eq!(lookup(found(json!([&given_back]))).await, Lookup::NothingFound);
    assert_eq!(lookup(found(json!([&given_back, intent("succeeded")]))).await, approved);
    let mut partly = refunded(4298);
    partly["created"] = json!(SINCE_S - 1);
    assert_eq!(lookup(found(json!([partly]))).await, approved);
    for broken in
        [answer(500, &json!({})), ResponseTemplate::new(200).set_body_string("[]"), ResponseTemplate::new(404)]
    {
        assert!(matches!(lookup(broken).await, Lookup::Unreachable { .. }));
    }
}

#[tokio::test]
async fn one_intent_is_asked_for_with_its_charge_and_must_be_ours() {
    let retrieve = async |mut shown: Value| {
        shown["metadata"] = json!({"checkout_key": "chk_1"});
        let server = MockServer::start().await;
        Mock::given(method("GET"))
            .and(path("/v1/payment_intents/pi_1"))
            .and(query_param("expand[]", "latest_charge"))
            .respond_with(answer(200, &shown))
            .mount(&server)
            .await;
        client(&server.uri()).retrieve("pi_1", &request(), PATIENCE).await
    };
    let approved = Lookup::Found(Outcome::Approved { gateway_id: "pi_1".to_owned() });
    assert_eq!(retrieve(refunded(1)).await, approved);
    let gone = retrieve(refunded(4299)).await;
    assert!(matches!(gone, Lookup::Found(Outcome::Declined { decline_code, .. }) if decline_code == "refunded"));
}

#[tokio::test]
async fn a_page_of_the_list_shows_whatever_the_gateway_has() {
    let (mut ours, mut theirs) = (refunded(299), intent("requires_payment_method"));
    ours["metadata"] = json!({"checkout_key": "chk_1", "reference": "tap 1"});
    (theirs["id"], theirs["currency"], theirs["latest_charge"]) = (json!("pi_2"), json!("usd"), json!(null));
    let list = async |template: ResponseTemplate, after: Option<&str>| {
        let server = MockServer::start().await;
        let mut mock = Mock::given(method("GET"))
            .and(path("/v1/payment_intents"))
            .and(query_param("limit", "100"))
            .and(query_param("created[gte]", "1000"))
            .and(query_param("created[lt]", "2000"))
            .and(query_param("expand[]", "data.latest_charge"));
        if let Some(after) = after {
            mock = mock.and(query_param("starting_after", after));
        }
        mock.respond_with(template).mount(&server).await;
        client(&server.uri()).list(1000, 2000, after, PATIENCE).await
    };
    let page = json!({"object": "list", "data": [ours, theirs], "has_more": true});
    let listed = |gateway_id: &str, status: &str, currency: &str, checkout_key: Option<&str>, amount_refunded| {
        let (gateway_id, status, currency) = (gateway_id.to_owned(), status.to_owned(), currency.to_owned());
        let checkout_key = checkout_key.map(str::to_owned);
        let (amount, created_s) = (4299, SINCE_S);
        ListedIntent { gateway_id, status, amount, currency, created_s, checkout_key, amount_refunded }
    };
    let expected = Listed::Page {
        intents: vec![
            listed("pi_1", "succeeded", "eur", Some("chk_1"), 299),
            listed("pi_2", "requires_payment_method", "usd", None, 0),
        ],
        has_more: true,
    };
    assert_eq!(list(answer(200, &page), None).await, expected);
    assert_eq!(list(answer(200, &page), Some("pi_3")).await, expected);
    let nameless = json!({"object": "list", "data": [with_id("")], "has_more": false});
    for broken in [answer(200, &nameless), answer(200, &json!({})), answer(500, &page), ResponseTemplate::new(404)] {
        assert!(matches!(list(broken, None).await, Listed::Unreachable { .. }));
    }
}

/// What a raw server does once it has read a whole request.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Close,
    Reset,
    CutBody,
    CutHeaders,
    NotHttp,
    Silence,
}

/// A server that reads requests and ends every connection its own way. Counts the requests.
async fn raw_server(fate: Fate) -> (String, JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let mut requests = 0;
        // Long enough for any resend that should not be.
        while let Ok(Ok((mut stream, _))) = tokio::time::timeout(Duration::from_millis(700), listener.accept()).await {
            let mut seen = Vec::new();
            while !String::from_utf8_lossy(&seen).contains("confirm=true") {
                let mut some = [0; 4096];
                match stream.read(&mut some).await {
                    Ok(0) | Err(_) => break,
                    Ok(read) => seen.extend_from_slice(&some[..read]),
                }
            }
            requests += 1;
            match fate {
                Fate::Close => {}
                Fate::Reset => stream.set_zero_linger().unwrap(),
                Fate::CutBody => {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 400\r\n\r\n{\"id\":").await.unwrap()
                }
                Fate::CutHeaders => stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-le").await.unwrap(),
                Fate::NotHttp => stream.write_all(b"SSH-2.0-OpenSSH\r\n").await.unwrap(),
                Fate::Silence => tokio::time::sleep(Duration::from_millis(400)).await,
            }
        }
        requests
    });
    (url, server)
}

#[tokio::test]
async fn a_connection_that_breaks_after_the_send_leaves_the_outcome_unknown_and_nothing_is_sent_again() {
    for (fate, situations) in [
        (Fate::Close, &[Situation::ConnectionLost][..]),
        (Fate::Reset, &[Situation::ConnectionLost]),
        (Fate::CutBody, &[Situation::AnswerCut]),
        (Fate::CutHeaders, &[Situation::ConnectionLost]),
        (Fate::NotHttp, &[Situation::ConnectionLost]),
        (Fate::Silence, &[Situation::TimedOut]),
    ] {
        let (url, server) = raw_server(fate).await;
        let outcome = client(&url).charge(&request(), Duration::from_millis(200)).await;
        assert!(situations.iter().any(|situation| outcome == unknown(*situation)), "{fate:?}: {outcome:?}");
        assert_eq!(server.await.unwrap(), 1, "{fate:?}: the transport sent again by itself");
    }
}

#[tokio::test]
async fn only_a_connection_that_never_came_to_be_proves_that_nothing_was_sent() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let refused = client(&url).charge(&request(), PATIENCE).await;
    assert_eq!(refused, Situation::NeverConnected.plain());
    assert!(matches!(refused, Outcome::NotSent { .. }));
    assert!(matches!(client(&url).lookup(&request(), SINCE_S, PATIENCE).await, Lookup::Unreachable { .. }));
}

#[test]
fn an_earlier_send_makes_every_later_not_sent_unknown() {
    let not_sent = Situation::NeverConnected.plain();
    let misconfigured = Situation::Unauthorised.plain();
    for outcome in [not_sent, misconfigured] {
        assert_eq!(outcome.clone().sticky(false), outcome);
        assert!(matches!(outcome.sticky(true), Outcome::Unknown { .. }));
    }
    for outcome in [Outcome::Approved { gateway_id: "pi_1".to_owned() }, Situation::TimedOut.plain()] {
        assert_eq!(outcome.clone().sticky(true), outcome);
    }
}

/// The table as a whole: no doubt is ever called a failure.
#[test]
fn whatever_is_not_certain_is_unknown() {
    let certain: HashSet<Situation> = Situation::ALL
        .into_iter()
        .filter(|situation| !matches!(situation.meaning(), Meaning::Unknown | Meaning::UnknownRecorded))
        .collect();
    let expected = [
        Situation::Succeeded,
        Situation::Refunded,
        Situation::CardDeclined,
        Situation::ChallengeRequired,
        Situation::PaymentMethodUnknown,
        Situation::NeverConnected,
        Situation::RateLimited,
        Situation::Unauthorised,
        Situation::RequestRefused,
    ];
    assert_eq!(certain, HashSet::from(expected));
}
