//! The SQL of the counts that the quota of live keys is judged by. Both functions take many customers at once.

use sqlx::{PgConnection, PgPool};

use crate::database;

/// Keys of one customer that are counted, on one of the days that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DayCount {
    pub customer: i64,
    /// Until that day's last key is forgotten, in seconds.
    pub frees_in_s: i64,
    pub keys: i64,
}

/// Adds what was begun, and returns what counts now for these customers, the day that ends first at the front. A key counts
/// until the end of the day on which the last key of its own day expires: so long its partition is kept.
pub async fn exchange(
    pool: &PgPool,
    customers: &[i64],
    begun: &[i64],
    expiry_hours: i32,
) -> sqlx::Result<Vec<DayCount>> {
    let mut tx = database::begin(pool).await?;
    add(&mut tx, customers, begun).await?;
    let counts = sqlx::query_as!(
        DayCount,
        // The days first, each with its end: the clock is asked once, and not for every customer of every day.
        r#"WITH moment AS MATERIALIZED (SELECT db_clock() AS now, db_day() AS today),
                days AS MATERIALIZED (
                    SELECT today - ago AS day,
                           ((today - ago + 1)::timestamp AT TIME ZONE 'UTC') + make_interval(hours => $2) - now AS frees_in
                    FROM moment, generate_series(0, $2 / 24 + 1) AS ago
                )
           SELECT k.customer_id AS "customer!", k.keys AS "keys!", ceil(extract(epoch FROM d.frees_in))::bigint AS "frees_in_s!"
           FROM days AS d
           CROSS JOIN unnest($1::bigint[]) AS wanted(customer)
           CROSS JOIN LATERAL (SELECT * FROM live_keys WHERE live_keys.day = d.day AND live_keys.customer_id = wanted.customer) AS k
           WHERE d.frees_in > interval '0'
           ORDER BY d.day"#,
        customers,
        expiry_hours,
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(counts)
}

/// In the order of the customers, so that two processes never wait for each other in a circle.
async fn add(tx: &mut PgConnection, customers: &[i64], begun: &[i64]) -> sqlx::Result<()> {
    sqlx::query!(
        "INSERT INTO live_keys (day, customer_id, keys)
         SELECT db_day(), customer, keys FROM unnest($1::bigint[], $2::bigint[]) AS n(customer, keys) WHERE keys > 0 ORDER BY customer
         ON CONFLICT (day, customer_id) DO UPDATE SET keys = live_keys.keys + excluded.keys",
        customers,
        begun,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Days on which no key can live any more.
pub async fn forget_old(pool: &PgPool, expiry_hours: i32) -> sqlx::Result<u64> {
    let mut tx = database::begin(pool).await?;
    let gone = sqlx::query!("DELETE FROM live_keys WHERE day < db_day() - ($1::int / 24 + 2)", expiry_hours)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(gone.rows_affected())
}
