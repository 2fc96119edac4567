//! The SQL of records. Every function takes a slice: a batch of one is the plain path.
//!
//! A claim is, in one READ COMMITTED transaction and in this order: [`lock`], [`newest`], then an insert or a take-over
//! ([`super::claim_store`]). The order is the proof that a key is unique although the table's unique indexes end at midnight: whoever holds the lock
//! sees, in a later statement and so by a newer snapshot, everything that earlier holders committed on any day. The caller
//! opens the transaction, because what a key bought is asked in another room.

use std::collections::HashMap;

use anyhow::Context;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{
    fingerprint::Fingerprint,
    key::{Operation, Scope, ScopeDigest},
    record::{Holding, Record, State, StoredResponse},
};
use crate::ids::AttemptId;

/// Serialises all claims on these scopes until the transaction ends. Sorted, so that two batches never wait for each other.
pub async fn lock(tx: &mut PgConnection, digests: &[ScopeDigest]) -> sqlx::Result<()> {
    let mut ids: Vec<i64> = digests.iter().map(ScopeDigest::lock_id).collect();
    ids.sort_unstable();
    ids.dedup();
    sqlx::query!("SELECT count(pg_advisory_xact_lock(id)) FROM unnest($1::bigint[]) AS id", &ids).fetch_one(tx).await?;
    Ok(())
}

/// What the database knew at one moment.
#[derive(Debug)]
pub struct Newest {
    pub now: OffsetDateTime,
    pub records: HashMap<ScopeDigest, Record>,
}

/// The newest record of each scope, over every attached day. A scope can have two: a declined one that expired, and its
/// successor.
pub async fn newest(tx: &mut PgConnection, digests: &[ScopeDigest]) -> sqlx::Result<Newest> {
    let digests: Vec<&[u8]> = digests.iter().map(|digest| &digest.0[..]).collect();
    let now = sqlx::query_scalar!(r#"SELECT db_clock() AS "now!""#).fetch_one(&mut *tx).await?;
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT r.digest AS "digest!", r.day AS "day!", r.operation AS "operation!", r.fingerprint AS "fingerprint!", r.fingerprint_version AS "fingerprint_version!",
                  r.state AS "state!", r.fence AS "fence!", r.attempt AS "attempt!", r.lease_until, r.tries AS "tries!",
                  r.resource_id AS "resource_id!", r.frozen AS "frozen!", r.first_sent_at, r.response_status,
                  r.response_content_type, r.response_location, r.response_body, r.created_at AS "created_at!", r.finished_at
           FROM unnest($1::bytea[]) AS wanted(digest)
           CROSS JOIN LATERAL (
               SELECT * FROM idempotency_records WHERE idempotency_records.digest = wanted.digest ORDER BY day DESC LIMIT 1
           ) AS r"#,
        &digests as &[&[u8]],
    )
    .fetch_all(tx)
    .await?;
    let records = rows.into_iter().map(Row::read).collect::<sqlx::Result<_>>()?;
    Ok(Newest { now, records })
}

/// The record of one scope, for whoever asks how it stands.
pub async fn find(pool: &PgPool, scope: &Scope) -> anyhow::Result<Option<(OffsetDateTime, Record)>> {
    let digest = scope.digest();
    let mut connection = pool.acquire().await.context("no database connection")?;
    let mut newest = newest(&mut connection, &[digest]).await.context("reading a record")?;
    Ok(newest.records.remove(&digest).map(|record| (newest.now, record)))
}

struct Row {
    digest: Vec<u8>,
    day: time::Date,
    operation: String,
    fingerprint: Vec<u8>,
    fingerprint_version: i16,
    state: String,
    fence: i32,
    attempt: Uuid,
    lease_until: Option<OffsetDateTime>,
    tries: i32,
    resource_id: Uuid,
    frozen: String,
    first_sent_at: Option<OffsetDateTime>,
    response_status: Option<i16>,
    response_content_type: Option<String>,
    response_location: Option<String>,
    response_body: Option<Vec<u8>>,
    created_at: OffsetDateTime,
    finished_at: Option<OffsetDateTime>,
}

impl Row {
    fn read(self) -> sqlx::Result<(ScopeDigest, Record)> {
        let digest = read_digest(&self.digest)?;
        let fingerprint = self.fingerprint.as_slice().try_into().map_err(|_| malformed("fingerprint"))?;
        let response = match (self.response_status, self.response_content_type, self.response_body) {
            (Some(status), Some(content_type), Some(body)) => Some(StoredResponse {
                status: u16::try_from(status).map_err(|_| malformed("response status"))?,
                content_type,
                location: self.response_location,
                body,
            }),
            _ => None,
        };
        let holding = match (State::from_name(&self.state), self.lease_until, response) {
            (Some(State::InFlight), Some(lease_until), None) => Holding::InFlight { lease_until },
            (Some(State::Unknown), None, None) => Holding::Unknown,
            (Some(State::NeedsReview), None, None) => Holding::NeedsReview,
            (Some(State::Completed), None, Some(response)) => Holding::Completed(response),
            (Some(State::Failed), None, Some(response)) => Holding::Failed(response),
            _ => return Err(malformed("state")),
        };
        let record = Record {
            operation: read_operation(&self.operation)?,
            fingerprint: Fingerprint { version: self.fingerprint_version, digest: fingerprint },
            holding,
            day: self.day,
            fence: self.fence,
            attempt: AttemptId(self.attempt),
            tries: self.tries,
            resource_id: self.resource_id,
            frozen: self.frozen,
            first_sent_at: self.first_sent_at,
            created_at: self.created_at,
            finished_at: self.finished_at,
        };
        Ok((digest, record))
    }
}

pub(super) fn read_digest(bytes: &[u8]) -> sqlx::Result<ScopeDigest> {
    ScopeDigest::from_slice(bytes).ok_or_else(|| malformed("digest"))
}

pub(super) fn read_operation(name: &str) -> sqlx::Result<Operation> {
    Operation::from_name(name).ok_or_else(|| malformed("operation"))
}

/// The table's CHECKs rule this out; if it happens all the same, no answer is better than a guessed one.
fn malformed(what: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("malformed {what} in idempotency_records").into())
}
