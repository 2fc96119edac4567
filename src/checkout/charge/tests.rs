use serde_json::{Value, json};
use time::{OffsetDateTime, macros::datetime};
use uuid::Uuid;
use wiremock::{
    Mock, MockServer, ResponseTemplate,
    matchers::{method, path},
};

use super::*;
use crate::{
    config::GatewayClientArgs,
    gateway::RefundRequest,
    idempotency::key::{Operation, ScopeDigest},
    ids::AttemptId,
    money::{Currency, Money},
};

const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);
const HOUR: time::Duration = time::Duration::HOUR;

/// A gateway that answers charges with these one after the other, the last one for ever, and its search with `found`.
struct Gateway {
    server: MockServer,
    client: GatewayClient,
    evidence: Evidence,
}

impl Gateway {
    async fn with(answers: Vec<ResponseTemplate>, found: Value) -> Self {
        let server = MockServer::start().await;
        let search = json!({"object": "search_result", "data": found, "has_more": false});
        Mock::given(method("GET"))
            .and(path("/v1/payment_intents/search"))
            .respond_with(ResponseTemplate::new(200).set_body_json(search))
            .mount(&server)
            .await;
        let last = answers.len() - 1;
        for (place, answer) in answers.into_iter().enumerate() {
            let mock = Mock::given(method("POST")).and(path("/v1/payment_intents")).respond_with(answer);
            if place == last { mock } else { mock.up_to_n_times(1) }.mount(&server).await;
        }
        let args = GatewayClientArgs { gateway_url: server.uri(), gateway_key: "sk_test_x".to_owned() };
        Self { client: GatewayClient::new(&args).unwrap(), server, evidence: Evidence::default() }
    }

    /// What it shows when asked for `pi_1` by name.
    async fn showing(self, answer: ResponseTemplate) -> Self {
        Mock::given(method("GET")).and(path("/v1/payment_intents/pi_1")).respond_with(answer).mount(&self.server).await;
        self
    }

    async fn charge(&self, claim: &Claim) -> Charged {
        let limits = Limits::of(claim, &timing(), Instant::now());
        charge(&self.client, claim, &Ask::Charge(request()), limits, &self.evidence).await
    }

    /// What arrived, as `POST` and `GET` in order.
    async fn arrived(&self) -> Vec<String> {
        self.server.received_requests().await.unwrap().iter().map(|request| request.method.to_string()).collect()
    }
}

fn timing() -> Timing {
    Timing {
        lease_ms: 15_000,
        answer_ms: 8_000,
        gateway_budget_ms: 2_000,
        key_expiry_hours: 72,
        resend_hours: 23,
        events_kept_days: 7,
    }
}

fn request() -> ChargeRequest {
    ChargeRequest {
        key: "chk_1".to_owned(),
        amount: Money::new(4299, Currency::Eur).unwrap(),
        payment_method: "pm_card_visa".to_owned(),
        reference: None,
    }
}

/// A fresh claim; its first send was `age` ago, and an earlier owner may have made it.
fn claim(age: time::Duration, maybe_sent: bool) -> Claim {
    Claim {
        digest: ScopeDigest([1; 32]),
        operation: Operation::CreateOrder,
        day: NOW.date(),
        fence: 1,
        attempt: AttemptId::mint(),
        tries: 0,
        resource_id: Uuid::nil(),
        frozen: String::new(),
        maybe_sent,
        lease_until: NOW + time::Duration::seconds(15),
        first_sent_at: NOW - age,
        now: NOW,
    }
}

fn intent(status: &str) -> Value {
    let created = (NOW - HOUR).unix_timestamp();
    let metadata = json!({"checkout_key": "chk_1"});
    json!({"id": "pi_1", "status": status, "amount": 4299, "currency": "eur", "created": created, "metadata": metadata})
}

fn ok() -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(intent("succeeded"))
}

fn approved() -> Charged {
    Charged::Known(Outcome::Approved { gateway_id: "pi_1".to_owned() })
}

#[tokio::test]
async fn a_first_charge_is_sent_at_once_and_a_doubtful_one_once_more() {
    let gateway = Gateway::with(vec![ok()], json!([])).await;
    assert_eq!(gateway.charge(&claim(time::Duration::ZERO, false)).await, approved());
    assert_eq!(gateway.arrived().await, ["POST"]);

    let gateway = Gateway::with(vec![ResponseTemplate::new(502), ok()], json!([])).await;
    assert_eq!(gateway.charge(&claim(time::Duration::ZERO, false)).await, approved());
    let sent = gateway.server.received_requests().await.unwrap();
    assert_eq!(sent.len(), 2);
    assert_eq!(
        (&sent[0].body, sent[0].headers.get("idempotency-key")),
        (&sent[1].body, sent[1].headers.get("idempotency-key"))
    );
}

#[tokio::test]
async fn two_sends_are_all_and_what_they_leave_open_is_unknown() {
    let gateway = Gateway::with(vec![ResponseTemplate::new(502)], json!([])).await;
    let charged = gateway.charge(&claim(time::Duration::ZERO, false)).await;
    assert!(matches!(charged, Charged::Known(Outcome::Unknown { .. })), "{charged:?}");
    assert_eq!(gateway.arrived().await, ["POST", "POST"]);

    // Doubt stays: the second send certainly did not arrive, the first may have.
    let limited = ResponseTemplate::new(429);
    let gateway = Gateway::with(vec![ResponseTemplate::new(502), limited], json!([])).await;
    let charged = gateway.charge(&claim(time::Duration::ZERO, false)).await;
    assert!(matches!(charged, Charged::Known(Outcome::Unknown { .. })), "{charged:?}");
}

#[tokio::test]
async fn a_recorded_failure_is_not_asked_for_again() {
    let recorded = ResponseTemplate::new(500).insert_header("stripe-should-retry", "false");
    let gateway = Gateway::with(vec![recorded], json!([])).await;
    let charged = gateway.charge(&claim(time::Duration::ZERO, false)).await;
    assert!(matches!(charged, Charged::Known(Outcome::Unknown { frozen: true, .. })), "{charged:?}");
    assert_eq!(gateway.arrived().await, ["POST"]);
}

#[tokio::test]
async fn a_wait_that_outlasts_the_budget_is_passed_on_to_the_client() {
    let later = ResponseTemplate::new(429).insert_header("retry-after", "60");
    let gateway = Gateway::with(vec![later], json!([])).await;
    let charged = gateway.charge(&claim(time::Duration::ZERO, false)).await;
    let Charged::Known(Outcome::NotSent { retry_after, .. }) = charged else { panic!("{charged:?}") };
    assert_eq!(retry_after, Some(Duration::from_secs(60)));
    assert_eq!(gateway.arrived().await, ["POST"]);
}

#[tokio::test]
async fn after_an_earlier_owner_the_gateway_is_asked_before_anything_is_sent() {
    let gateway = Gateway::with(vec![ok()], json!([intent("succeeded")])).await;
    assert_eq!(gateway.charge(&claim(HOUR, true)).await, approved());
    assert_eq!(gateway.arrived().await, ["GET"]);

    let gateway = Gateway::with(vec![ok()], json!([])).await.showing(ok()).await;
    assert_eq!(gateway.charge(&claim(HOUR, true)).await, approved());
    assert_eq!(gateway.arrived().await, ["GET", "POST", "GET"]);
}

/// The answer to a repeated send is a recording: what happened since is asked of the payment itself.
#[tokio::test]
async fn a_repeated_send_is_believed_only_if_the_money_is_still_there() {
    let mut refunded = intent("succeeded");
    refunded["latest_charge"] = json!({"amount_refunded": 4299});
    let gateway =
        Gateway::with(vec![ok()], json!([])).await.showing(ResponseTemplate::new(200).set_body_json(refunded)).await;
    let charged = gateway.charge(&claim(HOUR, true)).await;
    assert!(
        matches!(&charged, Charged::Known(Outcome::Declined { decline_code, .. }) if decline_code == "refunded"),
        "{charged:?}"
    );
    for (answer, why) in
        [(ResponseTemplate::new(500), "answered 500"), (ResponseTemplate::new(404), "does not know it")]
    {
        let gateway = Gateway::with(vec![ok()], json!([])).await.showing(answer).await;
        let charged = gateway.charge(&claim(HOUR, true)).await;
        assert!(
            matches!(&charged, Charged::Known(Outcome::Unknown { why: said, .. }) if said.contains(why)),
            "{charged:?}"
        );
    }
    // A first send is no repetition, and its answer no recording.
    let gateway = Gateway::with(vec![ok()], json!([])).await;
    assert_eq!(gateway.charge(&claim(time::Duration::ZERO, false)).await, approved());
    assert_eq!(gateway.arrived().await, ["POST"]);
}

/// By name the gateway is never behind its books; and what goes back pays for nothing, whatever the search still shows.
#[tokio::test]
async fn what_evidence_names_is_asked_for_first_and_what_goes_back_settles_nothing() {
    let mut gateway = Gateway::with(vec![ok()], json!([])).await.showing(ok()).await;
    gateway.evidence.named = vec!["pi_0".to_owned(), "pi_1".to_owned()];
    assert_eq!(gateway.charge(&claim(HOUR * 48, true)).await, approved());
    assert_eq!(gateway.arrived().await, ["GET", "GET"], "neither searched nor sent");

    let mut gateway = Gateway::with(vec![ok()], json!([intent("succeeded")])).await;
    gateway.evidence.given_back = vec!["pi_1".to_owned()];
    let charged = gateway.charge(&claim(HOUR, true)).await;
    assert!(matches!(charged, Charged::Known(Outcome::Unknown { .. })), "{charged:?}");
    assert_eq!(gateway.arrived().await, ["GET"]);

    let mut gateway = Gateway::with(vec![ok()], json!([])).await.showing(ok()).await;
    gateway.evidence.given_back = vec!["pi_1".to_owned()];
    let charged = gateway.charge(&claim(HOUR, true)).await;
    assert!(matches!(charged, Charged::Known(Outcome::Unknown { .. })), "{charged:?}");
}

#[tokio::test]
async fn money_taken_under_our_key_for_another_amount_forbids_to_send() {
    let mut other = intent("succeeded");
    other["amount"] = json!(100);
    let gateway = Gateway::with(vec![ok()], json!([other])).await;
    let charged = gateway.charge(&claim(HOUR, true)).await;
    assert!(matches!(charged, Charged::Known(Outcome::Unknown { frozen: true, .. })), "{charged:?}");
    assert_eq!(gateway.arrived().await, ["GET"]);
}

#[tokio::test]
async fn nothing_is_sent_once_the_gateway_may_have_forgotten_the_key() {
    for (age, expected) in [
        (HOUR * 22, None),
        (HOUR * 23, Some(false)),
        (HOUR * 24 - time::Duration::SECOND, Some(false)),
        (HOUR * 24, Some(true)),
    ] {
        let gateway = Gateway::with(vec![ok()], json!([])).await.showing(ok()).await;
        let charged = gateway.charge(&claim(age, true)).await;
        match (expected, &charged) {
            (None, charged) => assert_eq!(*charged, approved()),
            (Some(false), Charged::Known(Outcome::Unknown { .. })) | (Some(true), Charged::Untellable) => {
                assert_eq!(gateway.arrived().await, ["GET"], "{age}");
            }
            (Some(_), _) => panic!("{age}: {charged:?}"),
        }
    }
}

#[tokio::test]
async fn a_search_that_never_answers_is_a_persons_business_in_the_end() {
    let server = MockServer::start().await;
    let args = GatewayClientArgs { gateway_url: server.uri(), gateway_key: "sk_test_x".to_owned() };
    let client = GatewayClient::new(&args).unwrap();
    for (age, untellable) in [(HOUR, false), (HOUR * 30, false), (HOUR * 48, true)] {
        let claim = claim(age, true);
        let limits = Limits::of(&claim, &timing(), Instant::now());
        let charged = charge(&client, &claim, &Ask::Charge(request()), limits, &Evidence::default()).await;
        assert_eq!(charged == Charged::Untellable, untellable, "{age}: {charged:?}");
    }
}

#[tokio::test]
async fn nothing_is_sent_once_the_lease_is_nearly_over() {
    let gateway = Gateway::with(vec![ok()], json!([])).await;
    for lease_left in [time::Duration::ZERO, -time::Duration::HOUR, time::Duration::seconds(2)] {
        let late = Claim { lease_until: NOW + lease_left, ..claim(time::Duration::ZERO, false) };
        let charged = gateway.charge(&late).await;
        assert!(matches!(charged, Charged::Known(Outcome::NotSent { .. })), "{charged:?}");
    }
    assert!(gateway.arrived().await.is_empty());
}

/// A refund is under the same rules; and nothing left to give back may mean that it was given back under this very key.
#[tokio::test]
async fn a_refused_refund_that_may_have_been_sent_is_looked_for_before_it_is_believed() {
    let ask = Ask::Refund(RefundRequest {
        key: "chk_1".to_owned(),
        gateway_id: "pi_1".to_owned(),
        amount: Money::new(1000, Currency::Eur).unwrap(),
    });
    let ours = json!({"id": "re_1", "status": "succeeded", "amount": 1000, "currency": "eur", "metadata": {"checkout_key": "chk_1"}});
    let refused = json!({"error": {"type": "invalid_request_error", "code": "charge_already_refunded"}});
    for (maybe_sent, lists, posts) in [
        // A first send looks too: a restored backup may have forgotten an earlier one.
        (false, vec![json!([])], 1),
        (true, vec![json!([]), json!([])], 1),
        // It was not there before the send, and is after it.
        (true, vec![json!([]), json!([ours])], 1),
        (true, vec![json!([ours])], 0),
    ] {
        let server = MockServer::start().await;
        let is_ours = lists.last().is_some_and(|list| *list != json!([]));
        let looks = lists.len();
        for data in lists {
            let list = ResponseTemplate::new(200).set_body_json(json!({"data": data, "has_more": false}));
            let mock = Mock::given(method("GET")).and(path("/v1/refunds")).respond_with(list);
            mock.up_to_n_times(1).mount(&server).await;
        }
        let post = Mock::given(method("POST")).and(path("/v1/refunds"));
        post.respond_with(ResponseTemplate::new(400).set_body_json(&refused)).mount(&server).await;
        let args = GatewayClientArgs { gateway_url: server.uri(), gateway_key: "sk_test_x".to_owned() };
        let claim = claim(HOUR, maybe_sent);
        let limits = Limits::of(&claim, &timing(), Instant::now());
        let client = GatewayClient::new(&args).unwrap();
        let charged = charge(&client, &claim, &ask, limits, &Evidence::default()).await;
        match (is_ours, &charged) {
            (true, Charged::Known(Outcome::Approved { gateway_id })) => assert_eq!(gateway_id, "re_1"),
            (false, Charged::Known(Outcome::Declined { .. })) => {}
            _ => panic!("{charged:?} after {looks} looks"),
        }
        let arrived = server.received_requests().await.unwrap();
        let sent = arrived.iter().filter(|request| request.method.as_str() == "POST").count();
        assert_eq!((arrived.len() - sent, sent), (looks, posts));
    }
}

/// A refused key may run anew after it expired. The list shows what became of it then, and its new send is on its way.
#[tokio::test]
async fn a_refund_that_failed_in_an_earlier_life_of_its_key_is_not_the_answer_to_this_one() {
    let server = MockServer::start().await;
    let old = (NOW - time::Duration::hours(80)).unix_timestamp();
    let failed = json!({"id": "re_old", "status": "failed", "amount": 1000, "currency": "eur", "created": old,
        "metadata": {"checkout_key": "chk_1"}});
    let mut paid = failed.clone();
    (paid["id"], paid["status"]) = (json!("re_new"), json!("succeeded"));
    Mock::given(method("GET"))
        .and(path("/v1/refunds"))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({"data": [failed], "has_more": false})))
        .mount(&server)
        .await;
    Mock::given(method("POST"))
        .and(path("/v1/refunds"))
        .respond_with(ResponseTemplate::new(200).set_body_json(paid))
        .mount(&server)
        .await;
    let args = GatewayClientArgs { gateway_url: server.uri(), gateway_key: "sk_test_x".to_owned() };
    let client = GatewayClient::new(&args).unwrap();
    let amount = Money::new(1000, Currency::Eur).unwrap();
    let ask = Ask::Refund(RefundRequest { key: "chk_1".to_owned(), gateway_id: "pi_1".to_owned(), amount });
    // Its own first send was an hour ago and broke off: unknown.
    let claim = claim(HOUR, true);
    let limits = Limits::of(&claim, &timing(), Instant::now());
    let charged = charge(&client, &claim, &ask, limits, &Evidence::default()).await;
    assert_eq!(charged, Charged::Known(Outcome::Approved { gateway_id: "re_new".to_owned() }));
}
