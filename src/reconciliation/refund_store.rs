//! The SQL of what the gateway gave back and our books do not explain.

use std::collections::HashSet;

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::{Kind, State, UnexplainedRefund};

/// Writes findings down and returns those that are new. What was found before keeps its state.
pub async fn insert(tx: &mut PgConnection, found: &[UnexplainedRefund]) -> sqlx::Result<HashSet<String>> {
    let ids: Vec<&str> = found.iter().map(|new| &*new.refund_id).collect();
    let intents: Vec<Option<&str>> = found.iter().map(|new| new.payment_intent.as_deref()).collect();
    let kinds: Vec<&str> = found.iter().map(|new| new.kind.name()).collect();
    let keys: Vec<Option<&str>> = found.iter().map(|new| new.key.as_ref().map(|(key, _)| &**key)).collect();
    let digests: Vec<Option<&[u8]>> = found.iter().map(|new| new.key.as_ref().map(|(_, d)| &d[..])).collect();
    let amounts: Vec<i64> = found.iter().map(|new| new.amount_minor).collect();
    let currencies: Vec<&str> = found.iter().map(|new| &*new.currency).collect();
    let created: Vec<OffsetDateTime> = found.iter().map(|new| new.created_at).collect();
    let rows = sqlx::query_scalar!(
        "INSERT INTO reconciliation_refunds (refund_id, payment_intent, kind, gateway_key, key_digest, amount_minor, currency, created_at)
         SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::bigint[], $7::text[], $8::timestamptz[])
         ON CONFLICT DO NOTHING
         RETURNING refund_id",
        &ids as &[&str],
        &intents as &[Option<&str>],
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
    refund_id: String,
    payment_intent: Option<String>,
    kind: String,
    gateway_key: Option<String>,
    key_digest: Option<Vec<u8>>,
    amount_minor: i64,
    currency: String,
    created_at: OffsetDateTime,
    state: String,
}

impl Row {
    fn read(self) -> sqlx::Result<UnexplainedRefund> {
        let (Some(kind), Some(state)) = (Kind::from_name(&self.kind), State::from_name(&self.state)) else {
            return Err(sqlx::Error::Decode("malformed kind or state in reconciliation_refunds".into()));
        };
        let digest = self.key_digest.and_then(|digest| digest.try_into().ok());
        Ok(UnexplainedRefund {
            refund_id: self.refund_id,
            payment_intent: self.payment_intent,
            kind,
            key: self.gateway_key.zip(digest),
            amount_minor: self.amount_minor,
            currency: self.currency,
            created_at: self.created_at,
            state,
        })
    }
}

/// What may yet be explained, first what was not looked at for the longest.
pub async fn to_do(connection: &mut PgConnection, most: i64) -> sqlx::Result<Vec<UnexplainedRefund>> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT refund_id, payment_intent, kind, gateway_key, key_digest, amount_minor, currency, created_at, state
         FROM reconciliation_refunds WHERE state = 'open' AND kind <> 'foreign' ORDER BY looked_at LIMIT $1",
        most,
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter().map(Row::read).collect()
}

/// How a finding stands from now on. One that was explained meanwhile stays so.
pub async fn update(tx: &mut PgConnection, finding: &UnexplainedRefund) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE reconciliation_refunds SET kind = $2, state = $3, looked_at = db_clock() WHERE refund_id = $1 AND state = 'open'",
        finding.refund_id,
        finding.kind.name(),
        finding.state.name(),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Every finding, the newest first.
pub async fn newest(connection: &mut PgConnection, most: i64) -> sqlx::Result<Vec<UnexplainedRefund>> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT refund_id, payment_intent, kind, gateway_key, key_digest, amount_minor, currency, created_at, state
         FROM reconciliation_refunds ORDER BY created_at DESC, refund_id LIMIT $1",
        most,
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter().map(Row::read).collect()
}

/// Which of these payment intents go back because nothing of ours explained them: their refunds are the reconciler's own.
pub async fn given_back(tx: &mut PgConnection, payment_intents: &[&str]) -> sqlx::Result<HashSet<String>> {
    let rows = sqlx::query_scalar!(
        "SELECT payment_intent FROM reconciliation_findings
         WHERE payment_intent = ANY($1) AND state IN ('refunding', 'refunded')",
        payment_intents as &[&str],
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().collect())
}
