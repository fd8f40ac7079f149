-- The agent of each session: the logs are read again.
ALTER TABLE session ADD COLUMN agent TEXT NOT NULL DEFAULT '';

DELETE FROM session;
DELETE FROM passage;
