-- The event of a change, written in the change's own transaction: either both exist or neither.
CREATE TABLE outbox (
    -- Order of insertion, for a stable scan. Never a cursor: a lower id may commit later.
    id         bigint      GENERATED ALWAYS AS IDENTITY,
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
    sent_at    timestamptz,
    CONSTRAINT outbox_pkey PRIMARY KEY (id),
    CONSTRAINT outbox_one_per_step UNIQUE (order_id, sequence),
    CONSTRAINT outbox_sequence_positive CHECK (sequence > 0),
    CONSTRAINT outbox_shard_known CHECK (shard BETWEEN 0 AND 63)
) WITH (fillfactor = 85);
CREATE INDEX outbox_unsent ON outbox (shard, id) WHERE sent_at IS NULL;
