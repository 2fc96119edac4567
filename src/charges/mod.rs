//! The room of charges: our own books of what was taken from whom, succeeded or declined. The gateway keeps its own.

pub mod store;
