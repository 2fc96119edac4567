use super::*;

const MS: Duration = Duration::from_millis(1);

fn tally(started: Instant) -> Tally {
    Tally::new(window(started, 1000 * MS, 1000 * MS)).unwrap()
}

fn take(tally: &mut Tally, started: Instant, due: u32, sent: u32, done: u32, ended: Ended) {
    tally.scheduled(started + due * MS);
    tally.sending();
    tally.record(Taken { due: started + due * MS, sent: started + sent * MS, done: started + done * MS, ended });
}

#[test]
fn latency_starts_when_the_order_was_due_not_when_it_was_sent() {
    let started = Instant::now();
    let mut tally = tally(started);
    // Waited 300 ms for a connection, was answered 20 ms after it got one.
    take(&mut tally, started, 1100, 1400, 1420, Ended::Status(201));
    let counted = tally.close(0);
    assert!((counted.latency_ms.p50 - 320.0).abs() < 0.5, "{:?}", counted.latency_ms);
    assert!((counted.send_lag_ms.max - 300.0).abs() < 0.5, "{:?}", counted.send_lag_ms);
}

#[test]
fn warm_up_and_drain_are_in_the_totals_and_not_in_the_figures() {
    let started = Instant::now();
    let mut tally = tally(started);
    take(&mut tally, started, 10, 10, 900, Ended::Status(201)); // warm-up
    take(&mut tally, started, 990, 990, 1010, Ended::Status(201)); // due before, done inside: throughput only
    take(&mut tally, started, 1500, 1500, 1504, Ended::Status(201)); // inside
    take(&mut tally, started, 1999, 1999, 2500, Ended::Status(201)); // due inside, done after: latency only
    let counted = tally.close(0);
    assert_eq!((counted.orders, counted.orders_in_window), (4, 2));
    assert!((counted.orders_per_s - 2.0).abs() < 1e-9);
    assert!((counted.latency_ms.max - 501.0).abs() < 1.0, "{:?}", counted.latency_ms);
    assert!((counted.latency_ms.p50 - 4.0).abs() < 0.1, "{:?}", counted.latency_ms);
}

#[test]
fn a_quick_refusal_is_an_error_and_not_a_fast_order() {
    let started = Instant::now();
    let mut tally = tally(started);
    take(&mut tally, started, 1100, 1100, 1101, Ended::Status(503));
    take(&mut tally, started, 1100, 1100, 1101, Ended::Broken);
    take(&mut tally, started, 1100, 1100, 1150, Ended::Status(201));
    let counted = tally.close(0);
    assert_eq!((counted.orders, counted.orders_in_window), (1, 1));
    assert_eq!(counted.errors, BTreeMap::from([("503".to_owned(), 1), ("connection broken".to_owned(), 1)]));
    assert!((counted.latency_ms.p50 - 50.0).abs() < 0.1);
}

#[test]
fn what_was_sent_and_never_answered_is_counted_with_what_stayed_queued() {
    let started = Instant::now();
    let mut tally = tally(started);
    tally.sending();
    tally.sending();
    tally.dropped();
    take(&mut tally, started, 1100, 1100, 1150, Ended::Status(201));
    let counted = tally.close(5);
    assert_eq!((counted.orders, counted.unanswered, counted.dropped), (1, 7, 1));
}

#[test]
fn an_order_of_the_window_is_on_time_until_a_quarter_of_a_second_after_it() {
    let started = Instant::now();
    let mut tally = tally(started);
    take(&mut tally, started, 999, 999, 1100, Ended::Status(201)); // due before the window
    take(&mut tally, started, 1000, 1000, 1999, Ended::Status(201)); // on time
    take(&mut tally, started, 1999, 2100, 2250, Ended::Status(201)); // just on time
    take(&mut tally, started, 1998, 2100, 2251, Ended::Status(201)); // too late
    take(&mut tally, started, 1500, 1500, 1501, Ended::Status(503)); // not bought
    tally.scheduled(started + 1600 * MS); // dropped
    tally.dropped();
    let counted = tally.close(0);
    assert_eq!((counted.due_in_window, counted.due_on_time), (5, 2));
    assert!((counted.held_per_s - 2.0).abs() < 1e-9);
}

#[test]
fn the_backlog_is_what_is_open_when_the_window_ends() {
    let started = Instant::now();
    let mut tally = tally(started);
    tally.sending();
    take(&mut tally, started, 1100, 1100, 1150, Ended::Status(201));
    tally.window_ended(7);
    tally.record(Taken { due: started, sent: started, done: started + 3000 * MS, ended: Ended::Status(201) });
    let counted = tally.close(7);
    assert_eq!(counted.backlog, Backlog { queued: 7, unanswered: 1 });
    assert_eq!((counted.orders, counted.orders_in_window, counted.unanswered), (2, 1, 7));
}
