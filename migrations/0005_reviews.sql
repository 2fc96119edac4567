-- What a person decided where no program could: the gateway had forgotten the key, and showed nothing. Kept for good; a
-- decision about somebody's money must be found again.
CREATE TABLE reviews (
    id          bigint      GENERATED ALWAYS AS IDENTITY,
    -- The scope it was about. The record itself may be dropped later.
    key_digest  bytea       NOT NULL,
    customer_id bigint      NOT NULL,
    verdict     text        NOT NULL,
    -- The payment intent that proves the charge.
    gateway_id  text,
    -- Who decided, as they named themselves.
    decided_by  text        NOT NULL,
    decided_at  timestamptz NOT NULL DEFAULT db_clock(),
    CONSTRAINT reviews_pkey PRIMARY KEY (id),
    CONSTRAINT reviews_digest_length CHECK (octet_length(key_digest) = 32),
    CONSTRAINT reviews_verdict_known CHECK (verdict IN ('charged', 'not_charged')),
    CONSTRAINT reviews_charge_is_named CHECK ((verdict = 'charged') = (gateway_id IS NOT NULL)),
    CONSTRAINT reviews_somebody_decided CHECK (decided_by <> '')
);
