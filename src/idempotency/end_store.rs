//! The SQL that ends a claim: a final answer, an open outcome, or the claim released. Always under the owner's fence.

use std::{collections::HashSet, time::Duration};

use sqlx::PgConnection;

use super::{
    key::ScopeDigest,
    record::{Claim, State, StoredResponse},
    store::read_digest,
};

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

/// Ends claims, each only under its own fence. What is not in the answer, by scope *and* fence, was taken over: nothing of it
/// was written, and nothing else may be. Two owners of one scope can meet in a batch; only the fence tells them apart.
pub async fn end(tx: &mut PgConnection, endings: &[(&Claim, &Ending)]) -> sqlx::Result<HashSet<(ScopeDigest, i32)>> {
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
    let rows = sqlx::query!(
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
           RETURNING r.digest, r.fence"#,
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
    rows.iter().map(|row| Ok((read_digest(&row.digest)?, row.fence))).collect()
}
