-- While a new version comes in, an api of the version before may still settle orders. It knows nothing of days: its events
-- get today's.
ALTER TABLE outbox ALTER COLUMN day SET DEFAULT db_day();
