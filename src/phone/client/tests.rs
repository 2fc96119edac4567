//! The phone over real connections: answers from wiremock, and a raw socket for what an HTTP server will not do.

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use wiremock::{Mock, MockServer, ResponseTemplate, matchers};

use super::*;
use crate::{
    ids::RequestId,
    phone::{GaveUp, Outcome},
    wire::problem::{self, Code, Retry},
};

/// Real connections, and no pauses.
const PROMPT: Patience = Patience {
    attempts_max: 3,
    horizon: Duration::from_secs(60),
    answer_max: Duration::from_secs(10),
    pause_first: Duration::ZERO,
    pause_max: Duration::ZERO,
    ..Patience::PHONE
};

fn intent() -> Intent {
    Intent {
        path: "/v1/orders".to_owned(),
        bearer: "a-token".to_owned(),
        body: Bytes::from_static(br#"{"total": 4299}"#),
    }
}

fn policy() -> KeyPolicy {
    KeyPolicy::Kept("tap-1".to_owned())
}

async fn send(url: &str, patience: Patience) -> Told {
    Phone::new(url, patience).unwrap().send(&intent(), &policy(), &CancellationToken::new()).await
}

fn problem(code: Code) -> ResponseTemplate {
    let body = problem::Problem::new(code, "a detail").body(RequestId::mint());
    ResponseTemplate::new(code.status()).set_body_raw(body, problem::CONTENT_TYPE)
}

fn created() -> ResponseTemplate {
    ResponseTemplate::new(201).insert_header("location", "/v1/orders/o1").set_body_json(json!({"id": "o1"}))
}

/// Answers each attempt with the next of these, the last one for ever.
async fn server(answers: Vec<ResponseTemplate>) -> MockServer {
    let server = MockServer::start().await;
    let last = answers.len() - 1;
    for (place, answer) in answers.into_iter().enumerate() {
        let mock = Mock::given(matchers::method("POST")).respond_with(answer);
        if place < last { mock.up_to_n_times(1).mount(&server).await } else { mock.mount(&server).await }
    }
    server
}

#[tokio::test]
async fn every_row_of_the_problem_table_is_obeyed_over_http() {
    for &code in Code::ALL {
        let server = server(vec![problem(code), created()]).await;
        let told = send(&server.uri(), PROMPT).await;
        let requests = server.received_requests().await.unwrap();
        assert_eq!(requests.len(), told.history.len(), "{}: an attempt nobody decided on", code.name());
        match (code.retry(), &told.outcome) {
            (Retry::SameKey, Outcome::Ok(answer)) => {
                assert_eq!((requests.len(), answer.location.as_deref()), (2, Some("/v1/orders/o1")));
            }
            (Retry::NewKey | Retry::Never, Outcome::Refused { problem, .. }) => {
                assert_eq!((requests.len(), problem.code.as_str()), (1, code.name()));
            }
            (_, other) => panic!("{}: {other:?}", code.name()),
        }
        for request in requests {
            assert_eq!(request.headers["idempotency-key"], "tap-1");
            assert_eq!(request.headers["authorization"], "Bearer a-token");
            assert_eq!(request.headers["content-type"], "application/json");
            assert_eq!(request.body, intent().body, "{}", code.name());
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_not_the_apis_decides_nothing() {
    let portal = ResponseTemplate::new(200).set_body_string("<html>Please log in</html>");
    let proxy = ResponseTemplate::new(403).set_body_string("Forbidden");
    let moved = ResponseTemplate::new(307).insert_header("location", "/elsewhere");
    let told = send(&server(vec![portal, proxy, moved]).await.uri(), PROMPT).await;
    assert_eq!(told.outcome, Outcome::Unknown(GaveUp::Attempts));
    let heard: Vec<_> = told.history.into_iter().map(|attempt| attempt.heard).collect();
    assert_eq!(heard, [200, 403, 307].map(|status| Heard::Unreadable { status }));
}

#[tokio::test]
async fn an_answer_without_end_is_not_read_to_its_end() {
    let endless = ResponseTemplate::new(201).set_body_string("x".repeat(ANSWER_BYTES_MAX + 1));
    let told = send(&server(vec![endless]).await.uri(), Patience { attempts_max: 1, ..PROMPT }).await;
    assert_eq!(told.history[0].heard, Heard::Unreadable { status: 201 });
}

#[tokio::test]
async fn headers_of_the_answer_are_read() {
    let waiting = problem(Code::RequestInProgress).insert_header("retry-after", "7");
    let replayed = created().insert_header("idempotent-replayed", "true");
    let server = server(vec![waiting, replayed]).await;
    let phone = Phone::new(&server.uri(), PROMPT).unwrap();
    assert_eq!(phone.attempt(&intent(), Some("k")).await.retry_after(), Some(Duration::from_secs(7)));
    let Heard::Created(answer) = phone.attempt(&intent(), Some("k")).await else { panic!("not created") };
    assert!(answer.replayed);
}

/// Reads one request from each connection and writes what is told, then hangs up. Returns the requests.
async fn raw(answers: Vec<&'static [u8]>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut socket, _) = listener.accept().await.unwrap();
            let request = request_from(&mut socket).await;
            socket.write_all(answer).await.unwrap();
            socket.shutdown().await.unwrap();
            requests.push(request);
        }
        requests
    });
    (url, serving)
}

#[tokio::test]
async fn a_lost_a_broken_and_a_half_answer_are_sent_again_under_the_same_key_and_nothing_in_secret() {
    let half = b"HTTP/1.1 201 Created\r\nContent-Length: 99\r\n\r\n{\"id\":";
    let whole = b"HTTP/1.1 201 Created\r\nContent-Length: 11\r\n\r\n{\"id\":\"o1\"}";
    let (url, serving) = raw(vec![b"", half, b"not HTTP at all\r\n\r\n", whole]).await;
    let told = send(&url, Patience { attempts_max: 9, ..PROMPT }).await;
    assert!(matches!(told.outcome, Outcome::Ok(_)), "{told:?}");
    let heard: Vec<_> = told.history.iter().map(|attempt| &attempt.heard).collect();
    assert!(
        matches!(
            heard[..],
            [Heard::NoAnswer { .. }, Heard::Truncated { status: 201 }, Heard::NoAnswer { .. }, Heard::Created(_)]
        ),
        "{heard:?}"
    );
    let requests = serving.await.unwrap();
    assert!(requests.iter().all(|request| request == &requests[0]), "the attempts differ: {requests:?}");
}

/// Reads one whole request from a connection.
async fn request_from(socket: &mut TcpStream) -> String {
    let mut request = Vec::new();
    while !request.ends_with(&intent().body) {
        assert!(socket.read_buf(&mut request).await.unwrap() > 0, "the request ended early");
    }
    String::from_utf8(request).unwrap()
}

/// The case that transports like to repair by themselves: a kept connection that dies under a request.
#[tokio::test]
async fn a_kept_connection_that_dies_under_a_request_costs_an_attempt_that_is_known() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let whole = b"HTTP/1.1 201 Created\r\nContent-Length: 11\r\n\r\n{\"id\":\"o1\"}";
    let serving = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        request_from(&mut socket).await;
        socket.write_all(whole).await.unwrap();
        request_from(&mut socket).await;
        drop(socket);
        // Whoever comes now was sent by the third attempt below, and by nobody else.
        let (mut socket, _) = listener.accept().await.unwrap();
        request_from(&mut socket).await;
        socket.write_all(whole).await.unwrap();
    });
    let phone = Phone::new(&url, PROMPT).unwrap();
    assert!(matches!(phone.attempt(&intent(), Some("k")).await, Heard::Created(_)));
    let heard = phone.attempt(&intent(), Some("k")).await;
    assert!(matches!(heard, Heard::NoAnswer { .. }), "somebody sent it again in secret: {heard:?}");
    assert!(matches!(phone.attempt(&intent(), Some("k")).await, Heard::Created(_)));
    serving.await.unwrap();
}

#[tokio::test]
async fn a_server_that_never_answers_costs_one_answers_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let impatient = Patience { answer_max: Duration::from_millis(50), attempts_max: 2, ..PROMPT };
    let told = send(&url, impatient).await;
    assert_eq!(told.outcome, Outcome::Unknown(GaveUp::Attempts));
    assert!(told.history.iter().all(|attempt| matches!(attempt.heard, Heard::NoAnswer { .. })), "{told:?}");
}

#[tokio::test]
async fn nobody_listening_is_known_to_be_not_sent_and_still_no_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let told = send(&url, PROMPT).await;
    assert_eq!((&told.outcome, told.history.len()), (&Outcome::Unknown(GaveUp::Attempts), 3));
    assert!(matches!(&told.history[0].heard, Heard::NotSent { why } if why.contains("refused")), "{told:?}");
    assert!(told.history.iter().all(|attempt| !attempt.heard.may_have_acted()));
}

async fn asked(answer: ResponseTemplate) -> KeyState {
    let server = MockServer::start().await;
    let path = "/below/v1/idempotency-keys/charges.create/a%2Fb%3Fc%25d";
    Mock::given(matchers::method("GET")).and(matchers::path(path)).respond_with(answer).expect(1).mount(&server).await;
    let phone = Phone::new(&format!("{}/below/", server.uri()), PROMPT).unwrap();
    phone.ask("charges.create", "a/b?c%d", "a-token").await
}

#[tokio::test]
async fn a_key_is_asked_about_before_anything_is_started_anew() {
    let ok = |body: serde_json::Value| ResponseTemplate::new(200).set_body_json(body);
    let declined = ok(json!({"state": "failed", "response": {"status": 402, "body": {"code": "card_declined"}}}));
    let bought = ok(json!({"state": "completed", "response": {"status": 201, "location": "/x", "body": {"id": "x"}}}));

    let state = asked(declined).await;
    assert!(matches!(&state, KeyState::Final(answer) if answer.status == 402) && state.allows_a_new_key());
    let state = asked(bought).await;
    let KeyState::Final(answer) = &state else { panic!("{state:?}") };
    assert_eq!((answer.location.as_deref(), &answer.body[..]), (Some("/x"), &br#"{"id":"x"}"#[..]));
    assert!(!state.allows_a_new_key());

    let open = [
        (ok(json!({"state": "unknown"})), KeyState::Open("unknown".to_owned())),
        (ok(json!({"state": "released"})), KeyState::Open("released".to_owned())),
        (ok(json!({"state": "expired", "location": "/x"})), KeyState::Expired { location: Some("/x".to_owned()) }),
        (problem(Code::NotFound), KeyState::NeverUsed),
        (problem(Code::Unauthenticated), KeyState::NotTold { why: "401 unauthenticated".to_owned() }),
        (ok(json!([])), KeyState::NotTold { why: "an answer that is not the api's (200)".to_owned() }),
    ];
    for (answer, expected) in open {
        let state = asked(answer).await;
        assert!(!state.allows_a_new_key(), "{state:?}");
        assert_eq!(state, expected);
    }
}

#[test]
fn what_is_no_http_url_is_refused() {
    for url in ["", "127.0.0.1:8080", "ftp://somewhere", "data:text"] {
        assert!(Phone::new(url, PROMPT).is_err(), "{url}");
    }
}

#[tokio::test]
async fn a_client_without_keys_sends_none() {
    let server = server(vec![created()]).await;
    let phone = Phone::new(&server.uri(), PROMPT).unwrap();
    phone.send(&intent(), &KeyPolicy::None, &CancellationToken::new()).await;
    let asked = server.received_requests().await.unwrap();
    assert_eq!((asked.len(), asked[0].headers.get("idempotency-key")), (1, None));
}
