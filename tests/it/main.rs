//! One test binary. Names are sentences.

mod gateway_books;
mod gateway_dialect;
mod gateway_faults;
mod gateway_world;
