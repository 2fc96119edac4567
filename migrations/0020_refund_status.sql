-- A refund is not over when the gateway has taken it on: the customer's bank may take days, and may turn it down even after the
-- gateway had said that it succeeded. Then its money is the shop's again, and the customer has to be paid some other way.
--
-- An api of the version before may still run. It shows what it finds, gives back as before, and knows nothing of failures.

-- succeeded: the gateway counts it as given back, and so do we. pending: as long as the bank has not confirmed it.
ALTER TABLE refunds ADD COLUMN pending boolean NOT NULL DEFAULT false;
-- When it turned out to have failed, and the event that tells of that. Until then it had succeeded: nothing of that is undone.
ALTER TABLE refunds ADD COLUMN failed_at timestamptz;
ALTER TABLE refunds ADD COLUMN failure_event_id uuid;
-- When the gateway is asked again what became of it. NULL: never, it is too old to change. The default is also for what an api
-- of the version before gives back.
ALTER TABLE refunds ADD COLUMN look_at timestamptz;
ALTER TABLE refunds ALTER COLUMN look_at SET DEFAULT db_clock() + interval '1 day';
UPDATE refunds SET look_at = db_clock() WHERE status <> 'succeeded' OR finished_at > db_clock() - interval '30 days';

ALTER TABLE refunds DROP CONSTRAINT refunds_status_known;
ALTER TABLE refunds ADD CONSTRAINT refunds_status_known CHECK (status IN ('reserved', 'succeeded', 'refused', 'released', 'failed'));
ALTER TABLE refunds DROP CONSTRAINT refunds_success_names_gateway;
ALTER TABLE refunds ADD CONSTRAINT refunds_success_names_gateway
    CHECK ((status IN ('succeeded', 'failed')) = (gateway_id IS NOT NULL AND event_id IS NOT NULL));
ALTER TABLE refunds DROP CONSTRAINT refunds_end_is_dated;
ALTER TABLE refunds ADD CONSTRAINT refunds_end_is_dated CHECK ((status IN ('succeeded', 'refused', 'failed')) = (finished_at IS NOT NULL));
ALTER TABLE refunds ADD CONSTRAINT refunds_failure_is_told
    CHECK ((status = 'failed') = (failed_at IS NOT NULL AND failure_event_id IS NOT NULL));
ALTER TABLE refunds ADD CONSTRAINT refunds_pending_counts_as_given CHECK (NOT pending OR status = 'succeeded');

-- A key whose refund failed gives nothing back anew, not even after it expired: somebody may have paid its customer in another
-- way by then. It takes a new key.
DROP INDEX refunds_one_per_key;
CREATE UNIQUE INDEX refunds_one_per_key ON refunds (key_digest) WHERE status IN ('reserved', 'succeeded', 'failed');
-- What is due for a look.
CREATE INDEX refunds_to_look_at ON refunds (look_at) WHERE status = 'succeeded';
-- Does a refund of ours name this one? Asked for every line of the gateway's list.
CREATE INDEX refunds_by_gateway_id ON refunds (gateway_id) WHERE gateway_id IS NOT NULL;

-- Every event that a refund has left: that it was given back, and that it failed. For the audit.
CREATE VIEW refund_events AS
    -- gateway_minor: what it moves the gateway's account by.
    SELECT id AS refund_id, order_id, key_digest, event_id, false AS is_failure, -amount_minor AS gateway_minor, currency, finished_at AS since
    FROM refunds WHERE event_id IS NOT NULL
    UNION ALL
    SELECT id, order_id, key_digest, failure_event_id, true, amount_minor, currency, failed_at
    FROM refunds WHERE failure_event_id IS NOT NULL;
