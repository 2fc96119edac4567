//! The books in PostgreSQL, in a schema of their own.
//!
//! Promise: a mail and the record of its key commit in one transaction, so a kill leaves both or neither; and only one process
//! has the books open, so keys in progress need no row that a kill could strand.

use std::{str::FromStr, sync::Arc, time::Duration};

use anyhow::Context;
use sqlx::{
    Connection, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
    types::Json,
};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::{Kept, Mail, Recorded};
use crate::mock_mail::email::{Keyed, Tags};

/// This is a small company: its database shares two cores with everybody else's.
const CONNECTIONS: u32 = 4;
/// "mockmail": taken for as long as the books are open.
const OWNER_LOCK: i64 = 0x6d6f_636b_6d61_696c;
/// PostgreSQL needs a moment to notice that a killed predecessor is gone.
const OWNER_WAIT_S: u64 = 10;

#[derive(Debug)]
pub(super) struct StoreBooks {
    pool: PgPool,
    /// Holds the owner's lock; never used for anything else, so it is never handed back.
    _owner: Mutex<PgConnection>,
}

struct MailRow {
    serial: i64,
    id: Uuid,
    idempotency_key: Option<String>,
    sender: String,
    recipient: String,
    subject: String,
    content: String,
    tags: Json<Tags>,
    created_ms: i64,
}

impl From<MailRow> for Arc<Mail> {
    fn from(row: MailRow) -> Self {
        Self::new(Mail {
            id: row.id,
            idempotency_key: row.idempotency_key.map(Into::into),
            from: row.sender.into(),
            to: row.recipient.into(),
            subject: row.subject.into(),
            text: row.content.into(),
            tags: row.tags.0,
            created_ms: row.created_ms,
        })
    }
}

impl StoreBooks {
    pub(super) async fn open(database_url: &str) -> anyhow::Result<Self> {
        let options = PgConnectOptions::from_str(database_url)
            .context("DATABASE_URL of the mail service's books")?
            .options([
                // Unqualified names, which are those of the migrator, land in our schema.
                ("search_path", "mock_mail"),
                // Bounds every wait inside the server: a transaction is never timed out from outside, where sqlx would hand
                // its connection back with the transaction open.
                ("statement_timeout", "10s"),
                ("lock_timeout", "5s"),
                ("jit", "off"),
            ])
            .application_name("checkout-mail");
        let mut owner = PgConnection::connect_with(&options).await.context("connecting to the mail service's books")?;
        own(&mut owner).await?;
        sqlx::query("CREATE SCHEMA IF NOT EXISTS mock_mail").execute(&mut owner).await?;
        sqlx::migrate!("migrations/mail").run(&mut owner).await.context("migrating the mail service's books")?;
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(Duration::from_secs(10))
            .connect_with(options)
            .await?;
        Ok(Self { pool, _owner: Mutex::new(owner) })
    }

    pub(super) async fn recorded(&self, key: &str) -> anyhow::Result<Option<Recorded>> {
        let row = sqlx::query!(
            "SELECT fingerprint, mail_id, recorded_at_ms FROM mock_mail.idempotency_keys WHERE key = $1",
            key
        )
        .fetch_optional(&self.pool)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let fingerprint = row.fingerprint.try_into().ok().context("a fingerprint of another length")?;
        Ok(Some(Recorded { fingerprint, mail: row.mail_id, at_ms: row.recorded_at_ms }))
    }

    pub(super) async fn deliver(&self, mail: Mail, record: Option<&Keyed>) -> anyhow::Result<Kept> {
        // The caller runs us where no client can cancel, which `begin` would not survive.
        let mut transaction = self.pool.begin().await?;
        sqlx::query!(
            "INSERT INTO mock_mail.mails (id, idempotency_key, sender, recipient, subject, content, tags, created_ms)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            mail.id,
            mail.idempotency_key.as_deref(),
            &*mail.from,
            &*mail.to,
            &*mail.subject,
            &*mail.text,
            Json(&mail.tags) as _,
            mail.created_ms
        )
        .execute(&mut *transaction)
        .await?;
        if let Some(keyed) = record {
            // A key that delivers anew, past its time to live, gets a new record.
            sqlx::query!(
                "INSERT INTO mock_mail.idempotency_keys (key, fingerprint, mail_id, recorded_at_ms)
                 VALUES ($1, $2, $3, $4)
                 ON CONFLICT ON CONSTRAINT idempotency_keys_pk DO UPDATE
                 SET fingerprint = excluded.fingerprint, mail_id = excluded.mail_id,
                     recorded_at_ms = excluded.recorded_at_ms",
                &*keyed.key,
                &keyed.fingerprint[..],
                mail.id,
                mail.created_ms
            )
            .execute(&mut *transaction)
            .await?;
        }
        transaction.commit().await?;
        Ok(Kept::Done)
    }

    pub(super) async fn mail(&self, id: Uuid) -> anyhow::Result<Option<Arc<Mail>>> {
        let row = sqlx::query_as!(
            MailRow,
            r#"SELECT serial, id, idempotency_key, sender, recipient, subject, content, tags AS "tags: Json<Tags>",
                      created_ms
               FROM mock_mail.mails WHERE id = $1"#,
            id
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(Into::into))
    }

    pub(super) async fn under_key(&self, key: &str, limit: usize) -> anyhow::Result<Vec<Arc<Mail>>> {
        let rows = sqlx::query_as!(
            MailRow,
            r#"SELECT serial, id, idempotency_key, sender, recipient, subject, content, tags AS "tags: Json<Tags>",
                      created_ms
               FROM mock_mail.mails WHERE idempotency_key = $1 ORDER BY serial LIMIT $2"#,
            key,
            i64::try_from(limit)?
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(Into::into).collect())
    }

    pub(super) async fn page(&self, after: i64, limit: usize) -> anyhow::Result<Vec<(i64, Arc<Mail>)>> {
        let rows = sqlx::query_as!(
            MailRow,
            r#"SELECT serial, id, idempotency_key, sender, recipient, subject, content, tags AS "tags: Json<Tags>",
                      created_ms
               FROM mock_mail.mails WHERE serial > $1 ORDER BY serial LIMIT $2"#,
            after,
            i64::try_from(limit)?
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|row| (row.serial, row.into())).collect())
    }

    pub(super) async fn reset(&self) -> anyhow::Result<()> {
        sqlx::query!("TRUNCATE mock_mail.mails, mock_mail.idempotency_keys").execute(&self.pool).await?;
        Ok(())
    }
}

/// Two services over one set of books would each deliver the same key once.
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
            "another mail service has these books open: stop it, or give this one a database of its own"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
