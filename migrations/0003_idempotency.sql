-- One record per idempotency key and scope. Partitioned by day and dropped by day: deleting 3,000 rows a second would
-- cost as much again as writing them.
--
-- A unique index on a partitioned table must contain the day, so by itself it lets one key in twice across midnight.
-- What closes that: every claim first takes an advisory lock on the digest, then looks at every attached day in a later
-- statement (a new snapshot), then inserts. See src/idempotency/store.rs.
CREATE TABLE idempotency_records (
    -- SHA-256 over the length-prefixed scope. Fixed width, whatever clients send as keys.
    digest                bytea       NOT NULL,
    -- UTC day of the claim. Later writes name it, so that they touch one partition.
    day                   date        NOT NULL,
    -- The scope in the clear: three columns, never a joined string, so that no separator can be forged.
    customer_id           bigint      NOT NULL,
    operation             text        NOT NULL,
    key                   text        NOT NULL,
    -- What the key was first used for, and by which rules that was computed.
    fingerprint           bytea       NOT NULL,
    fingerprint_version   smallint    NOT NULL,
    state                 text        NOT NULL,
    -- Grows with every change of owner; every later write names the fence it holds.
    fence                 integer     NOT NULL,
    -- The run that owns the claim: how a claim whose COMMIT acknowledgement was lost recognises itself.
    attempt               uuid        NOT NULL,
    lease_until           timestamptz,
    -- When recovery looks again at an unknown outcome, and how often it has looked.
    next_attempt_at       timestamptz,
    tries                 integer     NOT NULL DEFAULT 0,
    -- The id that the bought thing has or will have.
    resource_id           uuid        NOT NULL,
    -- Everything needed to go on without the client: what was asked for, and the ids minted for it.
    frozen                text        NOT NULL,
    -- Before the first byte goes to the gateway this is committed. NULL: certainly nothing was sent yet.
    first_sent_at         timestamptz,
    -- The answer, as bytes: a json column would reorder nothing but a jsonb column would.
    response_status       smallint,
    response_content_type text,
    response_location     text,
    response_body         bytea,
    created_at            timestamptz NOT NULL,
    finished_at           timestamptz,
    CONSTRAINT idempotency_records_pkey PRIMARY KEY (digest, day),
    CONSTRAINT records_digest_length CHECK (octet_length(digest) = 32),
    CONSTRAINT records_key_length CHECK (octet_length(key) BETWEEN 1 AND 255),
    CONSTRAINT records_state_known CHECK (state IN ('in_flight', 'unknown', 'needs_review', 'completed', 'failed')),
    CONSTRAINT records_fence_positive CHECK (fence > 0),
    CONSTRAINT records_lease_while_in_flight CHECK ((state = 'in_flight') = (lease_until IS NOT NULL)),
    CONSTRAINT records_unknown_is_scheduled CHECK ((state = 'unknown') = (next_attempt_at IS NOT NULL)),
    CONSTRAINT records_unknown_was_sent CHECK (state NOT IN ('unknown', 'needs_review') OR first_sent_at IS NOT NULL),
    CONSTRAINT records_final_has_answer CHECK (
        (state IN ('completed', 'failed'))
        = (response_status IS NOT NULL AND response_content_type IS NOT NULL AND response_body IS NOT NULL AND finished_at IS NOT NULL)
    ),
    CONSTRAINT records_answer_bounded CHECK (octet_length(response_body) <= 65536)
) PARTITION BY RANGE (day);

-- What recovery looks for. Small: a row leaves it as soon as its outcome is known, and one that was given back unsent is not
-- in it at all (after a day without the gateway there may be millions).
CREATE INDEX records_unresolved ON idempotency_records (digest)
    WHERE state IN ('in_flight', 'unknown', 'needs_review') AND first_sent_at IS NOT NULL;
