-- The database is the only clock: leases, expiry and the day of a record are all judged by this function, never by a
-- process. It is clock_timestamp(), not now(): now() stands still for a whole transaction, and a lease granted by it
-- would be older than it says. A function, so that a test can set the hour of one database without touching the code
-- under test; PostgreSQL inlines it, so it costs nothing.
CREATE FUNCTION db_clock() RETURNS timestamptz
    LANGUAGE sql VOLATILE PARALLEL SAFE
    AS 'SELECT clock_timestamp()';

-- The day a record belongs to. In UTC, so that it does not depend on a session's time zone.
CREATE FUNCTION db_day() RETURNS date
    LANGUAGE sql VOLATILE PARALLEL SAFE
    AS 'SELECT (db_clock() AT TIME ZONE ''UTC'')::date';
