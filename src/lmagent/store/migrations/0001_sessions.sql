-- One row a session: what its events say, and how far they have been read.
CREATE TABLE session (
    id                TEXT PRIMARY KEY,
    title             TEXT NOT NULL DEFAULT '',
    renamed           INTEGER NOT NULL DEFAULT 0,
    created           REAL NOT NULL DEFAULT 0,
    updated           REAL NOT NULL DEFAULT 0,
    model             TEXT NOT NULL DEFAULT '',
    outcome           TEXT NOT NULL DEFAULT '',
    turn_open         INTEGER NOT NULL DEFAULT 0,
    waiting           INTEGER NOT NULL DEFAULT 0,
    turns             INTEGER NOT NULL DEFAULT 0,
    steps             INTEGER NOT NULL DEFAULT 0,
    prompt_tokens     INTEGER NOT NULL DEFAULT 0,
    completion_tokens INTEGER NOT NULL DEFAULT 0,
    cached_tokens     INTEGER NOT NULL DEFAULT 0,
    parent            TEXT NOT NULL DEFAULT '',
    seq               INTEGER NOT NULL DEFAULT 0,
    read_to           INTEGER NOT NULL DEFAULT 0,
    size              INTEGER NOT NULL DEFAULT 0,
    mtime_ns          INTEGER NOT NULL DEFAULT 0,
    inode             INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE INDEX session_updated ON session (updated);

-- What people and models said, for full-text search.
CREATE VIRTUAL TABLE passage USING fts5 (
    text,
    session UNINDEXED,
    seq UNINDEXED,
    role UNINDEXED,
    tokenize = 'unicode61 remove_diacritics 2'
);
