//! Checkout: a runnable reference for idempotent payments. One tap, one order, one charge, whatever the network does.
//!
//! The map, in reading order. **Nothing in a room knows another room**: they are joined by the two stories, `checkout` and
//! `delivery`, and by nothing else, and a test reads the sources and holds that. SQL lives in files named `store.rs`, in
//! folders named `store` and in `idempotency/partitions.rs`, HTTP at the edges.

// The story: claim, charge, settle; and recovery, which enters it in the middle. Start at `checkout/perform.rs`.
pub mod checkout;

// The second story: what follows from an order, after its commit. Relay, log, consumers.
pub mod delivery;

// The rooms. Keys: whose is it, what was it used for, what was answered.
pub mod idempotency;
// What may be asked for, what it costs, what was bought.
pub mod orders;
// Our own books of what was taken from whom.
pub mod charges;
// What went back.
pub mod refunds;
// What customers tell of themselves.
pub mod customers;
// The payment gateway as we see it: how to ask, and what its answers mean.
pub mod gateway;
// What the gateway says by itself: signed events, kept as evidence.
pub mod webhooks;
// What the gateway took and our books do not explain.
pub mod reconciliation;
// What happened, written in the transaction in which it happened.
pub mod outbox;
// What a person decided where no program could.
pub mod reviews;
// Who may do what only one may do at a time.
pub mod leases;
// The broker: a log with partitions and offsets.
pub mod event_log;
// How far each consumer is, and what it has applied.
pub mod inbox;
// Events that nobody could deal with, and those behind them.
pub mod parking;
// Double-entry bookkeeping.
pub mod ledger;
// The mail that says what was bought.
pub mod receipts;

// The door: routes, what is refused by its bytes alone, replies, problems, the log of requests.
pub mod http;

// Values that everybody may know.
pub mod ids;
pub mod money;
pub mod wire;

// The museum: the same rooms with one thing done wrong; nothing in production.
#[cfg(feature = "classroom")]
pub mod mistakes;

// Where a process can be made to die, for tests; nothing in production.
pub mod crash_point;

// The way to PostgreSQL: pools, transactions, group commit, and a server of our own where there is none.
pub mod database;

// The judge: is every promise kept, by the database and by the gateway's own ledger?
pub mod audit;
// Another company: the mock payment gateway, with its own books and its own bad days.
pub mod mock_gateway;
// And a third one: the mock mail service.
pub mod mock_mail;
// The customer's side: a client that obeys the contract, and a batch of charges sent by it.
pub mod charge_run;
pub mod phone;
// The pages.
pub mod console;

// The process: roles and their knobs, the supervisor, tokens, ports, logs, the end.
pub mod app;
pub mod config;
pub mod credential;
pub mod demo;
// The desk where a person decides what no program could find out.
pub mod desk;
// What waits and what was done, for Prometheus.
pub mod metrics;
pub mod place;
pub mod serve;
pub mod stop;
pub mod telemetry;
