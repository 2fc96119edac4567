//! `/v1/customers/me/email`: naturally idempotent. Setting what is set already is no second time of anything, so there is no key,
//! no record and no lock.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Request, State},
    http::HeaderMap,
    response::Response,
};

use super::{Door, door, reply};
use crate::{
    customers::{
        request::EmailRequest,
        store::{self, Email},
    },
    ids::RequestId,
    wire::{
        customer::EmailBody,
        problem::{Code, Problem},
    },
};

/// `PUT /v1/customers/me/email`: 200 with what is set now.
pub(super) async fn set_email(
    State(door): State<Arc<Door>>,
    Extension(request_id): Extension<RequestId>,
    request: Request,
) -> Response {
    let set = async {
        let (customer, EmailRequest { email }) = door::read_unkeyed(&door, request).await?;
        let set = store::set_email(&door.checkout.pool, customer, &email).await?;
        Ok(reply::json(&shown(&set), request_id))
    };
    reply::shown(set.await, request_id)
}

/// `GET /v1/customers/me/email`: 404 until one was set.
pub(super) async fn email(
    State(door): State<Arc<Door>>,
    Extension(request_id): Extension<RequestId>,
    headers: HeaderMap,
) -> Response {
    let found = async {
        let customer = door::reader(&door, &headers)?;
        let set = store::email(&door.checkout.pool, customer).await?;
        let set = set.ok_or_else(|| Problem::new(Code::NotFound, "You have not set an e-mail address."))?;
        Ok(reply::json(&shown(&set), request_id))
    };
    reply::shown(found.await, request_id)
}

fn shown(set: &Email) -> EmailBody<'_> {
    EmailBody { email: &set.email, updated_at: set.updated_at }
}
