-- Our books against the gateway's. How far have we looked, and what did we find that no row of ours explains?

-- The reconciler's place in the gateway's list. One row.
CREATE TABLE reconciliation_progress (
    slot      smallint NOT NULL,
    -- Everything that the gateway created before this second (since 1970, by the gateway's clock) has been looked at. From 0:
    -- the first run looks at all there is.
    reached_s bigint   NOT NULL DEFAULT 0,
    -- The end of the window that is being paged through, and the last intent that was seen of it: the list is newest first,
    -- so a window that is left half way is continued by name, whatever came after it.
    until_s   bigint,
    after_id  text,
    CONSTRAINT reconciliation_progress_pkey PRIMARY KEY (slot),
    CONSTRAINT reconciliation_progress_one_row CHECK (slot = 0),
    CONSTRAINT reconciliation_progress_window CHECK (until_s IS NOT NULL OR after_id IS NULL)
);
INSERT INTO reconciliation_progress (slot) VALUES (0);

-- Money that the gateway took and that our books do not explain. A row is never deleted: it is what a person is shown.
CREATE TABLE reconciliation_findings (
    -- The gateway's name for it: seen again, it is the same finding.
    payment_intent text        NOT NULL,
    -- What our rows say: surplus, orphan_refused, orphan_unknown, foreign; pending: its key is still open, much later.
    kind           text        NOT NULL,
    -- Our key, and the digest in it, by which a claim looks for what the gateway may have taken already.
    gateway_key    text,
    key_digest     bytea,
    -- What the gateway still held of it when it was found: what is given back.
    amount_minor   bigint      NOT NULL,
    -- In the gateway's words: a foreign charge may be in a currency that we do not sell in.
    currency       text        NOT NULL,
    -- By the gateway's clock: from here on it remembers the key for a day.
    created_at     timestamptz NOT NULL,
    found_at       timestamptz NOT NULL DEFAULT db_clock(),
    -- open: nothing was done. refunding: decided and committed, perhaps sent; nobody may settle by this intent any more.
    state          text        NOT NULL DEFAULT 'open',
    refund_id      text,
    -- Why it is where it is, for a person.
    detail         text,
    -- When it was last judged: the longest unseen goes first.
    looked_at      timestamptz NOT NULL DEFAULT db_clock(),
    CONSTRAINT reconciliation_findings_pkey PRIMARY KEY (payment_intent),
    CONSTRAINT findings_intent_length CHECK (octet_length(payment_intent) BETWEEN 1 AND 255),
    CONSTRAINT findings_kind_known CHECK (kind IN ('surplus', 'orphan_refused', 'orphan_unknown', 'foreign', 'pending')),
    CONSTRAINT findings_state_known CHECK (state IN ('open', 'refunding', 'refunded', 'explained')),
    CONSTRAINT findings_digest_length CHECK (octet_length(key_digest) = 32),
    CONSTRAINT findings_key_with_digest CHECK ((gateway_key IS NULL) = (key_digest IS NULL)),
    CONSTRAINT findings_foreign_has_no_key CHECK ((kind = 'foreign') = (key_digest IS NULL)),
    CONSTRAINT findings_foreign_untouched CHECK (kind <> 'foreign' OR state = 'open'),
    CONSTRAINT findings_refund_has_state CHECK (refund_id IS NULL OR state = 'refunded'),
    CONSTRAINT findings_detail_bounded CHECK (octet_length(detail) <= 2000)
);
-- What a claim asks: did the gateway take money under this key that we lost sight of?
CREATE INDEX findings_by_key ON reconciliation_findings (key_digest) WHERE key_digest IS NOT NULL;
-- What a round looks at again.
CREATE INDEX findings_to_do ON reconciliation_findings (looked_at) WHERE state IN ('open', 'refunding') AND kind <> 'foreign';

-- Does a charge of ours name this intent? Asked for every line of the gateway's list.
CREATE INDEX charges_by_gateway_id ON charges (gateway_id) WHERE gateway_id IS NOT NULL;
-- Was this key told that it was not charged? The record that said so is forgotten after days, the failed charge is not.
CREATE INDEX charges_declined_by_key ON charges (key_digest) WHERE status = 'declined';

INSERT INTO leases (duty, slot) VALUES ('reconcile', 0);
