//! Another company: a mock payment gateway.
