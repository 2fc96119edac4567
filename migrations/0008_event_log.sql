-- The broker that needs no installation: a log in the manner of Kafka's. Partitions, offsets without gaps, consumers that
-- remember how far they are. It promises what brokers promise: at least once, in order within a partition. A relay that
-- repeats itself appends an event again, at another offset; whoever reads must dedupe by event id.

CREATE TABLE log_partitions (
    partition   smallint NOT NULL,
    -- The offset that the next event gets. Whoever appends holds this row's lock until the commit: so offsets become visible
    -- in their order, and a reader that has seen one has seen all before it.
    next_offset bigint   NOT NULL DEFAULT 0,
    CONSTRAINT log_partitions_pkey PRIMARY KEY (partition),
    CONSTRAINT log_partitions_offset_positive CHECK (next_offset >= 0)
) WITH (fillfactor = 50);
INSERT INTO log_partitions (partition) SELECT generate_series(0, 7);

CREATE TABLE event_log (
    -- The event's own day, not the day of its append: everything about one event is dropped together.
    day         date        NOT NULL,
    partition   smallint    NOT NULL,
    "offset"    bigint      NOT NULL,
    event_id    uuid        NOT NULL,
    order_id    uuid        NOT NULL,
    sequence    integer     NOT NULL,
    type        text        NOT NULL,
    -- Text: a log carries bytes and has no opinion on them.
    payload     text        NOT NULL,
    occurred_at timestamptz NOT NULL,
    CONSTRAINT event_log_pkey PRIMARY KEY (partition, "offset", day),
    -- As every broker has its largest message. A larger one is refused by itself, before it reaches this line.
    CONSTRAINT event_log_payload_bounded CHECK (octet_length(payload) <= 65536)
) PARTITION BY RANGE (day);
