-- A receipt that the mail service has accepted. The mail goes out before this row is written and under the event's id as its
-- idempotency key: whoever dies in between sends it again, and the mail service recognises it.
CREATE TABLE receipts (
    event_id uuid        NOT NULL,
    order_id uuid        NOT NULL,
    -- The mail service's own name for the mail.
    mail_id  text        NOT NULL,
    sent_at  timestamptz NOT NULL DEFAULT db_clock(),
    CONSTRAINT receipts_pkey PRIMARY KEY (event_id)
);
