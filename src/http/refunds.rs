//! `/v1/orders/{id}/refunds`: money that goes back, all of an order or parts of it.

use std::sync::Arc;

use anyhow::Context;
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
    keyed, orders,
    paging::Page,
    reply,
};
use crate::{
    checkout::{
        perform::{Attempt, Wanted},
        refund::WantedRefund,
    },
    idempotency::key::Operation,
    ids::{CustomerId, OrderId, RefundId, RequestId},
    money::{Currency, Money},
    orders::store::StoredOrder,
    refunds::{
        request::RefundRequest,
        store::{self, StoredRefund},
    },
    wire::{
        problem::{Code, Problem},
        refund::{self, RefundBody},
    },
};

/// `POST /v1/orders/{id}/refunds`: 201 with the refund, or a problem. Without an amount: all that is left.
pub(super) async fn create(
    State(door): State<Arc<Door>>,
    Extension(request_id): Extension<RequestId>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let began = Instant::now();
    let attempt = async {
        let id = orders::id_in(id);
        let path = id.map(refund::list_location).unwrap_or_default();
        let read: Read<RefundRequest> = door::read_keyed(&door, request, Operation::RefundOrder, &path).await?;
        let order = refunded_order(&door, read.scope.customer, id).await?;
        Ok(attempt(read, &order, request_id)?)
    };
    match attempt.await {
        Ok(attempt) => keyed::answer(&door, request_id, began, Ok(attempt)).await,
        Err(not_read) => reply::shown(Err(not_read), request_id),
    }
}

/// An order that is there stays there: this is no check that a retry could fail where its first attempt did not. And looking for
/// one that is not there is counted as reading is.
async fn refunded_order(
    door: &Door,
    customer: CustomerId,
    id: Option<OrderId>,
) -> Result<StoredOrder, reply::NotShown> {
    let order = orders::own(door, customer, id).await;
    if order.is_err() {
        door::one_more_read(door, customer)?;
    }
    order
}

fn attempt(read: Read<RefundRequest>, order: &StoredOrder, request_id: RequestId) -> anyhow::Result<Attempt> {
    let Read { scope, fingerprints, body } = read;
    let currency = Currency::from_code(&order.currency).context("an order in an unknown currency")?;
    let wanted = Wanted::Refund(WantedRefund {
        order: OrderId(order.id),
        customer: scope.customer,
        request_id,
        payment_intent: order.gateway_id.clone().context("an order whose charge has no name at the gateway")?,
        total: Money::new(order.total_minor, currency).context("an order of an impossible amount")?,
        amount_minor: body.amount,
    });
    Ok(Attempt { scope, fingerprints, wanted, request_id })
}

/// `GET /v1/orders/{id}/refunds/{refund_id}`: one refund of an order of one's own.
pub(super) async fn show(
    State(door): State<Arc<Door>>,
    Extension(request_id): Extension<RequestId>,
    ids: Result<Path<(String, String)>, PathRejection>,
    headers: HeaderMap,
) -> Response {
    let found = async {
        let customer = door::reader(&door, &headers)?;
        let ids = ids.ok().and_then(|Path((order, id))| Some((order.parse().ok()?, id.parse().ok()?)));
        let refund = match ids {
            Some((order, id)) => store::find(&door.checkout.pool, customer, order, id).await?,
            None => None,
        };
        let refund = refund.ok_or_else(|| Problem::new(Code::NotFound, "You have no refund of this id."))?;
        Ok(reply::json(&shown(&refund), request_id))
    };
    reply::shown(found.await, request_id)
}

/// `GET /v1/orders/{id}/refunds`: the refunds of an order of one's own, newest first.
pub(super) async fn list(
    State(door): State<Arc<Door>>,
    Extension(request_id): Extension<RequestId>,
    id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let listed = async {
        let customer = door::reader(&door, &headers)?;
        let page = Page::<RefundId>::read(query.as_deref())?;
        let order = orders::own(&door, customer, orders::id_in(id)).await?;
        let refunds = store::list(&door.checkout.pool, OrderId(order.id), page.after, page.rows()).await?;
        Ok(reply::json(&page.list(&refunds, |refund| RefundId(refund.id), shown), request_id))
    };
    reply::shown(listed.await, request_id)
}

fn shown(refund: &StoredRefund) -> RefundBody<'_> {
    RefundBody {
        id: RefundId(refund.id),
        order_id: OrderId(refund.order_id),
        status: if refund.status == "reserved" || refund.pending { "pending" } else { &refund.status },
        amount: refund.amount_minor,
        currency: &refund.currency,
        gateway_id: refund.gateway_id.as_deref(),
        created_at: refund.created_at,
        request_id: None,
    }
}
