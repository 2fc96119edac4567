-- Who does which part of the work that only one may do at a time: the lanes of the outbox, the partitions of the log, and
-- duties of a single slot. A lease runs out by itself, so a dead owner needs nobody to declare it dead.
CREATE TABLE leases (
    -- relay, ledger, receipts, …
    duty        text        NOT NULL,
    -- Lane or partition, from 0.
    slot        smallint    NOT NULL,
    -- The process, not the machine: one that was started again is somebody else.
    owner       uuid,
    -- Grows with every change of owner. A lease alone fences nobody: an owner that was paused past it believes in it still,
    -- and only its epoch tells that it is late.
    epoch       bigint      NOT NULL DEFAULT 0,
    lease_until timestamptz NOT NULL DEFAULT '-infinity',
    CONSTRAINT leases_pkey PRIMARY KEY (duty, slot),
    CONSTRAINT leases_slot_known CHECK (slot >= 0),
    CONSTRAINT leases_epoch_grows CHECK (epoch >= 0)
    -- Renewed every few seconds, for ever: the new version of a row stays on its page.
) WITH (fillfactor = 50);

-- Who would like to have slots. Their number is what a fair share is computed from; without it a second worker would find
-- everything taken and wait for the first one's death.
CREATE TABLE lease_seekers (
    duty       text        NOT NULL,
    owner      uuid        NOT NULL,
    seen_until timestamptz NOT NULL,
    CONSTRAINT lease_seekers_pkey PRIMARY KEY (duty, owner)
) WITH (fillfactor = 50);

INSERT INTO leases (duty, slot) SELECT 'relay', slot FROM generate_series(0, 63) AS slot;
INSERT INTO leases (duty, slot) SELECT duty, slot FROM unnest(ARRAY['ledger', 'receipts']) AS duty, generate_series(0, 7) AS slot;
