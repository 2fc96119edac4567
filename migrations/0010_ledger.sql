-- Double-entry bookkeeping: each event is a transaction of entries that sum to zero. Written by the ledger consumer, in the
-- transaction that remembers the event as processed. Kept for good; nothing is ever changed, mistakes are posted against.
CREATE TABLE ledger_entries (
    event_id     uuid        NOT NULL,
    -- gateway: what the gateway owes us. sales: what we sold.
    account      text        NOT NULL,
    order_id     uuid        NOT NULL,
    -- In minor units; debit is positive, credit negative.
    amount_minor bigint      NOT NULL,
    currency     text        NOT NULL,
    booked_at    timestamptz NOT NULL DEFAULT db_clock(),
    -- An event posts to an account once: the last line against a double posting, for as long as the ledger lives.
    CONSTRAINT ledger_entries_pkey PRIMARY KEY (event_id, account),
    CONSTRAINT ledger_entries_account_known CHECK (account IN ('gateway', 'sales')),
    CONSTRAINT ledger_entries_amount_moves CHECK (amount_minor <> 0)
);
