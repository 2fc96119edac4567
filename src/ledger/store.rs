//! The SQL of the ledger.

use sqlx::PgConnection;
use uuid::Uuid;

use super::posting::Posting;
use crate::wire::event::Event;

/// Books postings, each with all its entries.
pub async fn book(tx: &mut PgConnection, postings: &[(&Event, &Posting)]) -> sqlx::Result<()> {
    let entries: Vec<_> = postings
        .iter()
        .flat_map(|(event, posting)| posting.entries().map(|(account, amount)| (event, posting, account, amount)))
        .collect();
    let events: Vec<Uuid> = entries.iter().map(|(event, ..)| event.id.0).collect();
    let aggregates: Vec<Uuid> = entries.iter().map(|(event, ..)| event.aggregate.0).collect();
    let accounts: Vec<&str> = entries.iter().map(|(_, _, account, _)| account.name()).collect();
    let amounts: Vec<i64> = entries.iter().map(|(.., amount)| *amount).collect();
    let currencies: Vec<&str> = entries.iter().map(|(_, posting, ..)| posting.currency.as_str()).collect();
    sqlx::query!(
        "INSERT INTO ledger_entries (event_id, account, aggregate_id, amount_minor, currency)
         SELECT event_id, account, aggregate_id, amount_minor, currency
         FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::bigint[], $5::text[])
             AS e(event_id, account, aggregate_id, amount_minor, currency)",
        &events,
        &accounts as &[&str],
        &aggregates,
        &amounts,
        &currencies as &[&str],
    )
    .execute(tx)
    .await?;
    Ok(())
}
