-- What is given back. A charge says how much of it was; a refund says when, why and under which notes.
ALTER TABLE mock_gateway.charges
    -- As with intents: a refund names the version of the charge it was computed from, so that two refunds at once cannot both
    -- use the same rest. Every charge written before there were refunds is its own first version.
    ADD COLUMN version integer NOT NULL DEFAULT 1 CONSTRAINT charges_version_positive CHECK (version > 0),
    -- The sum of the refunds of this charge, kept beside the amount so that one CHECK can hold them against each other.
    ADD COLUMN amount_refunded bigint NOT NULL DEFAULT 0,
    -- The invariant of the gateway's money: never more back than was taken, and nothing was taken by a charge that failed.
    ADD CONSTRAINT charges_refunded_within_capture CHECK (
        amount_refunded BETWEEN 0 AND CASE WHEN decline_code IS NULL THEN amount ELSE 0 END);

CREATE TABLE mock_gateway.refunds (
    -- re_ and 32 hexadecimal digits that begin with the time of creation, as with intents.
    id text COLLATE "C" NOT NULL CONSTRAINT refunds_pk PRIMARY KEY
        CONSTRAINT refunds_id_form CHECK (id ~ '^re_[0-9a-f]{32}$'),
    charge text COLLATE "C" NOT NULL
        CONSTRAINT refunds_charge_fk REFERENCES mock_gateway.charges (id) ON DELETE CASCADE,
    -- The charge's own; kept here because refunds are listed by it.
    payment_intent text COLLATE "C" NOT NULL
        CONSTRAINT refunds_payment_intent_fk REFERENCES mock_gateway.payment_intents (id) ON DELETE CASCADE,
    amount bigint NOT NULL CONSTRAINT refunds_amount_range CHECK (amount BETWEEN 1 AND 99999999),
    -- A copy, as in a charge.
    currency text NOT NULL CONSTRAINT refunds_currency_form CHECK (currency ~ '^[a-z]{3}$'),
    metadata jsonb NOT NULL CONSTRAINT refunds_metadata_object CHECK (jsonb_typeof(metadata) = 'object'),
    -- NULL is a reason nobody gave.
    reason text CONSTRAINT refunds_reason_known CHECK (
        reason IN ('duplicate', 'fraudulent', 'requested_by_customer'))
);

CREATE INDEX refunds_payment_intent_idx ON mock_gateway.refunds (payment_intent, id);
CREATE INDEX refunds_charge_idx ON mock_gateway.refunds (charge);
