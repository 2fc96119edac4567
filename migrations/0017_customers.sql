-- What customers tell of themselves. Set by a PUT, which may be repeated as it is: it needs no key and no record.
CREATE TABLE customers (
    customer_id bigint      NOT NULL,
    email       text        NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT db_clock(),
    CONSTRAINT customers_pkey PRIMARY KEY (customer_id),
    CONSTRAINT customers_email_length CHECK (octet_length(email) BETWEEN 3 AND 254)
);
