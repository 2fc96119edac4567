//! From a keyed POST that the door has let in to its answer: behind the shield, and within the time a client waits.

use std::{sync::Arc, time::Duration};

use axum::response::Response;
use tokio::time::Instant;

use super::{Door, reply, request_log::Facts};
use crate::{
    checkout::{
        admission::overloaded,
        perform::{Attempt, Reply, perform},
        shield::Shielded,
    },
    ids::RequestId,
    wire::problem::{Code, Problem},
};

/// Performs what was read, or says why it was not let in. `began`: when the request arrived, from which the answer's time counts.
pub(super) async fn answer(
    door: &Arc<Door>,
    request_id: RequestId,
    began: Instant,
    attempt: Result<Attempt, Problem>,
) -> Response {
    let attempt = match attempt {
        Ok(attempt) => attempt,
        Err(problem) => return reply::problem(&problem, request_id),
    };
    let answer_by = began + Duration::from_millis(door.checkout.timing.answer_ms);
    let facts = Facts { scope: Some(attempt.scope.clone()), ..Facts::default() };
    let (shared, ticket) = (Arc::clone(door), door.admission.ticket(attempt.scope.customer));
    // In a box before it is handed on: the future of a whole story is kilobytes, and every hand would copy it.
    let work = Box::pin(async move { perform(&shared.checkout, attempt, ticket).await });
    let mut response = match door.shield.run(answer_by, work).await {
        Shielded::Done(Ok(answer)) => reply::reply(answer, request_id),
        Shielded::Done(Err(error)) => reply::surprise(&error, request_id),
        Shielded::Overloaded => reply::problem(&overloaded(), request_id),
        Shielded::StillRunning => reply::reply(still_running(), request_id),
        Shielded::Broken => reply::surprise(&anyhow::anyhow!("the protocol panicked"), request_id),
    };
    facts.add_to(&mut response);
    response
}

fn still_running() -> Reply {
    let problem = Problem::new(Code::OutcomeUnknown, "It is still being worked on, and goes on without you.");
    Reply::Problem(problem.retry_after(Duration::from_secs(2)))
}
