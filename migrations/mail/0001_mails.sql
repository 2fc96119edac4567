-- The mock mail service's own books. Nothing outside src/mock_mail names this schema: it stands for another company's database.
CREATE SCHEMA IF NOT EXISTS mock_mail;

CREATE TABLE mock_mail.mails (
    -- Order of arrival, which the record is paged by. Not an order of commits: a page read while mails are being delivered can
    -- miss one that commits behind it.
    serial bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT mails_pk PRIMARY KEY,
    -- The service's name for the mail, as its sender learns it.
    id uuid NOT NULL CONSTRAINT mails_id_key UNIQUE,
    -- NULL: sent without a key. Not unique: a key that executed twice delivered two mails, and the record must show both.
    idempotency_key text COLLATE "C" CONSTRAINT mails_idempotency_key_length CHECK (length(idempotency_key) BETWEEN 1 AND 256),
    -- The limits of a mail address and of a header line.
    sender text NOT NULL CONSTRAINT mails_sender_length CHECK (length(sender) BETWEEN 3 AND 320),
    recipient text NOT NULL CONSTRAINT mails_recipient_length CHECK (length(recipient) BETWEEN 3 AND 320),
    subject text NOT NULL CONSTRAINT mails_subject_length CHECK (length(subject) BETWEEN 1 AND 998),
    -- What the customer reads. The HTTP body that carried it had at most 64 KiB.
    content text NOT NULL CONSTRAINT mails_content_length CHECK (length(content) BETWEEN 1 AND 65536),
    -- The sender's own notes, by name; nobody asks by them.
    tags jsonb NOT NULL CONSTRAINT mails_tags_object CHECK (jsonb_typeof(tags) = 'object'),
    -- Milliseconds since 1970 on the service's own clock, which an experiment may push forward.
    created_ms bigint NOT NULL
);

-- What a sender asks when it does not know: was anything delivered under this key? Independent of the key's time to live.
CREATE INDEX mails_idempotency_key_idx ON mock_mail.mails (idempotency_key, serial) WHERE idempotency_key IS NOT NULL;

CREATE TABLE mock_mail.idempotency_keys (
    -- A key in progress has no row: it lives in the process, and dies with it.
    key text COLLATE "C" NOT NULL CONSTRAINT idempotency_keys_pk PRIMARY KEY
        CONSTRAINT idempotency_keys_key_length CHECK (length(key) BETWEEN 1 AND 256),
    -- SHA-256 of the body as it came: what must match when the key comes again.
    fingerprint bytea NOT NULL CONSTRAINT idempotency_keys_fingerprint_length CHECK (length(fingerprint) = 32),
    -- What is answered again. No foreign key: one transaction writes both rows, the mail first.
    mail_id uuid NOT NULL,
    -- On the service's own clock; past its time to live the key delivers anew, and gets a new record here.
    recorded_at_ms bigint NOT NULL
);
