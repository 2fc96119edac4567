//! One test binary: one server for all of it, and a database of its own for every test that wants one.

mod audit;
mod claims;
mod console;
mod delivery;
mod demo;
mod embedded_cluster;
mod gateway_books;
mod gateway_dialect;
mod gateway_faults;
mod gateway_receiver;
mod gateway_refunds;
mod gateway_webhook_faults;
mod gateway_webhooks;
mod gateway_world;
mod hang_ups;
mod mail;
mod mail_client;
mod mail_world;
mod orders;
mod partitions;
mod recovery;
mod roles;
mod source_rules;
mod support;
