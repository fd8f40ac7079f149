PRAGMA application_id = 1819108718;

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

-- How vectors were made. Those of one space can be compared; the newest one of a model gets the new vectors.
CREATE TABLE space (
    number    INTEGER PRIMARY KEY,
    model     TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    centre    BLOB NOT NULL DEFAULT x''  -- mean of the first vectors, 32-bit floats; empty while there are few
);

-- Vectors of 16-bit floats, of length 1.
CREATE TABLE vector (
    number INTEGER PRIMARY KEY,
    space  INTEGER NOT NULL,
    signs  BLOB NOT NULL,  -- a bit for each number: whether it is above the centre's; empty without a centre
    data   BLOB NOT NULL
);

-- Holds the signs, so that reading those of all vectors does not read the vectors.
CREATE INDEX vector_signs ON vector (space, number, signs);

-- Grows with each change of the vectors, so that a process sees the changes of another one.
CREATE TABLE counter (stamp INTEGER NOT NULL);
INSERT INTO counter VALUES (0);

-- How far each source has been read: a file or a session, whose items have its name as their session.
CREATE TABLE source (
    name TEXT PRIMARY KEY,
    mark TEXT NOT NULL
) WITHOUT ROWID;
