-- A title is a clean line: those there are may not be, so their logs are read again.
DELETE FROM session;
DELETE FROM passage;
