-- The outbox, now by day and dropped by day: at thousands of events a second, deleting what was delivered would cost as much
-- again as writing it. The day is part of an event from its birth and travels with it, so whoever dedupes by event id can
-- drop by day too, and still dedupe exactly.
ALTER TABLE outbox RENAME TO outbox_before_days;
ALTER TABLE outbox_before_days RENAME CONSTRAINT outbox_pkey TO outbox_before_days_pkey;
ALTER TABLE outbox_before_days RENAME CONSTRAINT outbox_one_per_step TO outbox_before_days_one_per_step;
DROP INDEX outbox_unsent;

CREATE SEQUENCE outbox_ids AS bigint;

CREATE TABLE outbox (
    -- UTC day on which it happened.
    day        date        NOT NULL,
    -- Order of insertion, for a stable scan. Never a cursor: a lower id may commit later. Of two events of one order the
    -- later has the higher id, since it is written under the order's lock.
    id         bigint      NOT NULL DEFAULT nextval('outbox_ids'),
    -- What every later party dedupes by, unchanged however often the event is sent.
    event_id   uuid        NOT NULL,
    order_id   uuid        NOT NULL,
    -- Position among this order's events, from 1.
    sequence   integer     NOT NULL,
    -- hash(order) modulo 64: all events of an order travel one lane.
    shard      smallint    NOT NULL,
    type       text        NOT NULL,
    payload    json        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT db_clock(),
    -- When the log had it. A relay looks for rows without it: by this status a row that commits late is found late, and by a
    -- cursor it would be lost.
    sent_at    timestamptz,
    CONSTRAINT outbox_pkey PRIMARY KEY (id, day),
    -- Exact within a day. Across days it is the order's lock that counts the steps.
    CONSTRAINT outbox_one_per_step UNIQUE (order_id, sequence, day),
    CONSTRAINT outbox_sequence_positive CHECK (sequence > 0),
    CONSTRAINT outbox_shard_known CHECK (shard BETWEEN 0 AND 63)
) PARTITION BY RANGE (day);
ALTER SEQUENCE outbox_ids OWNED BY outbox.id;

-- What is still to be sent, oldest first. Small at all times: a row leaves it when it is sent. Not by shard: one probe per
-- day finds the work of all lanes, where 64 lanes would need 64.
CREATE INDEX outbox_unsent ON outbox (id) WHERE sent_at IS NULL;

-- What is there already keeps its day.
DO $$
DECLARE
    of_day date;
BEGIN
    FOR of_day IN SELECT DISTINCT (created_at AT TIME ZONE 'UTC')::date FROM outbox_before_days LOOP
        EXECUTE format('CREATE TABLE outbox_%s PARTITION OF outbox FOR VALUES FROM (%L) TO (%L) WITH (fillfactor = 85)',
                       to_char(of_day, 'YYYY_MM_DD'), of_day, of_day + 1);
    END LOOP;
END $$;
INSERT INTO outbox (day, id, event_id, order_id, sequence, shard, type, payload, created_at, sent_at)
    SELECT (created_at AT TIME ZONE 'UTC')::date, id, event_id, order_id, sequence, shard, type, payload, created_at, sent_at
    FROM outbox_before_days;
SELECT setval('outbox_ids', GREATEST((SELECT max(id) FROM outbox_before_days), 1));
DROP TABLE outbox_before_days;
