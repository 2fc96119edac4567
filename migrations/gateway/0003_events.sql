-- What the gateway tells by itself. An event is written by the transaction that made it true.
CREATE TABLE mock_gateway.events (
    -- evt_ and 32 hexadecimal digits that begin with the time of creation, as with intents.
    id text COLLATE "C" NOT NULL CONSTRAINT events_pk PRIMARY KEY
        CONSTRAINT events_id_form CHECK (id ~ '^evt_[0-9a-f]{32}$'),
    type text NOT NULL CONSTRAINT events_type_known CHECK (
        type IN ('payment_intent.succeeded', 'payment_intent.payment_failed', 'charge.refunded')),
    -- Whose story it belongs to. No foreign key: what was told stays told.
    payment_intent text COLLATE "C" NOT NULL,
    -- The object as it was then, byte for byte as every delivery shows it; so not jsonb, which would write it anew.
    object bytea NOT NULL CONSTRAINT events_object_not_empty CHECK (length(object) > 0),
    -- The request that caused it, and its idempotency key if it had one.
    request_id text NOT NULL,
    idempotency_key text COLLATE "C",
    -- An endpoint was there when it happened, and has not confirmed it yet. What is pending outlives a kill of the gateway.
    pending boolean NOT NULL
);

-- A list by type, newest first.
CREATE INDEX events_type_idx ON mock_gateway.events (type, id);
-- The sender reads what is left by its state, never by "later than the last one": names are not in the order of commits.
CREATE INDEX events_pending_idx ON mock_gateway.events (id) WHERE pending;
