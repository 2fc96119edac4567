//! The room of reviews: what a person decided where no program could.

pub mod store;
