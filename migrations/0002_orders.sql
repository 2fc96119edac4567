-- What was bought, for good. These two tables outlive every idempotency record, and their unique indexes are the last
-- line of the promise: whatever happens above them, one key buys once.

CREATE TABLE charges (
    -- Minted at the claim, before anything is sent, and kept in the frozen request until the outcome is known.
    id           uuid        NOT NULL,
    customer_id  bigint      NOT NULL,
    -- Digest of the scope that asked for it (customer, operation, key). The gateway key is a function of it.
    key_digest   bytea       NOT NULL,
    amount_minor bigint      NOT NULL,
    currency     text        NOT NULL,
    status       text        NOT NULL,
    -- The gateway's payment intent. A refusal may come before the gateway made one.
    gateway_id   text,
    decline_code text,
    created_at   timestamptz NOT NULL DEFAULT db_clock(),
    CONSTRAINT charges_pkey PRIMARY KEY (id),
    CONSTRAINT charges_status_known CHECK (status IN ('succeeded', 'declined')),
    CONSTRAINT charges_amount_positive CHECK (amount_minor > 0),
    CONSTRAINT charges_digest_length CHECK (octet_length(key_digest) = 32),
    CONSTRAINT charges_success_names_gateway CHECK (status <> 'succeeded' OR gateway_id IS NOT NULL),
    CONSTRAINT charges_decline_says_why CHECK ((status = 'declined') = (decline_code IS NOT NULL))
);
-- A declined key may run anew after it expired, so only success is unique.
CREATE UNIQUE INDEX charges_one_success_per_key ON charges (key_digest) WHERE status = 'succeeded';

CREATE TABLE orders (
    id               uuid        NOT NULL,
    customer_id      bigint      NOT NULL,
    charge_id        uuid        NOT NULL,
    key_digest       bytea       NOT NULL,
    status           text        NOT NULL,
    total_minor      bigint      NOT NULL,
    currency         text        NOT NULL,
    -- [{"sku", "quantity", "unit_price"}], prices frozen as charged. Read back whole, never searched.
    items            json        NOT NULL,
    -- The customer's own name for the purchase. Kept for the customer and for an audit by intent; no code here reads it.
    client_reference text,
    created_at       timestamptz NOT NULL DEFAULT db_clock(),
    CONSTRAINT orders_pkey PRIMARY KEY (id),
    -- Permanent, unlike the record: after the record's day is dropped this still refuses to sell twice under one key.
    CONSTRAINT orders_one_per_key UNIQUE (key_digest),
    -- No order without its charge.
    CONSTRAINT orders_charge_exists FOREIGN KEY (charge_id) REFERENCES charges (id),
    CONSTRAINT orders_status_known CHECK (status IN ('paid')),
    CONSTRAINT orders_total_positive CHECK (total_minor > 0),
    CONSTRAINT orders_digest_length CHECK (octet_length(key_digest) = 32)
);
