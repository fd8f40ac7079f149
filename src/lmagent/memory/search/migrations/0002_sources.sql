-- How far each source has been read: a file or a session, whose items have its name as their session.
CREATE TABLE source (
    name TEXT PRIMARY KEY,
    mark TEXT NOT NULL
) WITHOUT ROWID;
