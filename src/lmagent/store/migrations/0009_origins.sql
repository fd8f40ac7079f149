-- The column `job` holds the text of an origin: the logs are read again.
DELETE FROM session;
DELETE FROM passage;
