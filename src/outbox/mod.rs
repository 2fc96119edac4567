//! The room of events: what happened, written in the transaction in which it happened.

pub mod store;

use crate::database::days::ByDay;

/// Marking a row as sent writes it anew: some room for that on its page.
pub const OUTBOX: ByDay = ByDay {
    table: "outbox",
    storage: "fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1",
};
