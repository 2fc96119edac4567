//! `/v1/orders`.

use std::time::Duration;

use axum::{
    Extension,
    extract::{Path, Request, State, rejection::PathRejection},
    http::HeaderMap,
    response::Response,
};
use tokio::time::Instant;

use super::{Door, door, reply, request_log::Facts};
use crate::{
    checkout::{
        admission::overloaded,
        place_order::{Reply, place_order},
        shield::Shielded,
    },
    ids::{ChargeId, OrderId, RequestId},
    money::Currency,
    orders::store::{StoredOrder, find},
    wire::{
        order::{ChargeBody, OrderBody},
        problem::{Code, Problem},
    },
};

/// `POST /v1/orders`: 201 with the order, or a problem. See [`door`] for what is refused at once and
/// [`place_order`] for the rest.
pub(super) async fn create(
    State(door): State<Door>,
    Extension(request_id): Extension<RequestId>,
    request: Request,
) -> Response {
    let answer_by = Instant::now() + Duration::from_millis(door.checkout.timing.answer_ms);
    let attempt = match door::read_order(&door, request, request_id).await {
        Ok(attempt) => attempt,
        Err(problem) => return reply::problem(&problem, request_id),
    };
    let facts = Facts { scope: Some(attempt.scope.clone()), ..Facts::default() };
    let (checkout, ticket) = (door.checkout.clone(), door.admission.ticket(attempt.scope.customer));
    let work = async move { place_order(&checkout, attempt, ticket).await };
    let mut response = match door.shield.run(answer_by, work).await {
        Shielded::Done(Ok(answer)) => reply::reply(answer, request_id),
        Shielded::Done(Err(error)) => reply::surprise(&error, request_id),
        Shielded::StillRunning => reply::reply(still_running(), request_id),
        Shielded::Overloaded => reply::problem(&overloaded(), request_id),
        Shielded::Broken => reply::surprise(&anyhow::anyhow!("the protocol panicked"), request_id),
    };
    facts.add_to(&mut response);
    response
}

fn still_running() -> Reply {
    let problem = Problem::new(Code::OutcomeUnknown, "It is still being worked on, and goes on without you.");
    Reply::Problem(problem.retry_after(Duration::from_secs(2)))
}

/// `GET /v1/orders/{id}`: an order of one's own; anybody else's is not there.
pub(super) async fn show(
    State(door): State<Door>,
    Extension(request_id): Extension<RequestId>,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Response {
    let customer = match door::reader(&door, &headers) {
        Ok(customer) => customer,
        Err(problem) => return reply::problem(&problem, request_id),
    };
    let found = match id.ok().and_then(|Path(id)| id.parse::<OrderId>().ok()) {
        Some(id) => find(&door.checkout.pool, customer, id).await,
        None => Ok(None),
    };
    match found {
        Ok(Some(order)) => shown(&order, request_id),
        Ok(None) => reply::problem(&Problem::new(Code::NotFound, "You have no order of this id."), request_id),
        Err(error) => reply::surprise(&error, request_id),
    }
}

fn shown(order: &StoredOrder, request_id: RequestId) -> Response {
    let Some(currency) = Currency::from_code(&order.currency) else {
        return reply::surprise(&anyhow::anyhow!("order {} has an unknown currency", order.id), request_id);
    };
    let body = OrderBody {
        id: OrderId(order.id),
        status: &order.status,
        items: &order.items.0,
        total: order.total_minor,
        currency,
        charge: ChargeBody {
            id: ChargeId(order.charge_id),
            status: &order.charge_status,
            gateway_id: order.gateway_id.as_deref().unwrap_or_default(),
        },
        client_reference: order.client_reference.as_deref(),
        created_at: order.created_at,
        request_id: None,
    };
    reply::json(&body, request_id)
}
