-- What a session goes on with by itself: a wait, or a job that was cut off.
ALTER TABLE session ADD COLUMN until REAL NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN ended TEXT NOT NULL DEFAULT '';
ALTER TABLE session ADD COLUMN job TEXT NOT NULL DEFAULT '';
ALTER TABLE session ADD COLUMN child INTEGER NOT NULL DEFAULT 0;

CREATE INDEX session_until ON session (until) WHERE until > 0;
CREATE INDEX session_job ON session (job) WHERE job <> '';

-- The rows there are know nothing of these: their logs are read again.
DELETE FROM session;
DELETE FROM passage;

-- Jobs: what is to be done in which lane, from when on, and who is at it. Filled anew from logs and files.
CREATE TABLE job (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT NOT NULL UNIQUE,
    lane        TEXT NOT NULL,
    run_at      REAL NOT NULL,
    state       TEXT NOT NULL DEFAULT 'queued',
    not_before  REAL NOT NULL DEFAULT 0,
    attempts    INTEGER NOT NULL DEFAULT 0,
    claim       TEXT NOT NULL DEFAULT '',
    owner       TEXT NOT NULL DEFAULT '',
    lease_until REAL NOT NULL DEFAULT 0,
    ended       REAL NOT NULL DEFAULT 0,
    error       TEXT NOT NULL DEFAULT ''
);

CREATE INDEX job_lane ON job (lane, state, number);
CREATE INDEX job_due ON job (state, number);
