//! Reconciliation's findings: the question about what is on its way back.

use std::{collections::HashSet, time::Duration};

use sqlx::PgConnection;
use time::OffsetDateTime;

/// Payment intents whose refund is promised and somebody is at it: within the grace it was looked at. And those whose refund was
/// written down after the gateway had been asked, whose list did not know of it yet.
pub(crate) async fn going_back(
    tx: &mut PgConnection,
    grace: Duration,
    asked_at: OffsetDateTime,
) -> sqlx::Result<HashSet<String>> {
    let found = sqlx::query_scalar!(
        "SELECT payment_intent FROM reconciliation_findings
         WHERE (state = 'refunding' AND looked_at + make_interval(secs => $1) >= (SELECT db_clock()))
            OR (state = 'refunded' AND looked_at >= $2)",
        grace.as_secs_f64(),
        asked_at,
    )
    .fetch_all(tx)
    .await?;
    Ok(found.into_iter().collect())
}
