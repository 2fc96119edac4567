//! The SQL of receipts.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::wire::event::Event;

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
    .execute(tx)
    .await?;
    Ok(())
}
