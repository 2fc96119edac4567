//! The SQL of receipts.

use std::collections::{BTreeMap, HashMap};

use sqlx::PgConnection;
use uuid::Uuid;

use crate::{ids::EventId, wire::event::Event};

/// How far the mail about an event is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Addressed {
    /// It goes there, whenever and however often it is sent.
    To(String),
    /// It went, under this name at the mail service.
    Sent { mail_id: String },
}

/// Says where the mails about these events go: where they went before, or else from now on as `recipients` says.
///
/// To be committed before anything is sent. In one order, so that two who address the same mails never wait for each other in a
/// ring.
pub async fn address(
    tx: &mut PgConnection,
    recipients: &BTreeMap<EventId, String>,
) -> sqlx::Result<HashMap<EventId, Addressed>> {
    let events: Vec<Uuid> = recipients.keys().map(|event| event.0).collect();
    let wanted: Vec<&str> = recipients.values().map(String::as_str).collect();
    sqlx::query!(
        "INSERT INTO receipt_recipients (event_id, recipient) SELECT * FROM unnest($1::uuid[], $2::text[])
         ON CONFLICT (event_id) DO NOTHING",
        &events,
        &wanted as &[&str],
    )
    .execute(&mut *tx)
    .await?;
    // Not in one statement: it would not see what somebody else committed while the first one waited for them.
    let rows = sqlx::query!(
        r#"SELECT a.event_id AS "event_id!", a.recipient AS "recipient!", r.mail_id AS "mail_id?"
           FROM receipt_recipients AS a LEFT JOIN receipts AS r ON r.event_id = a.event_id WHERE a.event_id = ANY($1)"#,
        &events,
    )
    .fetch_all(&mut *tx)
    .await?;
    let addressed = rows.into_iter().map(|row| match row.mail_id {
        Some(mail_id) => (EventId(row.event_id), Addressed::Sent { mail_id }),
        None => (EventId(row.event_id), Addressed::To(row.recipient)),
    });
    let addressed: HashMap<EventId, Addressed> = addressed.collect();
    let is_sent = |event: &&Uuid| matches!(addressed.get(&EventId(**event)), Some(Addressed::Sent { .. }));
    let sent: Vec<Uuid> = events.iter().filter(is_sent).copied().collect();
    // Seldom: a late owner, who comes when another one is through.
    if !sent.is_empty() {
        forget(tx, &sent).await?;
    }
    Ok(addressed)
}

/// Records receipts that the mail service has accepted, each with the service's own name for the mail.
pub async fn record(tx: &mut PgConnection, sent: &[(&Event, &str)]) -> sqlx::Result<()> {
    let events: Vec<Uuid> = sent.iter().map(|(event, _)| event.id.0).collect();
    let aggregates: Vec<Uuid> = sent.iter().map(|(event, _)| event.aggregate.0).collect();
    let mails: Vec<&str> = sent.iter().map(|(_, mail_id)| *mail_id).collect();
    sqlx::query!(
        "INSERT INTO receipts (event_id, aggregate_id, mail_id)
         SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[])",
        &events,
        &aggregates,
        &mails as &[&str],
    )
    .execute(&mut *tx)
    .await?;
    forget(tx, &events).await
}

/// Their mails are not under way any more.
async fn forget(tx: &mut PgConnection, events: &[Uuid]) -> sqlx::Result<()> {
    sqlx::query!("DELETE FROM receipt_recipients WHERE event_id = ANY($1)", events).execute(tx).await?;
    Ok(())
}
