//! Step 6, recovery: what a dead process or an unknown outcome left behind is finished by the request path's own functions.

use std::time::Duration;

use anyhow::Context;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::{
    Checkout,
    finish::{Finished, finish},
};
use crate::{
    crash_point::crash_point,
    database,
    idempotency::{claim_store, record::Claim},
};

/// Most records that one round takes over. All of them are worked on at once: their leases are running.
const ROUND_MAX: i64 = 32;

/// What one round came to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Recovered {
    /// Records with an answer now.
    pub answered: usize,
    /// Still open, and scheduled again or handed to a person.
    pub open: usize,
    /// Taken over by somebody else meanwhile, or failed; a later round sees them.
    pub left: usize,
}

/// Takes over whatever is due and finishes it. Safe to run anywhere, any number at once: rows are skipped while another round
/// holds them, and the fence decides in the end.
pub async fn recover_once(checkout: &Checkout) -> anyhow::Result<Recovered> {
    let asked_at = Instant::now();
    let claims = take_over_due(checkout).await?;
    let finished = join_all(claims.into_iter().map(|claim| recovered(checkout, claim, asked_at))).await;
    let mut round = Recovered::default();
    for finished in finished {
        match finished {
            Some(Finished::Answered(_)) => round.answered += 1,
            Some(Finished::Open(_)) => round.open += 1,
            Some(Finished::Fenced) | None => round.left += 1,
        }
    }
    Ok(round)
}

async fn take_over_due(checkout: &Checkout) -> anyhow::Result<Vec<Claim>> {
    let mut tx = database::begin(&checkout.pool).await?;
    let lease = Duration::from_millis(checkout.timing.lease_ms);
    let claims = claim_store::take_over_due(&mut tx, ROUND_MAX, lease).await.context("looking for what is due")?;
    tx.commit().await?;
    if !claims.is_empty() {
        crash_point!(RecoveryTakenOver);
    }
    Ok(claims)
}

async fn recovered(checkout: &Checkout, claim: Claim, asked_at: Instant) -> Option<Finished> {
    let (digest, fence) = (claim.digest, claim.fence);
    match finish(checkout, claim, asked_at).await {
        Ok(finished) => {
            crash_point!(RecoveryFinished);
            let (status, detail) = match &finished {
                Finished::Answered(response) => (response.status, ""),
                Finished::Open(problem) => (problem.code.status(), problem.detail.as_str()),
                Finished::Fenced => (0, "another owner was faster"),
            };
            tracing::info!(gateway_key = %digest, fence, status, detail, "recovered");
            Some(finished)
        }
        Err(error) => {
            tracing::error!(gateway_key = %digest, fence, error = format!("{error:#}"), "a recovery failed");
            None
        }
    }
}
