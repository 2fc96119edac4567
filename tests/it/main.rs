//! One test binary: one server for all of it, and a database of its own for every test that wants one.

mod audit;
mod console;
mod demo;
mod embedded_cluster;
mod gateway_dialect;
mod gateway_faults;
mod gateway_world;
mod roles;
mod support;
