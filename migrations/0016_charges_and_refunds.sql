-- A charge without an order, and money that goes back.

-- What a charge was taken for: an order, or nothing but itself. The default is for a version of us that is still running and
-- knows orders alone.
ALTER TABLE charges ADD COLUMN operation text NOT NULL DEFAULT 'orders.create';
-- The customer's own name for a charge that stands alone; an order keeps its own. No code here reads it.
ALTER TABLE charges ADD COLUMN client_reference text;
ALTER TABLE charges ADD CONSTRAINT charges_operation_known CHECK (operation IN ('orders.create', 'charges.create'));

-- When it was asked for: what its customer is shown. created_at is when it was written, after the gateway had it.
ALTER TABLE charges ADD COLUMN claimed_at timestamptz;

-- A customer's own list, newest first: the ids are minted in the order of time. Orders have their own list, so those of
-- their charges are not in this one.
CREATE INDEX charges_of_customer ON charges (customer_id, id) WHERE operation = 'charges.create' AND status = 'succeeded';
CREATE INDEX orders_of_customer ON orders (customer_id, id);

-- What of an order is given back, or held back for a refund whose outcome is open. Counted in the order's own row, under its
-- lock, and bounded by a CHECK: whatever races, no more than the total ever leaves.
ALTER TABLE orders ADD COLUMN refund_reserved_minor bigint NOT NULL DEFAULT 0;
-- What was given back for certain. A part of the above.
ALTER TABLE orders ADD COLUMN refunded_minor bigint NOT NULL DEFAULT 0;
-- The sequence of the order's latest event.
ALTER TABLE orders ADD COLUMN events integer NOT NULL DEFAULT 1;
ALTER TABLE orders ADD CONSTRAINT orders_refunds_within_total
    CHECK (0 <= refunded_minor AND refunded_minor <= refund_reserved_minor AND refund_reserved_minor <= total_minor);
ALTER TABLE orders DROP CONSTRAINT orders_status_known;
ALTER TABLE orders ADD CONSTRAINT orders_status_known CHECK (
    status = CASE WHEN refunded_minor = 0 THEN 'paid' WHEN refunded_minor < total_minor THEN 'partially_refunded' ELSE 'refunded' END
);

CREATE TABLE refunds (
    -- Minted at the claim, before anything is sent.
    id           uuid        NOT NULL,
    order_id     uuid        NOT NULL,
    customer_id  bigint      NOT NULL,
    -- Digest of the scope that asked for it. The gateway key is a function of it.
    key_digest   bytea       NOT NULL,
    amount_minor bigint      NOT NULL,
    currency     text        NOT NULL,
    -- reserved: the amount is held back, its outcome is open. released: nothing was sent, and nothing is held back.
    status       text        NOT NULL,
    -- The gateway's own name for it.
    gateway_id   text,
    -- Why the gateway refused.
    refusal      text,
    -- The event that tells of it.
    event_id     uuid,
    created_at   timestamptz NOT NULL DEFAULT db_clock(),
    finished_at  timestamptz,
    CONSTRAINT refunds_pkey PRIMARY KEY (id),
    CONSTRAINT refunds_order_exists FOREIGN KEY (order_id) REFERENCES orders (id),
    CONSTRAINT refunds_status_known CHECK (status IN ('reserved', 'succeeded', 'refused', 'released')),
    CONSTRAINT refunds_amount_positive CHECK (amount_minor > 0),
    CONSTRAINT refunds_digest_length CHECK (octet_length(key_digest) = 32),
    CONSTRAINT refunds_success_names_gateway CHECK ((status = 'succeeded') = (gateway_id IS NOT NULL AND event_id IS NOT NULL)),
    CONSTRAINT refunds_refusal_says_why CHECK ((status = 'refused') = (refusal IS NOT NULL)),
    CONSTRAINT refunds_end_is_dated CHECK ((status IN ('succeeded', 'refused')) = (finished_at IS NOT NULL))
);
CREATE INDEX refunds_of_order ON refunds (order_id, id);
-- Permanent, as with charges: one key gives back once. A refused key may run anew after it expired.
CREATE UNIQUE INDEX refunds_one_per_key ON refunds (key_digest) WHERE status IN ('reserved', 'succeeded');
