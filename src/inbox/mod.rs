//! The consumers' side of an event: how far each consumer has read, and what it has applied.
//!
//! That an effect happens once is decided by one row: [`store::take`] writes it in the transaction of the effect, and who finds
//! it there already leaves the effect alone. How far somebody has read only saves work.

pub mod store;

use crate::database::days::ByDay;

/// Only ever appended to.
pub const PROCESSED: ByDay = ByDay { table: "processed", storage: "autovacuum_vacuum_insert_scale_factor = 0.1" };
