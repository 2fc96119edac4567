-- The consumers' side: how far each has read, what it has applied, and what it could not.

CREATE TABLE consumer_offsets (
    consumer    text     NOT NULL,
    partition   smallint NOT NULL,
    -- Everything before it is applied or held, and committed. Only ever grows.
    next_offset bigint   NOT NULL DEFAULT 0,
    CONSTRAINT consumer_offsets_pkey PRIMARY KEY (consumer, partition)
) WITH (fillfactor = 50);
INSERT INTO consumer_offsets (consumer, partition)
    SELECT consumer, partition FROM unnest(ARRAY['ledger', 'receipts']) AS consumer, generate_series(0, 7) AS partition;

CREATE SEQUENCE processed_positions AS bigint;

-- One row per event and consumer, written in the transaction of the effect: that is what makes an effect happen once,
-- however often its event arrives.
CREATE TABLE processed (
    -- The event's day: the same event always meets its own partition, so the key is exact and the day can be dropped.
    day      date    NOT NULL,
    consumer text    NOT NULL,
    event_id uuid    NOT NULL,
    order_id uuid    NOT NULL,
    sequence integer NOT NULL,
    -- In which order this consumer applied events: how an audit sees that an order's events kept theirs.
    position bigint  NOT NULL DEFAULT nextval('processed_positions'),
    CONSTRAINT processed_pkey PRIMARY KEY (consumer, event_id, day)
) PARTITION BY RANGE (day);
ALTER SEQUENCE processed_positions OWNED BY processed.position;

-- Events that somebody could not deal with. While one of an order is here, the later ones of that order come here too and
-- wait behind it; the events of other orders flow. Only the first of an order is ever tried.
CREATE TABLE parked_events (
    -- relay, or a consumer.
    stage           text        NOT NULL,
    event_id        uuid        NOT NULL,
    day             date        NOT NULL,
    order_id        uuid        NOT NULL,
    sequence        integer     NOT NULL,
    type            text        NOT NULL,
    payload         text        NOT NULL,
    occurred_at     timestamptz NOT NULL,
    -- How often it has failed. 0: it waits behind another one.
    attempts        integer     NOT NULL,
    -- What was said about it last.
    error           text,
    held_at         timestamptz NOT NULL DEFAULT db_clock(),
    -- NULL: parked. It was tried often enough, and is tried again when a person says so.
    next_attempt_at timestamptz,
    CONSTRAINT parked_events_pkey PRIMARY KEY (stage, event_id),
    CONSTRAINT parked_events_sequence_positive CHECK (sequence > 0),
    CONSTRAINT parked_events_failure_says_why CHECK ((attempts > 0) = (error IS NOT NULL)),
    CONSTRAINT parked_events_parked_has_failed CHECK (next_attempt_at IS NOT NULL OR attempts > 0)
);
-- The queue of one order.
CREATE INDEX parked_events_order ON parked_events (stage, order_id, sequence);
