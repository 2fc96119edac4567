//! The SQL that makes somebody the owner of a record: a new one, one whose owner is gone, or whatever is due.
//!
//! Only ever after [`super::store::lock`] and [`super::store::newest`] in the same transaction; recovery alone comes without, and
//! skips rows that somebody holds.
//!
//! Where a record must be in flight, the statements say `lease_until IS NOT NULL` (a CHECK makes it the same): naming the
//! state would let the planner walk the whole index of unresolved records in place of one probe of the primary key.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    fingerprint::Fingerprint,
    key::{Operation, Scope, ScopeDigest},
    record::{Claim, Record},
    store::{read_digest, read_operation},
};
use crate::ids::AttemptId;

/// A record to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewRecord<'a> {
    pub scope: &'a Scope,
    pub digest: ScopeDigest,
    pub fingerprint: Fingerprint,
    pub attempt: AttemptId,
    pub resource_id: Uuid,
    pub frozen: &'a str,
}

/// Claims scopes nobody used. Its day, its lease and its first send are taken from one reading of the clock. A scope that is
/// not in the answer was claimed by somebody who did not take the lock: leave it alone.
pub async fn insert(
    tx: &mut PgConnection,
    new: &[NewRecord<'_>],
    lease: Duration,
) -> sqlx::Result<HashMap<ScopeDigest, Claim>> {
    let digests: Vec<&[u8]> = new.iter().map(|r| &r.digest.0[..]).collect();
    let customers: Vec<i64> = new.iter().map(|r| r.scope.customer.0).collect();
    let operations: Vec<&str> = new.iter().map(|r| r.scope.operation.name()).collect();
    let keys: Vec<&str> = new.iter().map(|r| r.scope.key.as_str()).collect();
    let fingerprints: Vec<&[u8]> = new.iter().map(|r| &r.fingerprint.digest[..]).collect();
    let versions: Vec<i16> = new.iter().map(|r| r.fingerprint.version).collect();
    let attempts: Vec<Uuid> = new.iter().map(|r| r.attempt.0).collect();
    let resources: Vec<Uuid> = new.iter().map(|r| r.resource_id).collect();
    let frozen: Vec<&str> = new.iter().map(|r| r.frozen).collect();
    let rows = sqlx::query!(
        r#"WITH moment AS MATERIALIZED (SELECT db_clock() AS now)
           INSERT INTO idempotency_records
               (digest, day, customer_id, operation, key, fingerprint, fingerprint_version, state, fence, attempt, lease_until,
                resource_id, frozen, first_sent_at, created_at)
           SELECT n.digest, (moment.now AT TIME ZONE 'UTC')::date, n.customer_id, n.operation, n.key, n.fingerprint, n.version,
                  'in_flight', 1, n.attempt, moment.now + make_interval(secs => $10), n.resource_id, n.frozen, moment.now, moment.now
           FROM moment, unnest($1::bytea[], $2::bigint[], $3::text[], $4::text[], $5::bytea[], $6::smallint[], $7::uuid[], $8::uuid[], $9::text[])
               AS n(digest, customer_id, operation, key, fingerprint, version, attempt, resource_id, frozen)
           ON CONFLICT DO NOTHING
           RETURNING digest, day, lease_until AS "lease_until!", created_at"#,
        &digests as &[&[u8]],
        &customers,
        &operations as &[&str],
        &keys as &[&str],
        &fingerprints as &[&[u8]],
        &versions,
        &attempts,
        &resources,
        &frozen as &[&str],
        lease.as_secs_f64(),
    )
    .fetch_all(tx)
    .await?;

    let wanted: HashMap<ScopeDigest, &NewRecord<'_>> = new.iter().map(|record| (record.digest, record)).collect();
    let mut claims = HashMap::with_capacity(rows.len());
    for row in rows {
        let digest = read_digest(&row.digest)?;
        let Some(record) = wanted.get(&digest) else { continue };
        let claim = Claim {
            digest,
            operation: record.scope.operation,
            day: row.day,
            fence: 1,
            attempt: record.attempt,
            tries: 0,
            resource_id: record.resource_id,
            frozen: record.frozen.to_owned(),
            maybe_sent: false,
            lease_until: row.lease_until,
            first_sent_at: row.created_at,
            now: row.created_at,
        };
        claims.insert(digest, claim);
    }
    Ok(claims)
}

/// A record to be taken over, as it was seen.
#[derive(Debug, Clone)]
pub struct TakeOver<'a> {
    pub digest: ScopeDigest,
    pub seen: &'a Record,
    pub attempt: AttemptId,
    /// The request as it is frozen anew: only where nothing was ever sent for it.
    pub frozen_anew: Option<String>,
}

/// Takes over records whose owner is gone or whose outcome is open, each only if it still stands as it was seen. A scope that
/// is not in the answer moved meanwhile.
pub async fn take_over(
    tx: &mut PgConnection,
    records: &[TakeOver<'_>],
    lease: Duration,
) -> sqlx::Result<HashMap<ScopeDigest, Claim>> {
    let digests: Vec<&[u8]> = records.iter().map(|record| &record.digest.0[..]).collect();
    let days: Vec<time::Date> = records.iter().map(|record| record.seen.day).collect();
    let fences: Vec<i32> = records.iter().map(|record| record.seen.fence).collect();
    let attempts: Vec<Uuid> = records.iter().map(|record| record.attempt.0).collect();
    let frozen: Vec<Option<&str>> = records.iter().map(|record| record.frozen_anew.as_deref()).collect();
    let rows = sqlx::query!(
        r#"WITH moment AS MATERIALIZED (SELECT db_clock() AS now)
           UPDATE idempotency_records AS r
           SET state = 'in_flight', fence = r.fence + 1, attempt = s.attempt, next_attempt_at = NULL,
               frozen = CASE WHEN r.first_sent_at IS NULL THEN COALESCE(s.frozen, r.frozen) ELSE r.frozen END,
               lease_until = moment.now + make_interval(secs => $5), first_sent_at = COALESCE(r.first_sent_at, moment.now)
           FROM moment, unnest($1::bytea[], $2::date[], $3::int[], $4::uuid[], $6::text[]) AS s(digest, day, fence, attempt, frozen)
           WHERE r.digest = s.digest AND r.day = s.day AND r.fence = s.fence
             AND r.response_status IS NULL AND r.state <> 'needs_review' AND COALESCE(r.lease_until, moment.now) <= moment.now
           RETURNING r.digest, r.fence, r.frozen, r.lease_until AS "lease_until!", r.first_sent_at AS "first_sent_at!", moment.now AS "now!""#,
        &digests as &[&[u8]],
        &days,
        &fences,
        &attempts,
        lease.as_secs_f64(),
        &frozen as &[Option<&str>],
    )
    .fetch_all(tx)
    .await?;

    let taken: HashMap<ScopeDigest, &TakeOver<'_>> = records.iter().map(|record| (record.digest, record)).collect();
    let mut claims = HashMap::with_capacity(rows.len());
    for row in rows {
        let digest = read_digest(&row.digest)?;
        let Some(TakeOver { seen, attempt, .. }) = taken.get(&digest) else { continue };
        let claim = Claim {
            digest,
            operation: seen.operation,
            day: seen.day,
            fence: row.fence,
            attempt: *attempt,
            tries: seen.tries,
            resource_id: seen.resource_id,
            frozen: row.frozen,
            maybe_sent: seen.first_sent_at.is_some(),
            lease_until: row.lease_until,
            first_sent_at: row.first_sent_at,
            now: row.now,
        };
        claims.insert(digest, claim);
    }
    Ok(claims)
}

/// Takes over whatever is due anywhere, for recovery: leases that ran out, unknown outcomes whose pause is over. Each look
/// that settles nothing makes the next pause longer, up to five minutes, and lets the less tried go first.
///
/// What was released unsent is left alone: its client was told that nothing was charged, and only that client may change
/// its mind.
pub async fn take_over_due(tx: &mut PgConnection, most: i64, lease: Duration) -> sqlx::Result<Vec<Claim>> {
    let rows = sqlx::query_as!(
        Taken,
        r#"WITH moment AS MATERIALIZED (SELECT db_clock() AS now),
           due AS MATERIALIZED (
               SELECT r.digest, r.day
               FROM idempotency_records AS r, moment
               WHERE r.state IN ('in_flight', 'unknown', 'needs_review') AND r.first_sent_at IS NOT NULL
                 AND COALESCE(r.next_attempt_at, r.lease_until + LEAST(r.tries * r.tries, 300) * interval '1 s') <= moment.now
               ORDER BY r.tries, r.created_at
               LIMIT $1
               FOR UPDATE OF r SKIP LOCKED
           )
           UPDATE idempotency_records AS r
           SET state = 'in_flight', fence = r.fence + 1, attempt = gen_random_uuid(), next_attempt_at = NULL,
               lease_until = moment.now + make_interval(secs => $2)
           FROM due, moment
           WHERE r.digest = due.digest AND r.day = due.day
           RETURNING r.digest, r.operation, r.day, r.fence, r.attempt, r.tries, r.resource_id, r.frozen,
                     r.lease_until AS "lease_until!", r.first_sent_at AS "first_sent_at!", moment.now AS "now!""#,
        most,
        lease.as_secs_f64(),
    )
    .fetch_all(tx)
    .await?;
    rows.into_iter().map(Taken::claim).collect()
}

/// A record that may have been sent, as its new owner got it.
struct Taken {
    digest: Vec<u8>,
    operation: String,
    day: time::Date,
    fence: i32,
    attempt: Uuid,
    tries: i32,
    resource_id: Uuid,
    frozen: String,
    lease_until: time::OffsetDateTime,
    first_sent_at: time::OffsetDateTime,
    now: time::OffsetDateTime,
}

impl Taken {
    fn claim(self) -> sqlx::Result<Claim> {
        Ok(Claim {
            digest: read_digest(&self.digest)?,
            operation: read_operation(&self.operation)?,
            day: self.day,
            fence: self.fence,
            attempt: AttemptId(self.attempt),
            tries: self.tries,
            resource_id: self.resource_id,
            frozen: self.frozen,
            maybe_sent: true,
            lease_until: self.lease_until,
            first_sent_at: self.first_sent_at,
            now: self.now,
        })
    }
}

/// A record that waits for a person.
#[derive(Debug)]
pub struct NeedsReview {
    pub digest: ScopeDigest,
    pub operation: Operation,
    pub frozen: String,
    pub created_at: time::OffsetDateTime,
}

/// The oldest records that wait for a person.
pub async fn needing_review(connection: &mut PgConnection, most: i64) -> sqlx::Result<Vec<NeedsReview>> {
    let rows = sqlx::query!(
        "SELECT digest, operation, frozen, created_at FROM idempotency_records
         WHERE state = 'needs_review' AND first_sent_at IS NOT NULL ORDER BY created_at LIMIT $1",
        most
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(NeedsReview {
                digest: read_digest(&row.digest)?,
                operation: read_operation(&row.operation)?,
                frozen: row.frozen,
                created_at: row.created_at,
            })
        })
        .collect()
}

/// Takes over a record whose review has ended, and no other.
pub async fn take_over_reviewed(
    tx: &mut PgConnection,
    digest: ScopeDigest,
    lease: Duration,
) -> sqlx::Result<Option<Claim>> {
    let row = sqlx::query_as!(
        Taken,
        r#"WITH moment AS MATERIALIZED (SELECT db_clock() AS now)
           UPDATE idempotency_records AS r
           SET state = 'in_flight', fence = r.fence + 1, attempt = gen_random_uuid(),
               lease_until = moment.now + make_interval(secs => $2)
           FROM moment
           WHERE r.digest = $1 AND r.state = 'needs_review'
           RETURNING r.digest, r.operation, r.day, r.fence, r.attempt, r.tries, r.resource_id, r.frozen, r.lease_until AS "lease_until!",
                     r.first_sent_at AS "first_sent_at!", moment.now AS "now!""#,
        &digest.0[..],
        lease.as_secs_f64(),
    )
    .fetch_optional(tx)
    .await?;
    row.map(Taken::claim).transpose()
}

/// Makes open records due at once, so that the next round of recovery takes them over: news has come. Each only as it was seen,
/// and not while somebody is at work on it. Which were woken is the answer.
///
/// The fence moves and the attempt with it: an owner that slept through its lease must find somebody else's record, and not
/// one that it might take for its own, ended.
pub async fn wake(tx: &mut PgConnection, seen: &[(ScopeDigest, &Record)]) -> sqlx::Result<HashSet<ScopeDigest>> {
    let digests: Vec<&[u8]> = seen.iter().map(|(digest, _)| &digest.0[..]).collect();
    let days: Vec<time::Date> = seen.iter().map(|(_, record)| record.day).collect();
    let fences: Vec<i32> = seen.iter().map(|(_, record)| record.fence).collect();
    let rows = sqlx::query_scalar!(
        "WITH moment AS MATERIALIZED (SELECT db_clock() AS now)
         UPDATE idempotency_records AS r
         SET state = 'unknown', fence = r.fence + 1, attempt = gen_random_uuid(), lease_until = NULL, next_attempt_at = moment.now
         FROM moment, unnest($1::bytea[], $2::date[], $3::int[]) AS s(digest, day, fence)
         WHERE r.digest = s.digest AND r.day = s.day AND r.fence = s.fence
           AND r.response_status IS NULL AND r.first_sent_at IS NOT NULL AND COALESCE(r.lease_until, moment.now) <= moment.now
         RETURNING r.digest",
        &digests as &[&[u8]],
        &days,
        &fences,
    )
    .fetch_all(tx)
    .await?;
    rows.iter().map(|digest| read_digest(digest)).collect()
}
