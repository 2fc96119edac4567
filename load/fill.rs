//! A table full of keys. Question: what does a busy month look like, without waiting for it?
//!
//! Rows are copies of an answered order's record, as wide as the real one, under digests of their own, spread over the days that
//! are kept. They go in by `COPY` in its binary form. Nobody bought anything for them, so an audit would object to them.

use anyhow::Context;
use checkout::{
    database::days::{self, Needed},
    idempotency::{key::ScopeDigest, partitions::RECORDS},
};
use sha2::{Digest as _, Sha256};
use sqlx::{PgConnection, PgPool};
use time::{Date, Duration};
use uuid::Uuid;

use crate::progress::Progress;

/// Days that hold keys, today included: an answer is replayed for 72 hours.
pub(crate) const DAYS: u64 = 4;
/// Rows that are encoded before they are sent.
const ROWS_SENT_TOGETHER: u64 = 2000;
/// PostgreSQL counts days and microseconds from the first day of 2000.
const EPOCH_JULIAN_DAY: i32 = 2_451_545;
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const MICROSECONDS_PER_DAY: i64 = 86_400_000_000;
const COLUMNS: i16 = 19;
/// Who they are said to belong to, in turns.
const CUSTOMERS: u64 = 1_000_000;

const COPY: &str = "COPY idempotency_records
    (digest, day, customer_id, operation, key, fingerprint, fingerprint_version, state, fence, attempt, resource_id, frozen,
     first_sent_at, response_status, response_content_type, response_location, response_body, created_at, finished_at)
    FROM STDIN (FORMAT binary)";

/// The record that all others are like.
#[derive(Debug)]
pub(crate) struct Template {
    operation: String,
    fingerprint: Vec<u8>,
    fingerprint_version: i16,
    frozen: String,
    response_status: i16,
    response_content_type: String,
    response_location: Option<String>,
    response_body: Vec<u8>,
}

/// The digest of the row with this number.
pub(crate) fn digest(number: u64) -> ScopeDigest {
    ScopeDigest(Sha256::digest(number.to_be_bytes()).into())
}

impl Template {
    /// Of any order that was bought.
    pub(crate) async fn read(pool: &PgPool) -> anyhow::Result<Self> {
        sqlx::query_as!(
            Self,
            r#"SELECT operation, fingerprint, fingerprint_version, frozen, response_status AS "response_status!",
                      response_content_type AS "response_content_type!", response_location, response_body AS "response_body!"
               FROM idempotency_records WHERE state = 'completed' LIMIT 1"#
        )
        .fetch_one(pool)
        .await
        .context("nothing was bought that could be copied")
    }

    /// Rows from one number to another, spread evenly over the days.
    pub(crate) async fn fill(&self, pool: &PgPool, from: u64, to: u64) -> anyhow::Result<()> {
        let mut progress = Progress::new(format!("up to {to}"), to - from, "keys written");
        let today = make_days(pool).await?;
        let mut connection = pool.acquire().await?;
        let mut copy = connection.copy_in_raw(COPY).await.context("COPY")?;
        let mut bytes = SIGNATURE.to_vec();
        for number in from..to {
            self.encode(&mut bytes, number, today - Duration::days((number % DAYS) as i64));
            if number % ROWS_SENT_TOGETHER == 0 {
                copy.send(std::mem::take(&mut bytes)).await?;
                progress.show(number - from, "");
            }
        }
        bytes.extend_from_slice(&(-1_i16).to_be_bytes());
        copy.send(bytes).await?;
        let copied = copy.finish().await.context("COPY")?;
        anyhow::ensure!(copied == to - from, "{copied} rows were copied, not {}", to - from);
        Ok(())
    }

    /// One row as COPY reads it: how many fields, then each with its length in front.
    fn encode(&self, row: &mut Vec<u8>, number: u64, day: Date) {
        let id = Uuid::from_u128(u128::from(number));
        let days = day.to_julian_day() - EPOCH_JULIAN_DAY;
        let at = i64::from(days) * MICROSECONDS_PER_DAY;
        row.extend_from_slice(&COLUMNS.to_be_bytes());
        let fields: [Option<&[u8]>; COLUMNS as usize] = [
            Some(&digest(number).0),
            Some(&days.to_be_bytes()),
            Some(&((number % CUSTOMERS + 1) as i64).to_be_bytes()),
            Some(self.operation.as_bytes()),
            Some(&id.hyphenated().to_string().into_bytes()),
            Some(&self.fingerprint),
            Some(&self.fingerprint_version.to_be_bytes()),
            Some(b"completed"),
            Some(&1_i32.to_be_bytes()),
            Some(id.as_bytes()),
            Some(id.as_bytes()),
            Some(self.frozen.as_bytes()),
            Some(&at.to_be_bytes()),
            Some(&self.response_status.to_be_bytes()),
            Some(self.response_content_type.as_bytes()),
            self.response_location.as_deref().map(str::as_bytes),
            Some(&self.response_body),
            Some(&at.to_be_bytes()),
            Some(&at.to_be_bytes()),
        ];
        for field in fields {
            let length = field.map_or(-1, |bytes| i32::try_from(bytes.len()).unwrap_or(i32::MAX));
            row.extend_from_slice(&length.to_be_bytes());
            row.extend_from_slice(field.unwrap_or_default());
        }
    }
}

/// Makes the partitions of the days that are kept, and returns the last of them: today by the database's clock.
async fn make_days(pool: &PgPool) -> anyhow::Result<Date> {
    struct PastDays;

    impl Needed for PastDays {
        async fn is_needed(&self, _connection: &mut PgConnection, _day: Date) -> anyhow::Result<bool> {
            Ok(true)
        }

        async fn expected(&self, connection: &mut PgConnection) -> anyhow::Result<Vec<Date>> {
            let today = today(connection).await?;
            Ok((0..DAYS as i64).map(|ago| today - Duration::days(ago)).collect())
        }
    }

    days::maintain(pool, RECORDS, std::time::Duration::MAX, PastDays).await?;
    today(&mut *pool.acquire().await?).await
}

pub(crate) async fn today(connection: &mut PgConnection) -> anyhow::Result<Date> {
    let day = sqlx::query_scalar!(r#"SELECT db_day() AS "day!""#).fetch_one(connection).await;
    day.context("cannot ask for the database's day")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_as_many_fields_as_it_says_and_ends_behind_the_last() {
        let template = Template {
            operation: "orders.create".to_owned(),
            fingerprint: vec![7; 32],
            fingerprint_version: 1,
            frozen: "{}".to_owned(),
            response_status: 201,
            response_content_type: "application/json".to_owned(),
            response_location: None,
            response_body: b"{}".to_vec(),
        };
        let mut row = Vec::new();
        template.encode(&mut row, 3, time::macros::date!(2000 - 01 - 02));
        assert_eq!(row[..2], 19_i16.to_be_bytes());
        let (mut fields, mut rest) = (Vec::new(), &row[2..]);
        while let Some((length, behind)) = rest.split_first_chunk() {
            let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or_default();
            let (field, behind) = behind.split_at(length);
            fields.push(field);
            rest = behind;
        }
        assert_eq!((fields.len(), fields[0], fields[1]), (19, &digest(3).0[..], &1_i32.to_be_bytes()[..]));
        assert_eq!((fields[15], fields[18]), (&b""[..], &MICROSECONDS_PER_DAY.to_be_bytes()[..]));
    }
}
