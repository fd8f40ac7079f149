-- The index of a workspace's memory: no truth, it is filled from the workspace's files and the sessions' logs.
-- Words are stemmed as English, and none is left out: a query may consist of the words that other indexes ignore.
CREATE TEXT SEARCH DICTIONARY word_stem (TEMPLATE = pg_catalog.snowball, LANGUAGE = english);
CREATE TEXT SEARCH CONFIGURATION words (COPY = pg_catalog.simple);
ALTER TEXT SEARCH CONFIGURATION words ALTER MAPPING FOR asciiword, word, numword WITH word_stem;

-- `length` counts the words; `asks` says whether the text is a question.
CREATE TABLE memory_item (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace text NOT NULL,
    id text NOT NULL,
    text text NOT NULL,
    ts double precision NOT NULL,
    session text NOT NULL,
    speaker text NOT NULL,
    asks boolean NOT NULL,
    words tsvector NOT NULL,
    length integer NOT NULL,
    UNIQUE (workspace, id)
);
CREATE INDEX memory_item_order ON memory_item (workspace, session, ts, number);
CREATE INDEX memory_item_words ON memory_item USING gin (words);

-- How far each source has been read: a file or a session, whose items have its name as their session.
CREATE TABLE memory_source (
    workspace text NOT NULL,
    name text NOT NULL,
    mark text NOT NULL,
    PRIMARY KEY (workspace, name)
);
