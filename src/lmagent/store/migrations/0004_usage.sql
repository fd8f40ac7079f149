-- What was spent: by session, day and model. Days are those of this machine's time zone when the log was read.
CREATE TABLE usage (
    session           TEXT NOT NULL,
    day               TEXT NOT NULL,
    model             TEXT NOT NULL,
    steps             INTEGER NOT NULL,
    prompt_tokens     INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens     INTEGER NOT NULL,
    PRIMARY KEY (session, day, model)
) WITHOUT ROWID;

CREATE INDEX usage_day ON usage (day);

-- What happened: the newest of each session, a line each.
CREATE TABLE activity (
    session     TEXT NOT NULL,
    seq         INTEGER NOT NULL,
    ts          REAL NOT NULL,
    type        TEXT NOT NULL,
    tool        TEXT NOT NULL,
    summary     TEXT NOT NULL,
    status      TEXT NOT NULL,
    duration_ms INTEGER NOT NULL,
    PRIMARY KEY (session, seq)
) WITHOUT ROWID;

CREATE INDEX activity_ts ON activity (ts);

-- The rows there are know nothing of these: their logs are read again.
DELETE FROM session;
DELETE FROM passage;
