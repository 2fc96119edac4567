-- What an event is about is its aggregate: an order, or a charge that stands alone. Its events are numbered and kept in order;
-- those of two aggregates have nothing to do with each other. Until now there were orders alone, and the column was called so.
ALTER TABLE outbox RENAME COLUMN order_id TO aggregate_id;
ALTER TABLE event_log RENAME COLUMN order_id TO aggregate_id;
ALTER TABLE processed RENAME COLUMN order_id TO aggregate_id;
ALTER TABLE parked_events RENAME COLUMN order_id TO aggregate_id;
ALTER INDEX parked_events_order RENAME TO parked_events_aggregate;
ALTER TABLE ledger_entries RENAME COLUMN order_id TO aggregate_id;
ALTER TABLE receipts RENAME COLUMN order_id TO aggregate_id;
