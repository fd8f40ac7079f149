-- Every event of every session, numbered as it was read: what a watcher of all sessions has seen is one number.
CREATE TABLE event (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    ts      REAL NOT NULL,
    type    TEXT NOT NULL,
    start   INTEGER NOT NULL,
    size    INTEGER NOT NULL
);

CREATE UNIQUE INDEX event_place ON event (session, seq);

-- Tells this numbering from that of an index that was deleted and filled anew.
CREATE TABLE numbering (mark TEXT NOT NULL);
INSERT INTO numbering (mark) VALUES (lower(hex(randomblob(6))));

-- Where the newest input came from, and what a job submitted while another one's turn was open.
ALTER TABLE session ADD COLUMN surface TEXT NOT NULL DEFAULT '';
ALTER TABLE session ADD COLUMN queued TEXT NOT NULL DEFAULT '';

-- What waits for a person: approvals, and a plan.
ALTER TABLE session ADD COLUMN asks INTEGER NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN planned INTEGER NOT NULL DEFAULT 0;

-- The rows there are know nothing of these: their logs are read again.
DELETE FROM session;
DELETE FROM passage;
