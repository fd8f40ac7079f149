-- Which sessions are pinned and archived: their logs are read again.
ALTER TABLE session ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;

DELETE FROM session;
DELETE FROM passage;
