-- A refund is not always done when it is made: a bank may take its time, and may turn it down even after it had succeeded.
ALTER TABLE mock_gateway.refunds
    -- Every refund written before there was a status had succeeded.
    ADD COLUMN status text NOT NULL DEFAULT 'succeeded' CONSTRAINT refunds_status_known CHECK (
        status IN ('pending', 'succeeded', 'failed'));

ALTER TABLE mock_gateway.events DROP CONSTRAINT events_type_known;
ALTER TABLE mock_gateway.events ADD CONSTRAINT events_type_known CHECK (
    type IN ('payment_intent.succeeded', 'payment_intent.payment_failed', 'charge.refunded', 'refund.updated', 'refund.failed'));
