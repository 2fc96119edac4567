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
-- Was the customer of this key told that nothing went back? The record that said so is forgotten after days.
CREATE INDEX refunds_refused_by_key ON refunds (key_digest) WHERE status = 'refused';
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

-- The reconciler reads two lists of the gateway: its payments (slot 0), and its refunds (slot 1).
ALTER TABLE reconciliation_progress DROP CONSTRAINT reconciliation_progress_one_row;
ALTER TABLE reconciliation_progress ADD CONSTRAINT reconciliation_progress_list_known CHECK (slot IN (0, 1));
INSERT INTO reconciliation_progress (slot) VALUES (1);

-- Money that the gateway gave back and that our books do not explain. Nobody can undo that, so nothing is done about it but to
-- show it to a person; a row is never deleted. A table of its own: a reconciler of the version before would give back what it
-- finds in the other one.
CREATE TABLE reconciliation_refunds (
    -- The gateway's name for it: seen again, it is the same finding.
    refund_id      text        NOT NULL,
    -- Whose money it was. NULL: a bare charge's.
    payment_intent text,
    -- What our rows say. surplus: its key has given back by another refund. orphan_refused: its customer was told that nothing went
    -- back. orphan_unknown: no row of ours knows its key. foreign: it carries none of ours. pending: its key is still open, much later.
    kind           text        NOT NULL,
    gateway_key    text,
    key_digest     bytea,
    amount_minor   bigint      NOT NULL,
    currency       text        NOT NULL,
    -- By the gateway's clock.
    created_at     timestamptz NOT NULL,
    found_at       timestamptz NOT NULL DEFAULT db_clock(),
    -- explained: a row of ours names it after all.
    state          text        NOT NULL DEFAULT 'open',
    -- When it was last judged: the longest unseen goes first.
    looked_at      timestamptz NOT NULL DEFAULT db_clock(),
    CONSTRAINT reconciliation_refunds_pkey PRIMARY KEY (refund_id),
    CONSTRAINT unexplained_refund_id_length CHECK (octet_length(refund_id) BETWEEN 1 AND 255),
    CONSTRAINT unexplained_refund_kind_known CHECK (kind IN ('surplus', 'orphan_refused', 'orphan_unknown', 'foreign', 'pending')),
    CONSTRAINT unexplained_refund_state_known CHECK (state IN ('open', 'explained')),
    CONSTRAINT unexplained_refund_digest_length CHECK (octet_length(key_digest) = 32),
    CONSTRAINT unexplained_refund_key_with_digest CHECK ((gateway_key IS NULL) = (key_digest IS NULL)),
    CONSTRAINT unexplained_refund_foreign_has_no_key CHECK ((kind = 'foreign') = (key_digest IS NULL))
);
-- What a round looks at again.
CREATE INDEX unexplained_refunds_to_do ON reconciliation_refunds (looked_at) WHERE state = 'open' AND kind <> 'foreign';
