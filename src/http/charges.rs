//! `/v1/charges`: an amount, and nothing that is bought with it.

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
    charges::store::{self, StoredCharge},
    checkout::perform::{Attempt, Wanted},
    idempotency::key::Operation,
    ids::{ChargeId, RequestId},
    wire::{
        charge::ChargeBody,
        problem::{Code, Problem},
    },
};

/// `POST /v1/charges`: 201 with the charge, or a problem.
pub(super) async fn create(
    State(door): State<Arc<Door>>,
    Extension(request_id): Extension<RequestId>,
    request: Request,
) -> Response {
    let began = Instant::now();
    let read = door::read_keyed(&door, request, Operation::CreateCharge, "/v1/charges").await;
    let attempt = read.map(|Read { scope, fingerprints, body }| {
        let wanted = Wanted::Charge(body);
        Attempt { scope, fingerprints, wanted, request_id }
    });
    keyed::answer(&door, request_id, began, attempt).await
}

/// `GET /v1/charges/{id}`: a charge of one's own, an order's or one that stands alone.
pub(super) async fn show(
    State(door): State<Arc<Door>>,
    Extension(request_id): Extension<RequestId>,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Response {
    let found = async {
        let customer = door::reader(&door, &headers)?;
        let charge = match id.ok().and_then(|Path(id)| id.parse::<ChargeId>().ok()) {
            Some(id) => store::find(&door.checkout.pool, customer, id).await?,
            None => None,
        };
        let charge = charge.ok_or_else(|| Problem::new(Code::NotFound, "You have no charge of this id."))?;
        Ok(reply::json(&shown(&charge), request_id))
    };
    reply::shown(found.await, request_id)
}

/// `GET /v1/charges`: one's own charges that stand alone, newest first.
pub(super) async fn list(
    State(door): State<Arc<Door>>,
    Extension(request_id): Extension<RequestId>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let listed = async {
        let customer = door::reader(&door, &headers)?;
        let page = Page::<ChargeId>::read(query.as_deref())?;
        let charges = store::list(&door.checkout.pool, customer, page.after, page.rows()).await?;
        Ok(reply::json(&page.list(&charges, |charge| ChargeId(charge.id), shown), request_id))
    };
    reply::shown(listed.await, request_id)
}

fn shown(charge: &StoredCharge) -> ChargeBody<'_> {
    ChargeBody {
        id: ChargeId(charge.id),
        status: &charge.status,
        amount: charge.amount_minor,
        currency: &charge.currency,
        gateway_id: charge.gateway_id.as_deref(),
        decline_code: charge.decline_code.as_deref(),
        client_reference: charge.client_reference.as_deref(),
        created_at: charge.created_at,
        request_id: None,
    }
}
