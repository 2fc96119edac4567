//! What goes over the wire, as plain data: no room, no framework.

pub mod card_number;
pub mod event;
pub mod json;
pub mod order;
pub mod problem;
