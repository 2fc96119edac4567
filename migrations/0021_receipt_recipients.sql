-- Where a receipt goes, from before its first send until it is booked. The mail service compares a repeated mail with the first
-- one byte for byte, and a customer may set another address in between: the mail goes where it went first.
--
-- A row lives as long as its mail is under way. Short-lived rows on few pages: vacuumed by their number, whatever their share.
CREATE TABLE receipt_recipients (
    event_id  uuid NOT NULL,
    recipient text NOT NULL,
    CONSTRAINT receipt_recipients_pkey PRIMARY KEY (event_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
