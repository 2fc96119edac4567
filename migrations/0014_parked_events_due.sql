-- What is to be tried again, the longest due first. Asked for in every round of every consumer, and after a bad day the table
-- is full of events that wait for a person: a walk through them all would take more time than the round. Without those.
CREATE INDEX parked_events_due ON parked_events (stage, next_attempt_at) WHERE next_attempt_at IS NOT NULL;
