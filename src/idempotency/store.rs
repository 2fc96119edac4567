//! The SQL of records. Every function takes a slice: a batch of one is the plain path.
//!
//! A claim is, in one READ COMMITTED transaction and in this order: [`lock`], [`newest`], then [`insert`] or [`take_over`].
//! The order is the proof that a key is unique although the table's unique indexes end at midnight: whoever holds the lock
//! sees, in a later statement and so by a newer snapshot, everything that earlier holders committed on any day. The caller
//! opens the transaction, because what a key bought is asked in another room.
//!
//! Where a record must be in flight, the statements say `lease_until IS NOT NULL` (a CHECK makes it the same): naming the
//! state would let the planner walk the whole index of unresolved records in place of one probe of the primary key.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use anyhow::Context;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{
    fingerprint::Fingerprint,
    key::{Scope, ScopeDigest},
    record::{Claim, Holding, Record, State, StoredResponse},
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
        r#"SELECT r.digest AS "digest!", r.day AS "day!", r.fingerprint AS "fingerprint!", r.fingerprint_version AS "fingerprint_version!",
                  r.state AS "state!", r.fence AS "fence!", r.attempt AS "attempt!", r.lease_until, r.tries AS "tries!",
                  r.resource_id AS "resource_id!", r.frozen AS "frozen!", r.first_sent_at, r.response_status,
                  r.response_content_type, r.response_location, r.response_body, r.created_at AS "created_at!"
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

/// Takes over records whose owner is gone or whose outcome is open, each only if it still stands as it was seen. A scope that
/// is not in the answer moved meanwhile.
pub async fn take_over(
    tx: &mut PgConnection,
    seen: &[(ScopeDigest, &Record, AttemptId)],
    lease: Duration,
) -> sqlx::Result<HashMap<ScopeDigest, Claim>> {
    let digests: Vec<&[u8]> = seen.iter().map(|(digest, ..)| &digest.0[..]).collect();
    let days: Vec<time::Date> = seen.iter().map(|(_, record, _)| record.day).collect();
    let fences: Vec<i32> = seen.iter().map(|(_, record, _)| record.fence).collect();
    let attempts: Vec<Uuid> = seen.iter().map(|(.., attempt)| attempt.0).collect();
    let rows = sqlx::query!(
        r#"WITH moment AS MATERIALIZED (SELECT db_clock() AS now)
           UPDATE idempotency_records AS r
           SET state = 'in_flight', fence = r.fence + 1, attempt = s.attempt, next_attempt_at = NULL,
               lease_until = moment.now + make_interval(secs => $5), first_sent_at = COALESCE(r.first_sent_at, moment.now)
           FROM moment, unnest($1::bytea[], $2::date[], $3::int[], $4::uuid[]) AS s(digest, day, fence, attempt)
           WHERE r.digest = s.digest AND r.day = s.day AND r.fence = s.fence
             AND r.response_status IS NULL AND r.state <> 'needs_review' AND COALESCE(r.lease_until, moment.now) <= moment.now
           RETURNING r.digest, r.fence, r.lease_until AS "lease_until!", r.first_sent_at AS "first_sent_at!", moment.now AS "now!""#,
        &digests as &[&[u8]],
        &days,
        &fences,
        &attempts,
        lease.as_secs_f64(),
    )
    .fetch_all(tx)
    .await?;

    let seen: HashMap<ScopeDigest, (&Record, AttemptId)> =
        seen.iter().map(|&(d, record, a)| (d, (record, a))).collect();
    let mut claims = HashMap::with_capacity(rows.len());
    for row in rows {
        let digest = read_digest(&row.digest)?;
        let Some(&(record, attempt)) = seen.get(&digest) else { continue };
        let claim = Claim {
            digest,
            day: record.day,
            fence: row.fence,
            attempt,
            tries: record.tries,
            resource_id: record.resource_id,
            frozen: record.frozen.clone(),
            maybe_sent: record.first_sent_at.is_some(),
            lease_until: row.lease_until,
            first_sent_at: row.first_sent_at,
            now: row.now,
        };
        claims.insert(digest, claim);
    }
    Ok(claims)
}

/// Takes over whatever is due anywhere, for recovery: leases that ran out, unknown outcomes whose pause is over. Each look
/// that settles nothing makes the next pause longer, up to five minutes.
pub async fn take_over_due(tx: &mut PgConnection, most: i64, lease: Duration) -> sqlx::Result<Vec<Claim>> {
    let rows = sqlx::query!(
        r#"WITH moment AS MATERIALIZED (SELECT db_clock() AS now),
           due AS MATERIALIZED (
               SELECT r.digest, r.day, r.first_sent_at IS NOT NULL AS maybe_sent
               FROM idempotency_records AS r, moment
               WHERE r.state IN ('in_flight', 'unknown', 'needs_review')
                 AND COALESCE(r.next_attempt_at, r.lease_until + LEAST(r.tries * r.tries, 300) * interval '1 s') <= moment.now
               LIMIT $1
               FOR UPDATE OF r SKIP LOCKED
           )
           UPDATE idempotency_records AS r
           SET state = 'in_flight', fence = r.fence + 1, attempt = gen_random_uuid(), next_attempt_at = NULL,
               lease_until = moment.now + make_interval(secs => $2), first_sent_at = COALESCE(r.first_sent_at, moment.now)
           FROM due, moment
           WHERE r.digest = due.digest AND r.day = due.day
           RETURNING r.digest, r.day, r.fence, r.attempt, r.tries, r.resource_id, r.frozen, due.maybe_sent AS "maybe_sent!",
                     r.lease_until AS "lease_until!", r.first_sent_at AS "first_sent_at!", moment.now AS "now!""#,
        most,
        lease.as_secs_f64(),
    )
    .fetch_all(tx)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Claim {
                digest: read_digest(&row.digest)?,
                day: row.day,
                fence: row.fence,
                attempt: AttemptId(row.attempt),
                tries: row.tries,
                resource_id: row.resource_id,
                frozen: row.frozen,
                maybe_sent: row.maybe_sent,
                lease_until: row.lease_until,
                first_sent_at: row.first_sent_at,
                now: row.now,
            })
        })
        .collect()
}

/// How a claim ends, for its record.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    Completed(StoredResponse),
    Failed(StoredResponse),
    /// The outcome is open; look again after the pause.
    Unknown {
        pause: Duration,
    },
    /// Certainly nothing was sent: whoever comes next starts at once, as if first.
    Released,
    /// The gateway can no longer tell.
    NeedsReview,
}

impl Ending {
    fn state(&self) -> State {
        match self {
            Self::Completed(_) => State::Completed,
            Self::Failed(_) => State::Failed,
            Self::Unknown { .. } => State::Unknown,
            Self::Released => State::InFlight,
            Self::NeedsReview => State::NeedsReview,
        }
    }

    fn response(&self) -> Option<&StoredResponse> {
        match self {
            Self::Completed(response) | Self::Failed(response) => Some(response),
            Self::Unknown { .. } | Self::Released | Self::NeedsReview => None,
        }
    }

    fn pause(&self) -> Option<f64> {
        match self {
            Self::Unknown { pause } => Some(pause.as_secs_f64()),
            _ => None,
        }
    }
}

/// Ends claims, each only under its own fence. A scope that is not in the answer was taken over: nothing of it was written,
/// and nothing else may be.
pub async fn end(tx: &mut PgConnection, endings: &[(&Claim, &Ending)]) -> sqlx::Result<HashSet<ScopeDigest>> {
    let digests: Vec<&[u8]> = endings.iter().map(|(claim, _)| &claim.digest.0[..]).collect();
    let days: Vec<time::Date> = endings.iter().map(|(claim, _)| claim.day).collect();
    let fences: Vec<i32> = endings.iter().map(|(claim, _)| claim.fence).collect();
    let states: Vec<&str> = endings.iter().map(|(_, ending)| ending.state().name()).collect();
    let pauses: Vec<Option<f64>> = endings.iter().map(|(_, ending)| ending.pause()).collect();
    let unsent: Vec<bool> = endings.iter().map(|(_, ending)| matches!(ending, Ending::Released)).collect();
    let responses: Vec<Option<&StoredResponse>> = endings.iter().map(|(_, ending)| ending.response()).collect();
    let statuses: Vec<Option<i16>> = responses.iter().map(|r| r.and_then(|r| i16::try_from(r.status).ok())).collect();
    let types: Vec<Option<&str>> = responses.iter().map(|r| r.map(|r| r.content_type.as_str())).collect();
    let locations: Vec<Option<&str>> = responses.iter().map(|r| r.and_then(|r| r.location.as_deref())).collect();
    let bodies: Vec<Option<&[u8]>> = responses.iter().map(|r| r.map(|r| r.body.as_slice())).collect();
    let rows = sqlx::query_scalar!(
        r#"WITH moment AS MATERIALIZED (SELECT db_clock() AS now)
           UPDATE idempotency_records AS r
           SET state = e.state,
               lease_until = CASE WHEN e.state = 'in_flight' THEN moment.now END,
               next_attempt_at = moment.now + make_interval(secs => e.pause_s),
               tries = r.tries + CASE WHEN e.state IN ('in_flight', 'unknown') THEN 1 ELSE 0 END,
               first_sent_at = CASE WHEN NOT e.unsent THEN r.first_sent_at END,
               response_status = e.status, response_content_type = e.content_type, response_location = e.location, response_body = e.body,
               finished_at = CASE WHEN e.status IS NOT NULL THEN moment.now END
           FROM moment, unnest($1::bytea[], $2::date[], $3::int[], $4::text[], $5::float8[], $6::bool[], $7::smallint[], $8::text[], $9::text[], $10::bytea[])
               AS e(digest, day, fence, state, pause_s, unsent, status, content_type, location, body)
           WHERE r.digest = e.digest AND r.day = e.day AND r.fence = e.fence AND r.lease_until IS NOT NULL
           RETURNING r.digest"#,
        &digests as &[&[u8]],
        &days,
        &fences,
        &states as &[&str],
        &pauses as &[Option<f64>],
        &unsent,
        &statuses as &[Option<i16>],
        &types as &[Option<&str>],
        &locations as &[Option<&str>],
        &bodies as &[Option<&[u8]>],
    )
    .fetch_all(tx)
    .await?;
    rows.iter().map(|digest| read_digest(digest)).collect()
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
        };
        Ok((digest, record))
    }
}

fn read_digest(bytes: &[u8]) -> sqlx::Result<ScopeDigest> {
    ScopeDigest::from_slice(bytes).ok_or_else(|| malformed("digest"))
}

/// The table's CHECKs rule this out; if it happens all the same, no answer is better than a guessed one.
fn malformed(what: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("malformed {what} in idempotency_records").into())
}
