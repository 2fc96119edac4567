//! The room of charges: what may be asked for without an order, and our own books of what was taken from whom, succeeded or
//! declined. The gateway keeps its own.

pub mod request;
pub mod store;

/// What a charge is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Order,
    /// Nothing but itself.
    Alone,
}

impl Purpose {
    /// As stored: the name of the operation that asked for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Order => "orders.create",
            Self::Alone => "charges.create",
        }
    }
}
