//! The database: how we get one, connect to it and keep its schema.

pub mod embedded;
