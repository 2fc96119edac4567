//! The books in PostgreSQL, in a schema of their own.
//!
//! Promise: an execution and its recorded answer commit in one transaction, so a kill leaves both or neither; and only one
//! process has the books open, so keys in progress need no row that a kill could strand.

use std::{str::FromStr, sync::Arc, time::Duration};

use anyhow::Context;
use sqlx::{
    Connection, PgConnection, PgPool, Postgres, Transaction,
    postgres::{PgConnectOptions, PgPoolOptions},
    types::Json,
};
use tokio::sync::Mutex;

use super::{Capture, Change, Commit, Committed, KeyWrite, Note, Recorded, event_store, refund_store, rows};
use crate::mock_gateway::{
    clock::{ChargeId, IntentId},
    object::{Charge, Intent, Metadata},
    paging::{Edge, Window},
    payment_methods::Decline,
};

/// This is a small company: its database shares two cores with everybody else's.
const CONNECTIONS: u32 = 8;
/// "mockgate": taken for as long as the books are open.
const OWNER_LOCK: i64 = 0x6d6f_636b_6761_7465;
/// PostgreSQL needs a moment to notice that a killed predecessor is gone.
const OWNER_WAIT_S: u64 = 10;

#[derive(Debug)]
pub(super) struct StoreBooks {
    pub(super) pool: PgPool,
    /// Holds the owner's lock; never used for anything else, so it is never handed back.
    _owner: Mutex<PgConnection>,
}

impl StoreBooks {
    pub(super) async fn open(database_url: &str) -> anyhow::Result<Self> {
        let options = PgConnectOptions::from_str(database_url)
            .context("DATABASE_URL of the gateway's books")?
            .options([
                // Unqualified names, which are those of the migrator, land in our schema.
                ("search_path", "mock_gateway"),
                // Bounds every wait, so that no code needs to time a transaction out from outside: sqlx would hand the
                // connection back with the transaction open.
                ("statement_timeout", "10s"),
                ("lock_timeout", "5s"),
                ("jit", "off"),
            ])
            .application_name("checkout-gateway");
        let mut owner = PgConnection::connect_with(&options).await.context("connecting to the gateway's books")?;
        own(&mut owner).await?;
        sqlx::query("CREATE SCHEMA IF NOT EXISTS mock_gateway").execute(&mut owner).await?;
        sqlx::migrate!("migrations/gateway").run(&mut owner).await.context("migrating the gateway's books")?;
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(Duration::from_secs(10))
            .connect_with(options)
            .await?;
        Ok(Self { pool, _owner: Mutex::new(owner) })
    }

    pub(super) async fn recorded(&self, key: &str) -> anyhow::Result<Option<Recorded>> {
        let row = sqlx::query_as!(
            rows::RecordRow,
            r#"SELECT path AS "path!", fingerprint AS "fingerprint!", request_id AS "request_id!",
                      recorded_at_ms AS "recorded_at_ms!", status AS "status!", body AS "body!"
               FROM mock_gateway.idempotency_keys WHERE key = $1 AND path IS NOT NULL"#,
            key
        )
        .fetch_optional(&self.pool)
        .await?;
        row.map(Recorded::try_from).transpose()
    }

    pub(super) async fn count_replay(&self, key: &str) -> anyhow::Result<()> {
        sqlx::query!("UPDATE mock_gateway.idempotency_keys SET replays = replays + 1 WHERE key = $1", key)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    pub(super) async fn commit(&self, commit: Commit) -> anyhow::Result<Committed> {
        // The caller runs us where no client can cancel, which `begin` would not survive.
        let mut transaction = self.pool.begin().await?;
        if let Some(change) = &commit.change
            && write_change(&mut transaction, change).await? == Committed::Stale
        {
            transaction.rollback().await?;
            return Ok(Committed::Stale);
        }
        if let Some(event) = &commit.event {
            event_store::write(&mut transaction, event).await?;
        }
        if let Some(key) = &commit.key {
            write_key(&mut transaction, key).await?;
        }
        transaction.commit().await?;
        Ok(Committed::Done)
    }

    pub(super) async fn intent(&self, id: IntentId) -> anyhow::Result<Option<Arc<Intent>>> {
        let row = sqlx::query_as!(
            rows::IntentRow,
            r#"SELECT id, version, amount, currency, status, payment_method, description, metadata AS "metadata: _",
                      latest_charge, decline_code, canceled_at_ms, captured_by
               FROM mock_gateway.payment_intents WHERE id = $1"#,
            id.to_string()
        )
        .fetch_optional(&self.pool)
        .await?;
        row.map(Arc::try_from).transpose()
    }

    pub(super) async fn intents(&self, window: Window<IntentId>, limit: usize) -> anyhow::Result<Vec<Arc<Intent>>> {
        macro_rules! ordered {
            ($order:tt) => {
                sqlx::query_as!(
                    rows::IntentRow,
                    r#"SELECT id, version, amount, currency, status, payment_method, description,
                              metadata AS "metadata: _", latest_charge, decline_code, canceled_at_ms, captured_by
                       FROM mock_gateway.payment_intents WHERE id >= $1 AND id < $2 ORDER BY id "#
                        + $order
                        + " LIMIT $3",
                    window.from.to_string(),
                    window.below.to_string(),
                    i64::try_from(limit)?
                )
                .fetch_all(&self.pool)
                .await?
            };
        }
        let found = match window.edge {
            Edge::Newest => ordered!("DESC"),
            Edge::Oldest => ordered!("ASC"),
        };
        found.into_iter().map(Arc::try_from).collect()
    }

    pub(super) async fn noted(&self, note: &Note, below: IntentId, limit: usize) -> anyhow::Result<Vec<Arc<Intent>>> {
        let metadata = Json(Metadata::new(vec![(note.name.clone(), note.value.clone())]));
        let found = sqlx::query_as!(
            rows::IntentRow,
            r#"SELECT id, version, amount, currency, status, payment_method, description, metadata AS "metadata: _",
                      latest_charge, decline_code, canceled_at_ms, captured_by
               FROM mock_gateway.payment_intents WHERE metadata @> $1 AND id < $2 ORDER BY id DESC LIMIT $3"#,
            metadata as _,
            below.to_string(),
            i64::try_from(limit)?
        )
        .fetch_all(&self.pool)
        .await?;
        found.into_iter().map(Arc::try_from).collect()
    }

    pub(super) async fn charge(&self, id: ChargeId) -> anyhow::Result<Option<Arc<Charge>>> {
        let row = sqlx::query_as!(
            rows::ChargeRow,
            r#"SELECT id, version, payment_intent, amount, currency, payment_method, metadata AS "metadata: _",
                      decline_code, amount_refunded
               FROM mock_gateway.charges WHERE id = $1"#,
            id.to_string()
        )
        .fetch_optional(&self.pool)
        .await?;
        row.map(Arc::try_from).transpose()
    }

    pub(super) async fn charges_named(&self, ids: &[ChargeId]) -> anyhow::Result<Vec<Arc<Charge>>> {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let found = sqlx::query_as!(
            rows::ChargeRow,
            r#"SELECT id, version, payment_intent, amount, currency, payment_method, metadata AS "metadata: _",
                      decline_code, amount_refunded
               FROM mock_gateway.charges WHERE id = ANY($1)"#,
            &ids
        )
        .fetch_all(&self.pool)
        .await?;
        found.into_iter().map(Arc::try_from).collect()
    }

    pub(super) async fn charges(&self, intent: IntentId) -> anyhow::Result<Vec<Arc<Charge>>> {
        let found = sqlx::query_as!(
            rows::ChargeRow,
            r#"SELECT id, version, payment_intent, amount, currency, payment_method, metadata AS "metadata: _",
                      decline_code, amount_refunded
               FROM mock_gateway.charges WHERE payment_intent = $1 ORDER BY id DESC"#,
            intent.to_string()
        )
        .fetch_all(&self.pool)
        .await?;
        found.into_iter().map(Arc::try_from).collect()
    }

    pub(super) async fn captures(
        &self,
        after: IntentId,
        limit: usize,
        reference: Option<&str>,
    ) -> anyhow::Result<Vec<Capture>> {
        let found = sqlx::query_as!(
            rows::CaptureRow,
            r#"SELECT i.id, i.captured_by, i.reference, i.amount, i.currency,
                      c.amount_refunded AS "amount_refunded?", k.executions AS "executions?", k.replays AS "replays?"
               FROM mock_gateway.payment_intents i
               LEFT JOIN mock_gateway.charges c ON c.id = i.latest_charge
               LEFT JOIN mock_gateway.idempotency_keys k ON k.key = i.captured_by
               WHERE i.status = 'succeeded' AND i.id > $1 AND ($3::text IS NULL OR i.reference = $3)
               ORDER BY i.id LIMIT $2"#,
            after.to_string(),
            i64::try_from(limit)?,
            reference
        )
        .fetch_all(&self.pool)
        .await?;
        found.into_iter().map(Capture::try_from).collect()
    }

    pub(super) async fn reset(&self) -> anyhow::Result<()> {
        sqlx::query!(
            "TRUNCATE mock_gateway.payment_intents, mock_gateway.charges, mock_gateway.refunds, mock_gateway.events,
                      mock_gateway.idempotency_keys"
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

/// Two gateways over one set of books would each run the same key once.
async fn own(connection: &mut PgConnection) -> anyhow::Result<()> {
    let since = tokio::time::Instant::now();
    loop {
        let owned: bool =
            sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(OWNER_LOCK).fetch_one(&mut *connection).await?;
        if owned {
            return Ok(());
        }
        anyhow::ensure!(
            since.elapsed() < Duration::from_secs(OWNER_WAIT_S),
            "another gateway has these books open: stop it, or give this one a database of its own"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn write_change(transaction: &mut Transaction<'_, Postgres>, change: &Change) -> anyhow::Result<Committed> {
    match change {
        Change::Payment { intent, charge } => {
            let written = write_intent(transaction, intent).await?;
            if let (Committed::Done, Some(charge)) = (written, charge) {
                write_charge(transaction, charge).await?;
            }
            Ok(written)
        }
        Change::Refund { refund, charge } => refund_store::write(transaction, refund, charge).await,
        Change::RefundEnded { refund, charge } => refund_store::end(transaction, refund, charge).await,
    }
}

async fn write_intent(transaction: &mut Transaction<'_, Postgres>, intent: &Intent) -> sqlx::Result<Committed> {
    // A new intent is inserted; a later version replaces exactly the one it was made from.
    let written = sqlx::query!(
        "INSERT INTO mock_gateway.payment_intents AS i (id, version, amount, currency, status, payment_method, description,
                                                        metadata, latest_charge, decline_code, canceled_at_ms, captured_by)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
         ON CONFLICT ON CONSTRAINT payment_intents_pk DO UPDATE
         SET version = excluded.version, status = excluded.status, payment_method = excluded.payment_method,
             latest_charge = excluded.latest_charge, decline_code = excluded.decline_code,
             canceled_at_ms = excluded.canceled_at_ms, captured_by = excluded.captured_by
         WHERE i.version = excluded.version - 1",
        intent.id.to_string(),
        intent.version,
        intent.amount,
        intent.currency.code(),
        intent.status.name(),
        intent.payment_method.as_deref(),
        intent.description.as_deref(),
        Json(&intent.metadata) as _,
        intent.latest_charge.map(|charge| charge.to_string()),
        intent.decline.map(Decline::decline_code),
        intent.canceled_at_ms,
        intent.captured_by.as_deref()
    )
    .execute(&mut **transaction)
    .await?;
    Ok(if written.rows_affected() == 1 { Committed::Done } else { Committed::Stale })
}

async fn write_charge(transaction: &mut Transaction<'_, Postgres>, charge: &Charge) -> sqlx::Result<()> {
    sqlx::query!(
        "INSERT INTO mock_gateway.charges (id, payment_intent, amount, currency, payment_method, metadata, decline_code)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        charge.id.to_string(),
        charge.intent.to_string(),
        charge.amount,
        charge.currency.code(),
        &*charge.payment_method,
        Json(&charge.metadata) as _,
        charge.decline.map(Decline::decline_code)
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

async fn write_key(transaction: &mut Transaction<'_, Postgres>, write: &KeyWrite) -> anyhow::Result<()> {
    let record = write.record.as_ref();
    let status = record.map(|(_, _, answer)| i16::try_from(answer.status().as_u16())).transpose()?;
    let body = record.map(|(_, _, answer)| answer.body());
    // A key that executes again, past its time to live, gets a new record; one that was ignored keeps what it had.
    sqlx::query!(
        "INSERT INTO mock_gateway.idempotency_keys AS k
             (key, executions, path, fingerprint, request_id, recorded_at_ms, status, body)
         VALUES ($1, 1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT ON CONSTRAINT idempotency_keys_pk DO UPDATE
         SET executions = k.executions + 1,
             path = coalesce(excluded.path, k.path),
             fingerprint = coalesce(excluded.fingerprint, k.fingerprint),
             request_id = coalesce(excluded.request_id, k.request_id),
             recorded_at_ms = coalesce(excluded.recorded_at_ms, k.recorded_at_ms),
             status = coalesce(excluded.status, k.status),
             body = coalesce(excluded.body, k.body)",
        &*write.keyed.key,
        record.map(|_| &*write.keyed.path),
        record.map(|_| &write.keyed.fingerprint[..]),
        record.map(|(request_id, _, _)| &**request_id),
        record.map(|(_, at_ms, _)| *at_ms),
        status,
        body.as_deref()
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}
