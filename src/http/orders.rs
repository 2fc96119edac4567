//! `/v1/orders`.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, RawQuery, Request, State, rejection::PathRejection},
    http::HeaderMap,
    response::Response,
};
use tokio::time::Instant;

use super::{
    Door,
    door::{self, Read},
    keyed,
    paging::Page,
    reply,
};
use crate::{
    checkout::perform::{Attempt, Wanted},
    idempotency::key::Operation,
    ids::{ChargeId, CustomerId, OrderId, RequestId},
    orders::store::{self, StoredOrder},
    wire::{
        order::{ChargeOfOrder, OrderBody},
        problem::{Code, Problem},
    },
};

/// `POST /v1/orders`: 201 with the order, or a problem. See [`door`] for what is refused at once and
/// [`perform`](crate::checkout::perform) for the rest.
pub(super) async fn create(
    State(door): State<Arc<Door>>,
    Extension(request_id): Extension<RequestId>,
    request: Request,
) -> Response {
    let began = Instant::now();
    let read = door::read_keyed(&door, request, Operation::CreateOrder, "/v1/orders").await;
    let attempt = read.map(|Read { scope, fingerprints, body }| {
        let wanted = Wanted::Order(body);
        Attempt { scope, fingerprints, wanted, request_id }
    });
    keyed::answer(&door, request_id, began, attempt).await
}

/// `GET /v1/orders/{id}`: an order of one's own; anybody else's is not there.
pub(super) async fn show(
    State(door): State<Arc<Door>>,
    Extension(request_id): Extension<RequestId>,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Response {
    let found = async {
        let customer = door::reader(&door, &headers)?;
        own(&door, customer, id_in(id)).await
    };
    reply::shown(found.await.map(|order| reply::json(&shown(&order), request_id)), request_id)
}

/// `GET /v1/orders`: one's own orders, newest first.
pub(super) async fn list(
    State(door): State<Arc<Door>>,
    Extension(request_id): Extension<RequestId>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let listed = async {
        let customer = door::reader(&door, &headers)?;
        let page = Page::<OrderId>::read(query.as_deref())?;
        let orders = store::list(&door.checkout.pool, customer, page.after, page.rows()).await?;
        Ok(reply::json(&page.list(&orders, |order| OrderId(order.id), shown), request_id))
    };
    reply::shown(listed.await, request_id)
}

/// The order that a path names, if that is the name of one.
pub(super) fn id_in(path: Result<Path<String>, PathRejection>) -> Option<OrderId> {
    path.ok().and_then(|Path(id)| id.parse().ok())
}

/// The order of this id, if it is this customer's.
pub(super) async fn own(
    door: &Door,
    customer: CustomerId,
    id: Option<OrderId>,
) -> Result<StoredOrder, reply::NotShown> {
    let found = match id {
        Some(id) => store::find(&door.checkout.pool, customer, id).await?,
        None => None,
    };
    Ok(found.ok_or_else(|| Problem::new(Code::NotFound, "You have no order of this id."))?)
}

fn shown(order: &StoredOrder) -> OrderBody<'_> {
    OrderBody {
        id: OrderId(order.id),
        status: &order.status,
        items: &order.items.0,
        total: order.total_minor,
        refunded: order.refunded_minor,
        currency: &order.currency,
        charge: ChargeOfOrder {
            id: ChargeId(order.charge_id),
            status: &order.charge_status,
            gateway_id: order.gateway_id.as_deref().unwrap_or_default(),
        },
        client_reference: order.client_reference.as_deref(),
        created_at: order.created_at,
        request_id: None,
    }
}
