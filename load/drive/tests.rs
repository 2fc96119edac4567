use axum::{Router, body::Bytes, http::StatusCode, routing::post};
use checkout::serve;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::*;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A server for as long as the guard lives.
async fn server(router: Router) -> (SocketAddr, DropGuard) {
    let listener = serve::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(serve::serve(listener, router, stop.clone()));
    (address, stop.drop_guard())
}

async fn drive(phase: Phase, router: Router) -> Counted {
    let (address, _stop) = server(router).await;
    let orders = Orders::of_customers(3, SECRET, address).unwrap();
    run(&phase, address, &orders, Vec::new()).await.unwrap().counted
}

fn phase(looped: Loop, connections: usize, queue_limit: usize) -> Phase {
    Phase { looped, connections, warmup: Duration::from_millis(200), lasting: Duration::from_millis(800), queue_limit }
}

#[tokio::test]
async fn an_open_loop_sends_every_order_of_its_schedule_once() {
    let router = Router::new().route("/v1/orders", post(|_: Bytes| async { StatusCode::CREATED }));
    let counted = drive(phase(Loop::Open { rate_per_s: 300 }, 8, 1000), router).await;
    assert_eq!((counted.orders, counted.dropped, counted.unanswered), (300, 0, 0));
    assert!(counted.errors.is_empty(), "{:?}", counted.errors);
}

#[tokio::test]
async fn a_server_that_stands_still_does_not_slow_the_taps_down() {
    let gate = CancellationToken::new();
    let opened = gate.clone();
    tokio::spawn(async move {
        sleep(Duration::from_millis(900)).await;
        opened.cancel();
    });
    let answer = move |_: Bytes| async move {
        gate.cancelled().await;
        StatusCode::CREATED
    };
    let counted =
        drive(phase(Loop::Open { rate_per_s: 100 }, 1, 50), Router::new().route("/v1/orders", post(answer))).await;
    // One on the line, fifty in the queue and ten when it moved again; the others found no place, were not sent, and are not
    // forgotten.
    assert_eq!(counted.orders + counted.dropped, 100);
    assert!((50..=61).contains(&counted.orders), "{counted:?}");
    assert_eq!(counted.unanswered, 0);
    // Those of the window were due between 200 and 500 ms and could not be answered before 900 (less what it took to
    // connect). From sent to done they took next to nothing, and that is not what they waited.
    assert!(counted.latency_ms.p50 >= 400.0, "{:?}", counted.latency_ms);
    assert!(counted.send_lag_ms.p50 >= 400.0, "{:?}", counted.send_lag_ms);
}

#[tokio::test]
async fn a_server_that_closes_after_every_answer_costs_connections_and_no_orders() {
    let answer = |_: Bytes| async { (StatusCode::CREATED, [("connection", "close")]) };
    let router = Router::new().route("/v1/orders", post(answer));
    let counted = drive(phase(Loop::Open { rate_per_s: 200 }, 4, 1000), router).await;
    assert_eq!((counted.orders, counted.dropped, counted.unanswered), (200, 0, 0));
    assert!(counted.errors.is_empty(), "{:?}", counted.errors);
}

#[tokio::test]
async fn a_closed_loop_counts_refusals_apart() {
    let router = Router::new().route("/v1/orders", post(|_: Bytes| async { StatusCode::SERVICE_UNAVAILABLE }));
    let counted = drive(phase(Loop::Closed, 2, 1), router).await;
    assert_eq!((counted.orders, counted.orders_in_window), (0, 0));
    assert_eq!(counted.errors.keys().collect::<Vec<_>>(), ["503"]);
    assert!(counted.errors["503"] > 0);
}

#[tokio::test]
async fn an_overloaded_open_loop_ends_with_its_window_and_tells_what_was_left() {
    let answer = |_: Bytes| async {
        sleep(Duration::from_millis(300)).await;
        StatusCode::CREATED
    };
    // A hundred orders in a second, for a server that takes three of them.
    let router = Router::new().route("/v1/orders", post(answer));
    let counted = drive(phase(Loop::Open { rate_per_s: 100 }, 1, 1000), router).await;
    assert!(counted.orders <= 5, "the backlog was sent all the same: {}", counted.orders);
    assert_eq!((counted.due_in_window, counted.orders + counted.unanswered), (80, 100));
    assert_eq!(counted.backlog.unanswered, 1);
    assert!(counted.backlog.queued >= 94 && counted.due_on_time < counted.due_in_window, "{counted:?}");
}
