//! A checkout without keys. Question: what does a customer pay whose phone asks twice?
//!
//! The same door, gateway, group commit, rows and events as the api's; only nobody asks whether this is a retry. Each request is
//! a purchase, under a key at the gateway that was made for it alone. What comes twice is sold twice, and a charge whose answer
//! is lost on the way here belongs to nobody.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, Router,
    extract::{Request, State},
    response::Response,
    routing::post,
};
use sqlx::PgPool;
use time::OffsetDateTime;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    app,
    checkout::{
        admission::{Ticket, overloaded},
        charge::Charged,
        finish::{Finished, conclude},
        frozen::{Frozen, FrozenOrder},
        perform::Reply,
        settle::{Settlement, book},
        shield::Shielded,
    },
    config::ApiArgs,
    database::{
        self,
        group_commit::{Batch, GroupCommit},
    },
    gateway::client::GatewayClient,
    http::{self, Door, door, reply},
    idempotency::{
        key::{Operation, ScopeDigest},
        record::Claim,
    },
    ids::{AttemptId, CustomerId, RequestId},
    orders::{catalogue, request::OrderRequest},
    wire::problem::Problem,
};

/// `checkout no-keys`, until `stop`.
pub async fn run(args: ApiArgs, stop: CancellationToken) -> anyhow::Result<()> {
    app::api_with(args, routes, stop).await
}

fn routes(door: Door) -> Router {
    let shop = Shop {
        gateway: door.checkout.gateway.clone(),
        sales: GroupCommit::start(Sales { pool: door.checkout.pool.clone() }, door.checkout.limits),
    };
    let create = |State(door): State<Arc<Door>>, Extension(request_id): Extension<RequestId>, request: Request| async move {
        create(shop, &door, request_id, request).await
    };
    http::behind(door, Router::new().route("/v1/orders", post(create)))
}

#[derive(Debug, Clone)]
struct Shop {
    gateway: GatewayClient,
    sales: GroupCommit<Sales>,
}

/// Reads what the api reads, but a key.
async fn create(shop: Shop, door: &Door, request_id: RequestId, request: Request) -> Response {
    let answer_by = Instant::now() + Duration::from_millis(door.checkout.timing.answer_ms);
    let budget = door.checkout.timing.gateway_budget();
    let (customer, order) = match door::read_keyless::<OrderRequest>(door, request).await {
        Ok(read) => read,
        Err(problem) => return reply::problem(&problem, request_id),
    };
    let ticket = door.admission.ticket(customer);
    let work = async move { sell(&shop, customer, &order, request_id, ticket, budget).await };
    match door.shield.run(answer_by, work).await {
        Shielded::Done(Ok(sold)) => reply::reply(sold, request_id),
        Shielded::Done(Err(error)) => reply::surprise(&error, request_id),
        Shielded::Overloaded => reply::problem(&overloaded(), request_id),
        Shielded::StillRunning => reply::surprise(&anyhow::anyhow!("the sale takes too long"), request_id),
        Shielded::Broken => reply::surprise(&anyhow::anyhow!("the sale panicked"), request_id),
    }
}

/// The whole story: charge, then write it down. Nothing is known before the charge, and nothing of it afterwards if this dies.
async fn sell(
    shop: &Shop,
    customer: CustomerId,
    order: &OrderRequest,
    request_id: RequestId,
    ticket: Result<Ticket, Problem>,
    budget: Duration,
) -> anyhow::Result<Reply> {
    let _ticket = match ticket {
        Ok(ticket) => ticket,
        Err(refusal) => return Ok(Reply::Problem(refusal)),
    };
    let priced = match catalogue::price(order) {
        Ok(priced) => priced,
        Err(errors) => return Ok(Reply::Problem(Problem::invalid(errors))),
    };
    let frozen = Frozen::Order(FrozenOrder::new(customer, request_id, order, priced));
    let claim = nobodys(&frozen)?;
    let charged = Charged::Known(shop.gateway.send(&frozen.ask(claim.digest)?, budget).await);
    let (settlement, finished) = conclude(claim, &frozen, charged)?;
    shop.sales.submit(settlement).await?;
    Ok(match finished {
        Finished::Answered(response) => Reply::Fresh(response),
        Finished::Open(problem) => Reply::Problem(problem),
        Finished::Fenced => anyhow::bail!("nobody can take over what was never claimed"),
    })
}

/// What the rest of the story reads from a claim. It was not made under anybody's key, and nobody else will ever find it.
fn nobodys(frozen: &Frozen) -> anyhow::Result<Claim> {
    let now = OffsetDateTime::now_utc();
    Ok(Claim {
        digest: ScopeDigest(rand::random()),
        operation: Operation::CreateOrder,
        day: now.date(),
        fence: 1,
        attempt: AttemptId::mint(),
        tries: 0,
        resource_id: frozen.resource_id(),
        frozen: String::new(),
        maybe_sent: false,
        lease_until: now,
        first_sent_at: now,
        now,
    })
}

/// Charges, orders and events of many sales in one transaction, as the api writes them.
#[derive(Debug)]
struct Sales {
    pool: PgPool,
}

impl Batch for Sales {
    type Item = Settlement;
    type Verdict = ();

    async fn run(&self, sales: &[Settlement]) -> sqlx::Result<Vec<()>> {
        let mut tx = database::begin(&self.pool).await?;
        book(&mut tx, sales.iter()).await?;
        tx.commit().await?;
        Ok(vec![(); sales.len()])
    }
}
