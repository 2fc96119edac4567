//! THE STORY: how an intent becomes at most one order and one charge, or one refund. The only place where the rooms meet.
//!
//! ```text
//!   perform ── claim ──▶ Execute | Resume ──┐
//!                                           ├──▶ finish: charge ──▶ settle ──▶ the answer
//!   recover ── take over what is due ───────┘
//!
//!   follow ── is a refund still what the gateway says? It may fail long after its answer.
//! ```

pub mod admission;
mod answer;
pub mod bought;
pub mod charge;
pub mod claim;
pub mod claimed;
pub mod evidence;
pub mod finish;
pub mod follow;
pub mod frozen;
pub mod perform;
pub mod reconcile;
pub mod recover;
pub mod refund;
pub mod review;
pub mod settle;
pub mod shield;
pub mod upkeep;

use sqlx::PgPool;

use crate::{
    config::{DatabaseArgs, GatewayClientArgs, Timing},
    database::group_commit::{GroupCommit, Limits},
    gateway::client::GatewayClient,
};

/// Most claims, and most endings, that wait for a transaction. Beyond it the checkout says that it is overloaded.
const WAITING_MAX: usize = 8192;

/// Everything the story needs. Cheap to clone; clones share it.
#[derive(Debug, Clone)]
pub struct Checkout {
    pub pool: PgPool,
    pub gateway: GatewayClient,
    pub timing: Timing,
    /// How the claims came out.
    pub claimed: claimed::Claimed,
    /// How commits are grouped.
    pub limits: Limits,
    claims: GroupCommit<claim::Claims>,
    endings: GroupCommit<settle::Endings>,
}

impl Checkout {
    pub fn new(
        pool: PgPool,
        database: &DatabaseArgs,
        gateway: &GatewayClientArgs,
        timing: Timing,
    ) -> anyhow::Result<Self> {
        let timing = timing.checked()?;
        let limits = Limits { batch: database.batch_limit, lanes: database.batch_lanes, waiting: WAITING_MAX };
        Ok(Self {
            gateway: GatewayClient::new(gateway)?,
            claims: GroupCommit::start(claim::Claims::new(pool.clone(), &timing), limits),
            endings: GroupCommit::start(settle::Endings::new(pool.clone()), limits),
            claimed: claimed::Claimed::default(),
            limits,
            pool,
            timing,
        })
    }
}
