//! The loop, with a scripted transport and a clock that nobody waits for.

use std::{collections::HashSet, sync::Mutex};

use super::*;
use crate::{
    ids::RequestId,
    wire::problem::{self, Code},
};

/// Answers as told, the last one for ever.
struct Script(Mutex<Vec<Heard>>);

impl Script {
    fn of(mut heard: Vec<Heard>) -> Self {
        heard.reverse();
        Self(Mutex::new(heard))
    }
}

impl Transport for Script {
    async fn attempt(&self, _key: Option<&str>) -> Heard {
        let mut left = self.0.lock().unwrap();
        if left.len() > 1 { left.pop().unwrap() } else { left[0].clone() }
    }
}

fn answer(status: u16, body: Vec<u8>) -> Answer {
    Answer { status, replayed: false, location: None, retry_after: None, body }
}

fn problem(code: Code) -> Heard {
    Heard::read(answer(code.status(), problem::Problem::new(code, "a detail").body(RequestId::mint())))
}

fn problem_after(code: Code, seconds: u64) -> Heard {
    let wait = Some(Duration::from_secs(seconds));
    let body = problem::Problem::new(code, "a detail").body(RequestId::mint());
    Heard::read(Answer { retry_after: wait, ..answer(code.status(), body) })
}

fn created() -> Heard {
    Heard::read(answer(201, br#"{"id": "o1"}"#.to_vec()))
}

fn silence() -> Heard {
    Heard::NoAnswer { why: "timed out".to_owned() }
}

async fn told(script: Vec<Heard>, policy: &KeyPolicy) -> Told {
    obey(&Script::of(script), policy, &Patience::PHONE, &CancellationToken::new()).await
}

fn distinct_keys(told: &Told) -> usize {
    told.history.iter().map(|attempt| attempt.key.as_deref()).collect::<HashSet<_>>().len()
}

#[tokio::test(start_paused = true)]
async fn every_row_of_the_problem_table_is_obeyed_as_it_says() {
    for &code in Code::ALL {
        let told = told(vec![problem(code), created()], &KeyPolicy::tap()).await;
        let (attempts, name) = (told.history.len(), code.name());
        match (code.retry(), &told.outcome) {
            (Retry::SameKey, Outcome::Ok(_)) => assert_eq!((attempts, distinct_keys(&told)), (2, 1), "{name}"),
            (Retry::NewKey, Outcome::Refused { refusal: Refusal::NewKey, problem, .. })
            | (Retry::Never, Outcome::Refused { refusal: Refusal::Never, problem, .. }) => {
                assert_eq!((attempts, problem.code.as_str()), (1, name));
            }
            (_, other) => panic!("{name}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_leaves_the_outcome_open_is_sent_again_under_the_same_key() {
    let open = [
        silence(),
        Heard::NotSent { why: "refused".to_owned() },
        Heard::Truncated { status: 201 },
        Heard::Unreadable { status: 403 },
        problem(Code::OutcomeUnknown),
        created(),
    ];
    let told = told(open.to_vec(), &KeyPolicy::tap()).await;
    assert_eq!((told.history.len(), distinct_keys(&told)), (6, 1));
    assert!(matches!(told.outcome, Outcome::Ok(_)));
}

#[tokio::test(start_paused = true)]
async fn the_bug_that_shipped_sends_another_key_each_time() {
    let told = told(vec![silence(), silence(), created()], &KeyPolicy::PerAttempt).await;
    assert_eq!((told.history.len(), distinct_keys(&told)), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn giving_up_is_unknown_and_never_failed() {
    let told_nothing = told(vec![silence()], &KeyPolicy::tap()).await;
    assert_eq!(told_nothing.outcome, Outcome::Unknown(GaveUp::Attempts));
    assert_eq!(told_nothing.history.len(), 6);
    // Nothing was done, says the server, each time: for this key that is still not an end.
    let busy = told(vec![problem(Code::Overloaded)], &KeyPolicy::tap()).await;
    assert_eq!(busy.outcome, Outcome::Unknown(GaveUp::Attempts));
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_waited_for_and_one_beyond_the_horizon_ends_it() {
    let told_to_wait = told(vec![problem_after(Code::RequestInProgress, 20), created()], &KeyPolicy::tap()).await;
    let second = told_to_wait.history[1].began;
    assert!(second >= Duration::from_secs(20) && second < Duration::from_millis(20_600), "{second:?}");

    let began = Instant::now();
    let never = told(vec![problem_after(Code::RateLimited, 3_600), created()], &KeyPolicy::tap()).await;
    assert_eq!((never.outcome, never.history.len()), (Outcome::Unknown(GaveUp::Horizon), 1));
    assert_eq!(began.elapsed(), Duration::ZERO, "it waited in vain");
}

/// Each attempt takes most of an answer's time, so that the horizon comes before the last attempt.
struct Slow;

impl Transport for Slow {
    async fn attempt(&self, _key: Option<&str>) -> Heard {
        sleep(Duration::from_secs(25)).await;
        silence()
    }
}

#[tokio::test(start_paused = true)]
async fn no_attempt_begins_after_the_horizon() {
    let told = obey(&Slow, &KeyPolicy::tap(), &Patience::PHONE, &CancellationToken::new()).await;
    assert_eq!(told.outcome, Outcome::Unknown(GaveUp::Horizon));
    assert!(told.history.iter().all(|attempt| attempt.began <= Patience::PHONE.horizon), "{:?}", told.history);
    assert!(told.history.len() < 6 && told.history.iter().all(|attempt| attempt.took == Duration::from_secs(25)));
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_waiting_and_not_the_attempt() {
    let stop = CancellationToken::new();
    stop.cancel();
    let ended = obey(&Script::of(vec![silence()]), &KeyPolicy::tap(), &Patience::PHONE, &stop).await;
    assert_eq!((ended.outcome, ended.history.len()), (Outcome::Unknown(GaveUp::Stopped), 1));
    let answered = obey(&Script::of(vec![created()]), &KeyPolicy::tap(), &Patience::PHONE, &stop).await;
    assert!(matches!(answered.outcome, Outcome::Ok(_)));
}

/// A client that shares its retries with others, and has none left.
struct Spent(Script);

impl Transport for Spent {
    async fn attempt(&self, key: Option<&str>) -> Heard {
        self.0.attempt(key).await
    }

    fn may_retry(&self) -> bool {
        false
    }
}

#[tokio::test(start_paused = true)]
async fn a_spent_budget_ends_the_retries_and_no_first_attempt() {
    let told = |script| async {
        obey(&Spent(Script::of(script)), &KeyPolicy::tap(), &Patience::PHONE, &CancellationToken::new()).await
    };
    let unanswered = told(vec![silence(), created()]).await;
    assert_eq!((unanswered.outcome, unanswered.history.len()), (Outcome::Unknown(GaveUp::Budget), 1));
    assert!(matches!(told(vec![created()]).await.outcome, Outcome::Ok(_)));
}
