//! One test binary: one server for all of it, and a database of its own for every test that wants one.

mod audit;
mod claims;
mod console;
mod crash_matrix;
mod crash_points;
mod demo;
mod embedded_cluster;
mod gateway_books;
mod gateway_dialect;
mod gateway_faults;
mod gateway_world;
mod hang_ups;
mod lost_races;
mod orders;
mod partitions;
mod recovery;
mod roles;
mod source_rules;
mod support;
