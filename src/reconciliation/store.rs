//! The SQL of reconciliation.

use std::collections::HashSet;

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::{Finding, Kind, List, Progress, State, Window};

pub async fn progress(connection: &mut PgConnection, list: List) -> sqlx::Result<Progress> {
    let row =
        sqlx::query!("SELECT reached_s, until_s, after_id FROM reconciliation_progress WHERE slot = $1", list.slot())
            .fetch_one(connection)
            .await?;
    let window = row.until_s.map(|until_s| Window { until_s, after_id: row.after_id });
    Ok(Progress { reached_s: row.reached_s, window })
}

/// Moves on, if nobody else did meanwhile: a reconciler that was paused past its lease must not set another one back.
pub async fn advance(tx: &mut PgConnection, list: List, from: &Progress, to: &Progress) -> sqlx::Result<bool> {
    let (from_until, from_after) = split(from);
    let (to_until, to_after) = split(to);
    let moved = sqlx::query!(
        "UPDATE reconciliation_progress SET reached_s = $4, until_s = $5, after_id = $6
         WHERE slot = $7 AND reached_s = $1 AND until_s IS NOT DISTINCT FROM $2 AND after_id IS NOT DISTINCT FROM $3",
        from.reached_s,
        from_until,
        from_after,
        to.reached_s,
        to_until,
        to_after,
        list.slot(),
    )
    .execute(tx)
    .await?;
    Ok(moved.rows_affected() == 1)
}

fn split(progress: &Progress) -> (Option<i64>, Option<&str>) {
    let window = progress.window.as_ref();
    (window.map(|window| window.until_s), window.and_then(|window| window.after_id.as_deref()))
}

/// Something found in the gateway's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFinding<'a> {
    pub payment_intent: &'a str,
    pub kind: Kind,
    /// Our key and its digest, if there is one.
    pub key: Option<(&'a str, [u8; 32])>,
    pub amount_minor: i64,
    pub currency: &'a str,
    pub created_at: OffsetDateTime,
}

/// Writes findings down and returns those that are new. What was found before keeps its state.
pub async fn insert(tx: &mut PgConnection, found: &[NewFinding<'_>]) -> sqlx::Result<HashSet<String>> {
    let intents: Vec<&str> = found.iter().map(|new| new.payment_intent).collect();
    let kinds: Vec<&str> = found.iter().map(|new| new.kind.name()).collect();
    let keys: Vec<Option<&str>> = found.iter().map(|new| new.key.map(|(key, _)| key)).collect();
    let digests: Vec<Option<&[u8]>> = found.iter().map(|new| new.key.as_ref().map(|(_, d)| &d[..])).collect();
    let amounts: Vec<i64> = found.iter().map(|new| new.amount_minor).collect();
    let currencies: Vec<&str> = found.iter().map(|new| new.currency).collect();
    let created: Vec<OffsetDateTime> = found.iter().map(|new| new.created_at).collect();
    let rows = sqlx::query_scalar!(
        "INSERT INTO reconciliation_findings (payment_intent, kind, gateway_key, key_digest, amount_minor, currency, created_at)
         SELECT payment_intent, kind, gateway_key, key_digest, amount_minor, currency, created_at
         FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::bigint[], $6::text[], $7::timestamptz[])
             AS n(payment_intent, kind, gateway_key, key_digest, amount_minor, currency, created_at)
         ON CONFLICT DO NOTHING
         RETURNING payment_intent",
        &intents as &[&str],
        &kinds as &[&str],
        &keys as &[Option<&str>],
        &digests as &[Option<&[u8]>],
        &amounts,
        &currencies as &[&str],
        &created,
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().collect())
}

struct Row {
    payment_intent: String,
    kind: String,
    gateway_key: Option<String>,
    amount_minor: i64,
    currency: String,
    created_at: OffsetDateTime,
    state: String,
    refund_id: Option<String>,
    detail: Option<String>,
}

impl Row {
    fn read(self) -> sqlx::Result<Finding> {
        let (Some(kind), Some(state)) = (Kind::from_name(&self.kind), State::from_name(&self.state)) else {
            return Err(sqlx::Error::Decode("malformed kind or state in reconciliation_findings".into()));
        };
        Ok(Finding {
            payment_intent: self.payment_intent,
            kind,
            gateway_key: self.gateway_key,
            amount_minor: self.amount_minor,
            currency: self.currency,
            created_at: self.created_at,
            state,
            refund_id: self.refund_id,
            detail: self.detail,
        })
    }
}

/// What still needs somebody, first what was not looked at for the longest.
pub async fn to_do(connection: &mut PgConnection, most: i64) -> sqlx::Result<Vec<Finding>> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT payment_intent, kind, gateway_key, amount_minor, currency, created_at, state, refund_id, detail
         FROM reconciliation_findings WHERE state IN ('open', 'refunding') AND kind <> 'foreign'
         ORDER BY looked_at LIMIT $1",
        most,
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter().map(Row::read).collect()
}

/// The key of a finding.
pub async fn key_of(connection: &mut PgConnection, payment_intent: &str) -> sqlx::Result<Option<String>> {
    let key = sqlx::query_scalar!(
        "SELECT gateway_key FROM reconciliation_findings WHERE payment_intent = $1",
        payment_intent
    )
    .fetch_optional(connection)
    .await?;
    Ok(key.flatten())
}

/// One finding, which nobody else changes until the transaction ends.
pub async fn take(tx: &mut PgConnection, payment_intent: &str) -> sqlx::Result<Option<Finding>> {
    let row = sqlx::query_as!(
        Row,
        "SELECT payment_intent, kind, gateway_key, amount_minor, currency, created_at, state, refund_id, detail
         FROM reconciliation_findings WHERE payment_intent = $1 FOR UPDATE",
        payment_intent,
    )
    .fetch_optional(tx)
    .await?;
    row.map(Row::read).transpose()
}

/// How a finding stands from now on.
pub async fn update(tx: &mut PgConnection, finding: &Finding) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE reconciliation_findings SET kind = $2, state = $3, refund_id = $4, detail = $5, looked_at = db_clock()
         WHERE payment_intent = $1",
        finding.payment_intent,
        finding.kind.name(),
        finding.state.name(),
        finding.refund_id,
        finding.detail,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Every finding, the newest first.
pub async fn newest(connection: &mut PgConnection, most: i64) -> sqlx::Result<Vec<Finding>> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT payment_intent, kind, gateway_key, amount_minor, currency, created_at, state, refund_id, detail
         FROM reconciliation_findings ORDER BY created_at DESC, payment_intent LIMIT $1",
        most,
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter().map(Row::read).collect()
}

/// The payment intents found under a key, with their state.
pub async fn under(connection: &mut PgConnection, digest: &[u8; 32]) -> sqlx::Result<Vec<(String, State)>> {
    let rows = sqlx::query!(
        "SELECT payment_intent, state FROM reconciliation_findings WHERE key_digest = $1 ORDER BY created_at DESC LIMIT 100",
        &digest[..],
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| match State::from_name(&row.state) {
            Some(state) => Ok((row.payment_intent, state)),
            None => Err(sqlx::Error::Decode("malformed state in reconciliation_findings".into())),
        })
        .collect()
}

/// Under which of these keys anything was ever found.
pub async fn found_at_all(tx: &mut PgConnection, digests: &[[u8; 32]]) -> sqlx::Result<HashSet<[u8; 32]>> {
    let digests: Vec<&[u8]> = digests.iter().map(|digest| &digest[..]).collect();
    let rows = sqlx::query_scalar!(
        r#"SELECT f.key_digest AS "key_digest!"
           FROM unnest($1::bytea[]) AS wanted(digest)
           CROSS JOIN LATERAL (
               SELECT key_digest FROM reconciliation_findings WHERE reconciliation_findings.key_digest = wanted.digest LIMIT 1
           ) AS f"#,
        &digests as &[&[u8]],
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().filter_map(|digest| digest.try_into().ok()).collect())
}
