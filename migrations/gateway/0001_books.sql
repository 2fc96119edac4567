-- The mock gateway's own books. Nothing outside src/mock_gateway names this schema: it stands for another company's database.
CREATE SCHEMA IF NOT EXISTS mock_gateway;

CREATE TABLE mock_gateway.payment_intents (
    -- pi_ and 32 hexadecimal digits that begin with the time of creation in milliseconds. Byte order is therefore the order of
    -- creation, which lists, cursors and windows of time rely on, whatever the collation of the database.
    id text COLLATE "C" NOT NULL CONSTRAINT payment_intents_pk PRIMARY KEY
        CONSTRAINT payment_intents_id_form CHECK (id ~ '^pi_[0-9a-f]{32}$'),
    -- A writer names the version it read: two confirmations at once cannot both move the money.
    version integer NOT NULL CONSTRAINT payment_intents_version_positive CHECK (version > 0),
    amount bigint NOT NULL CONSTRAINT payment_intents_amount_range CHECK (amount BETWEEN 1 AND 99999999),
    currency text NOT NULL CONSTRAINT payment_intents_currency_form CHECK (currency ~ '^[a-z]{3}$'),
    status text NOT NULL CONSTRAINT payment_intents_status_known CHECK (
        status IN ('requires_payment_method', 'requires_confirmation', 'requires_action', 'succeeded', 'canceled')),
    payment_method text,
    description text,
    metadata jsonb NOT NULL CONSTRAINT payment_intents_metadata_object CHECK (jsonb_typeof(metadata) = 'object'),
    -- What the payment is for in the client's own books: what the ledger is asked by.
    reference text GENERATED ALWAYS AS (coalesce(metadata ->> 'reference', metadata ->> 'order_id')) STORED,
    -- No foreign key: both rows are written by one transaction, the intent first.
    latest_charge text COLLATE "C",
    -- Why the latest charge failed.
    decline_code text,
    canceled_at_ms bigint,
    -- The idempotency key of the request that captured, if it had one.
    captured_by text COLLATE "C",
    CONSTRAINT payment_intents_succeeded_is_charged CHECK (status <> 'succeeded' OR (latest_charge IS NOT NULL AND decline_code IS NULL)),
    CONSTRAINT payment_intents_canceled_has_time CHECK ((status = 'canceled') = (canceled_at_ms IS NOT NULL)),
    CONSTRAINT payment_intents_captured_by_succeeded CHECK (captured_by IS NULL OR status = 'succeeded')
);

-- Search by metadata['name']:'value' is a containment test.
CREATE INDEX payment_intents_metadata_idx ON mock_gateway.payment_intents USING gin (metadata jsonb_path_ops);
CREATE INDEX payment_intents_reference_idx ON mock_gateway.payment_intents (reference, id) WHERE status = 'succeeded';

CREATE TABLE mock_gateway.charges (
    id text COLLATE "C" NOT NULL CONSTRAINT charges_pk PRIMARY KEY
        CONSTRAINT charges_id_form CHECK (id ~ '^ch_[0-9a-f]{32}$'),
    payment_intent text COLLATE "C" NOT NULL
        CONSTRAINT charges_payment_intent_fk REFERENCES mock_gateway.payment_intents (id) ON DELETE CASCADE,
    -- Copies, not references: a charge says what was charged, even when its intent changes later.
    amount bigint NOT NULL CONSTRAINT charges_amount_range CHECK (amount BETWEEN 1 AND 99999999),
    currency text NOT NULL CONSTRAINT charges_currency_form CHECK (currency ~ '^[a-z]{3}$'),
    payment_method text NOT NULL,
    metadata jsonb NOT NULL CONSTRAINT charges_metadata_object CHECK (jsonb_typeof(metadata) = 'object'),
    -- NULL is a charge that succeeded.
    decline_code text
);

CREATE INDEX charges_payment_intent_idx ON mock_gateway.charges (payment_intent, id);
-- The last line of defence of the gateway itself: one intent moves money once.
CREATE UNIQUE INDEX charges_succeed_once ON mock_gateway.charges (payment_intent) WHERE decline_code IS NULL;

CREATE TABLE mock_gateway.idempotency_keys (
    -- Keys belong to the account, not to an endpoint, and this gateway has one account.
    key text COLLATE "C" NOT NULL CONSTRAINT idempotency_keys_pk PRIMARY KEY
        CONSTRAINT idempotency_keys_key_length CHECK (length(key) BETWEEN 1 AND 255),
    -- How often anything was executed under this key: more than 1 after its time to live, or when keys are ignored.
    executions bigint NOT NULL CONSTRAINT idempotency_keys_executions_counted CHECK (executions >= 1),
    replays bigint NOT NULL DEFAULT 0 CONSTRAINT idempotency_keys_replays_counted CHECK (replays >= 0),
    -- The record: what must match, and what is answered again. Absent when the gateway ignored the key. A key in progress has
    -- no row: it lives in the process, and dies with it.
    path text,
    fingerprint bytea CONSTRAINT idempotency_keys_fingerprint_length CHECK (length(fingerprint) = 32),
    request_id text,
    recorded_at_ms bigint,
    status smallint CONSTRAINT idempotency_keys_status_final CHECK (status BETWEEN 200 AND 599),
    body bytea,
    CONSTRAINT idempotency_keys_record_whole CHECK (
        num_nulls(path, fingerprint, request_id, recorded_at_ms, status, body) IN (0, 6))
);
