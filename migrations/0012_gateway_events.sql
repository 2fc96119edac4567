-- What the gateway told us by itself, kept before anything is made of it. Evidence, not commands: an event says where to look,
-- and what is true is asked of the gateway. So a row may come twice, late, in any order, and for a charge nobody here knows.
CREATE TABLE gateway_events (
    -- The gateway's own name for the event: the same event delivered again is the same row.
    event_id       text        NOT NULL,
    -- payment_intent.succeeded, charge.refunded, … Kept for a person; no code decides by it.
    type           text        NOT NULL,
    -- Our key, from the metadata of the object it tells of. NULL: the object carries none of ours.
    gateway_key    text,
    -- The payment intent it tells of, to be asked for by name. NULL: it tells of something else.
    payment_intent text,
    -- The body as it was signed.
    payload        text        NOT NULL,
    received_at    timestamptz NOT NULL DEFAULT db_clock(),
    -- When to look at it (again): a key that somebody is working on is left alone for a while.
    look_at        timestamptz NOT NULL DEFAULT db_clock(),
    applied_at     timestamptz,
    outcome        text,
    CONSTRAINT gateway_events_pkey PRIMARY KEY (event_id),
    CONSTRAINT gateway_events_id_length CHECK (octet_length(event_id) BETWEEN 1 AND 255),
    CONSTRAINT gateway_events_type_length CHECK (octet_length(type) <= 255),
    CONSTRAINT gateway_events_key_ours CHECK (gateway_key ~ '^chk_[0-9a-f]{64}$'),
    CONSTRAINT gateway_events_intent_length CHECK (octet_length(payment_intent) BETWEEN 1 AND 255),
    CONSTRAINT gateway_events_payload_bounded CHECK (octet_length(payload) <= 262144),
    CONSTRAINT gateway_events_outcome_known
        CHECK (outcome IN ('not_ours', 'woke_recovery', 'already_known', 'unmatched')),
    CONSTRAINT gateway_events_applied_has_outcome CHECK ((applied_at IS NULL) = (outcome IS NULL))
);
-- What is still to be looked at: nearly nothing, nearly always.
CREATE INDEX gateway_events_unapplied ON gateway_events (look_at) WHERE applied_at IS NULL;
-- Which payment intents does the gateway name under this key? Asked in every claim.
CREATE INDEX gateway_events_by_key ON gateway_events (gateway_key, received_at)
    WHERE gateway_key IS NOT NULL AND payment_intent IS NOT NULL;
-- What may be forgotten. Deleted in batches, not dropped by the day: an event that comes again days later must meet itself, and a
-- unique index on days would not see it.
CREATE INDEX gateway_events_applied ON gateway_events (applied_at) WHERE applied_at IS NOT NULL;
