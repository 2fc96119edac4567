//! The days of the records: how long one is needed. How days are made and dropped: [`crate::database::days`].

use sqlx::{PgConnection, PgPool};
use time::Date;

use crate::database::days::{self, ByDay, Maintained, Needed};

/// Half of each page stays free: a record grows from its request to its answer, and the update then stays on its page.
pub const RECORDS: ByDay = ByDay {
    table: "idempotency_records",
    storage: "fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1",
};

/// Makes days ahead, and drops those whose records have all expired.
pub async fn maintain(pool: &PgPool, expiry: std::time::Duration) -> anyhow::Result<Maintained> {
    days::maintain(pool, RECORDS, expiry, Replayed { expiry }).await
}

/// An answer that came so late that it is still replayed, or a key whose outcome is open (one that was released unsent is
/// not).
struct Replayed {
    expiry: std::time::Duration,
}

impl Needed for Replayed {
    async fn is_needed(&self, connection: &mut PgConnection, day: Date) -> anyhow::Result<bool> {
        let found = sqlx::query_scalar!(
            r#"SELECT EXISTS (SELECT FROM idempotency_records
                               WHERE day = $1 AND state IN ('in_flight', 'unknown', 'needs_review') AND first_sent_at IS NOT NULL)
                   OR EXISTS (SELECT FROM idempotency_records
                               WHERE day = $1 AND finished_at > (SELECT db_clock()) - make_interval(secs => $2)) AS "found!""#,
            day,
            self.expiry.as_secs_f64(),
        )
        .fetch_one(connection)
        .await?;
        Ok(found)
    }
}
