//! Each way a line can end, against answers as the contract promises them.

use serde_json::{Value, json};
use wiremock::{Mock, MockServer, ResponseTemplate, matchers};

use super::*;
use crate::{
    ids::RequestId,
    wire::problem::{self, Code},
};

const SECRET: &str = "a-secret-of-the-tests-0123456789abcdef";
const ASKED: &str = r"^/v1/idempotency-keys/charges\.create/run_[0-9a-f]{64}$";

fn line() -> Line {
    Line::read(2, &csv::ByteRecord::from(vec!["42", "INV-7/1", "2026-11", "4299", "eur", "pm_card_visa"])).unwrap()
}

/// As the api answers a charge.
fn charge() -> Value {
    json!({
        "id": "0199", "status": "succeeded", "amount": 4299, "currency": "eur", "gateway_id": "pi_1",
        "client_reference": "42/INV-7/1/2026-11", "created_at": "2026-11-30T12:00:00Z", "request_id": "0198"
    })
}

fn created() -> ResponseTemplate {
    ResponseTemplate::new(201).insert_header("location", "/v1/charges/0199").set_body_json(charge())
}

fn replayed() -> ResponseTemplate {
    created().insert_header("idempotent-replayed", "true")
}

fn problem(code: Code) -> ResponseTemplate {
    let body = problem::Problem::new(code, "a detail").body(RequestId::mint());
    ResponseTemplate::new(code.status()).set_body_raw(body, problem::CONTENT_TYPE)
}

struct Stub {
    server: MockServer,
    till: Till,
}

/// An api that answers a charge with each of these in turn, the last one for ever, and a question about a key with `asked`.
async fn stub(answers: Vec<ResponseTemplate>, asked: ResponseTemplate) -> Stub {
    let server = MockServer::start().await;
    let last = answers.len() - 1;
    for (place, answer) in answers.into_iter().enumerate() {
        let mock = Mock::given(matchers::method("POST")).and(matchers::path(PATH)).respond_with(answer);
        if place < last { mock.up_to_n_times(1).mount(&server).await } else { mock.mount(&server).await }
    }
    Mock::given(matchers::method("GET")).and(matchers::path_regex(ASKED)).respond_with(asked).mount(&server).await;
    let api = Api { url: server.uri(), secret: SECRET.to_owned() };
    let prompt =
        Patience { attempts_max: 3, pause_first: Duration::ZERO, pause_max: Duration::ZERO, ..Patience::PHONE };
    let till =
        Till { phone: Phone::new(&api.url, prompt).unwrap(), ..Till::new(&api, 1, CancellationToken::new()).unwrap() };
    Stub { server, till }
}

async fn end_after(answers: Vec<ResponseTemplate>) -> End {
    stub(answers, problem(Code::NotFound)).await.till.charge(&line()).await
}

async fn end_after_asking(asked: Value) -> End {
    let asked = ResponseTemplate::new(200).set_body_json(asked);
    stub(vec![problem(Code::OutcomeUnknown)], asked).await.till.charge(&line()).await
}

#[tokio::test]
async fn each_answer_ends_a_line_as_the_contract_says() {
    let mut other_money = charge();
    other_money["amount"] = json!(1);
    let other_money = ResponseTemplate::new(201).set_body_json(other_money);
    let lost = || ResponseTemplate::new(502).set_body_string("Bad Gateway");
    let rows = [
        (vec![created()], Kind::ChargedNow, 1),
        (vec![replayed()], Kind::ChargedBefore, 1),
        // This run's own first attempt may have done it, and its answer was lost.
        (vec![lost(), replayed()], Kind::ChargedNow, 2),
        (vec![problem(Code::OutcomeUnknown), replayed()], Kind::ChargedNow, 2),
        // These attempts did nothing, so somebody did it before.
        (vec![problem(Code::RateLimited), replayed()], Kind::ChargedBefore, 2),
        (vec![problem(Code::RequestInProgress), replayed()], Kind::ChargedBefore, 2),
        (vec![problem(Code::IdempotencyKeyExpired)], Kind::ChargedBefore, 1),
        (vec![problem(Code::CardDeclined)], Kind::Declined, 1),
        (vec![problem(Code::IdempotencyKeyReused)], Kind::Rejected, 1),
        (vec![problem(Code::ValidationFailed)], Kind::Rejected, 1),
        (vec![lost()], Kind::Unknown, 3),
        (vec![problem(Code::GatewayUnavailable)], Kind::Unknown, 3),
        (vec![other_money], Kind::Unknown, 1),
    ];
    for (place, (answers, kind, attempts)) in rows.into_iter().enumerate() {
        let end = end_after(answers).await;
        assert_eq!((end.kind, end.attempts), (kind, attempts), "row {place}: {end:?}");
    }
}

#[tokio::test]
async fn a_charge_is_named_by_our_id_and_the_gateways() {
    let end = end_after(vec![created()]).await;
    assert_eq!((end.charge_id.as_deref(), end.gateway_id.as_deref()), (Some("0199"), Some("pi_1")));
    let expired = problem(Code::IdempotencyKeyExpired).insert_header("location", "/v1/charges/0177");
    assert_eq!(end_after(vec![expired]).await.charge_id.as_deref(), Some("0177"));
}

#[tokio::test]
async fn a_key_that_knows_more_than_the_answers_is_believed() {
    let charged =
        json!({"state": "completed", "response": {"status": 201, "location": "/v1/charges/0199", "body": charge()}});
    let end = end_after_asking(charged).await;
    assert_eq!((end.kind, end.charge_id.as_deref(), end.attempts), (Kind::ChargedNow, Some("0199"), 3));

    let declined: Value =
        serde_json::from_slice(&problem::Problem::new(Code::CardDeclined, "no").body(RequestId::mint())).unwrap();
    let end = end_after_asking(json!({"state": "failed", "response": {"status": 402, "body": declined}})).await;
    assert_eq!((end.kind, end.detail.as_str()), (Kind::Declined, "card_declined: no"));

    let end = end_after_asking(json!({"state": "expired", "location": "/v1/charges/0177"})).await;
    assert_eq!((end.kind, end.charge_id.as_deref()), (Kind::ChargedBefore, Some("0177")));

    let end = end_after_asking(json!({"state": "needs_review"})).await;
    assert_eq!((end.kind, end.detail.as_str()), (Kind::Unknown, "504 outcome_unknown; its key is needs_review"));
}

#[tokio::test]
async fn what_is_sent_is_the_line_under_its_key_and_its_customers_token() {
    let Stub { server, till } = stub(vec![problem(Code::RateLimited), created()], problem(Code::NotFound)).await;
    till.charge(&line()).await;
    let requests = server.received_requests().await.unwrap();
    assert_eq!(requests.len(), 2);
    for request in requests {
        assert_eq!(request.headers["idempotency-key"].to_str().unwrap(), line().key());
        let bearer = request.headers["authorization"].to_str().unwrap().trim_start_matches("Bearer ");
        assert_eq!(Credentials::new(SECRET).unwrap().check(bearer), Ok(Subject::Customer(CustomerId(42))));
        let body: Value = request.body_json().unwrap();
        assert_eq!(
            body,
            json!({
                "amount": 4299, "currency": "eur", "payment_method": "pm_card_visa",
                "client_reference": "42/INV-7/1/2026-11"
            })
        );
    }
}

#[tokio::test]
async fn an_api_that_does_not_believe_us_is_noticed_before_anything_is_sent() {
    let Stub { server, till } = stub(vec![created()], problem(Code::Unauthenticated)).await;
    let said = till.ask_whether_open(&line()).await.unwrap_err().to_string();
    assert!(said.contains("401 unauthenticated: is this its secret?"), "{said}");
    assert_eq!(server.received_requests().await.unwrap().len(), 1);
    let Stub { till, server: _kept } = stub(vec![created()], problem(Code::NotFound)).await;
    assert!(till.ask_whether_open(&line()).await.is_ok());
}
