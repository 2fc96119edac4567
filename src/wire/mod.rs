//! What goes over the wire, as plain data: no room, no framework.

pub mod card_number;
pub mod charge;
pub mod credential_like;
pub mod customer;
pub mod event;
pub mod json;
pub mod order;
pub mod payment;
pub mod problem;
pub mod refund;
