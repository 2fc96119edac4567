-- How many keys each customer began on each day: what the quota of live keys is judged by. An estimate on purpose: an api
-- counts in memory and adds its counts here every few seconds, so that no claim pays for it. A crash loses a few seconds' worth.
CREATE TABLE live_keys (
    day         date   NOT NULL,
    customer_id bigint NOT NULL,
    keys        bigint NOT NULL,
    -- The day first: old days are forgotten as a whole.
    CONSTRAINT live_keys_pkey PRIMARY KEY (day, customer_id),
    CONSTRAINT live_keys_positive CHECK (keys > 0)
);
