-- The last turn that began, and the first one that a copy does not share with the session it is a copy of.
ALTER TABLE session ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN branch_turn INTEGER NOT NULL DEFAULT 0;

-- The rows there are know nothing of these: their logs are read again.
DELETE FROM session;
DELETE FROM passage;
