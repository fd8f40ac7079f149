PRAGMA application_id = 1819108717;  -- "lmem"

-- Numbers are never used twice: the vectors that a process has loaded are known by them.
CREATE TABLE item (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    id      TEXT NOT NULL UNIQUE,
    text    TEXT NOT NULL,
    ts      REAL NOT NULL,
    session TEXT NOT NULL,
    speaker TEXT NOT NULL,
    asks    INTEGER NOT NULL  -- whether the text is a question
);

CREATE INDEX item_order ON item (session, ts, number);
CREATE INDEX item_time ON item (ts);
CREATE INDEX item_speaker ON item (speaker);

-- The text itself is in `item` alone.
CREATE VIRTUAL TABLE word USING fts5 (
    text,
    content = 'item',
    content_rowid = 'number',
    tokenize = 'porter unicode61 remove_diacritics 2'
);

-- How vectors were made. Those of one model and dimension can be compared, best with the same pooling.
-- The newest row of a model and pooling is the one that new vectors belong to.
CREATE TABLE space (
    number    INTEGER PRIMARY KEY,
    model     TEXT NOT NULL,
    pooling   TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    centre    BLOB NOT NULL DEFAULT x''  -- mean of the first vectors, 32-bit floats; empty while there are few
);

-- The weights of tokens that a model learned from the items; the newest row of a model counts.
CREATE TABLE pooling (
    number  INTEGER PRIMARY KEY,
    model   TEXT NOT NULL,
    name    TEXT NOT NULL,
    items   INTEGER NOT NULL,  -- how many it was learned from
    weights BLOB NOT NULL
);

-- Vectors of 16-bit floats, of length 1. That of a text that changed is empty, and in the space 0.
CREATE TABLE vector (
    number INTEGER PRIMARY KEY,
    space  INTEGER NOT NULL,
    stamp  INTEGER NOT NULL,  -- grows with each write, so that a process sees the changes of another one
    signs  BLOB NOT NULL,     -- a bit for each number: whether it is above the centre's; empty without a centre
    data   BLOB NOT NULL
);

CREATE INDEX vector_stamp ON vector (stamp);
-- Holds the signs, so that reading those of all vectors does not read the vectors.
CREATE INDEX vector_signs ON vector (space, number, signs);
CREATE TABLE counter (stamp INTEGER NOT NULL);
INSERT INTO counter VALUES (0);
