//! What the gateway says by itself: is it really the gateway, and what has it said so far?
//!
//! An event is evidence. It is kept as it came, and says where to look; what is true is asked of the gateway.

pub mod signature;
pub mod store;
