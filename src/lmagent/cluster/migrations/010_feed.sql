-- The events of a workspace's sessions in one order, the same for all gateways. They are numbered when a gateway has
-- watchers of all sessions. `mark` distinguishes this numbering from another one.
CREATE TABLE feed (
    workspace text PRIMARY KEY,
    mark text NOT NULL DEFAULT replace(gen_random_uuid()::text, '-', ''),
    last bigint NOT NULL DEFAULT 0
);

-- How far a session's events are numbered.
CREATE TABLE feed_end (
    session bigint PRIMARY KEY REFERENCES session (number) ON DELETE CASCADE,
    seq bigint NOT NULL
);

-- Numbers of the last `count` events of a session up to `seq`, which has the number `number`.
CREATE TABLE feed_part (
    workspace text NOT NULL,
    number bigint NOT NULL,
    session bigint NOT NULL REFERENCES session (number) ON DELETE CASCADE,
    seq bigint NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (workspace, number)
);
CREATE INDEX feed_part_session ON feed_part (session);

-- Number the events that have no number yet; return the mark and the last number. The lock of the row in `feed` is held
-- until the numbers are committed, so a reader that sees a number sees all smaller ones. A session that another
-- process opens or deletes at this moment is left to the next call.
CREATE FUNCTION feed_extend(_workspace text) RETURNS TABLE (mark text, last bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    known feed;
BEGIN
    IF NOT EXISTS (SELECT FROM feed WHERE workspace = _workspace) THEN
        INSERT INTO feed (workspace) VALUES (_workspace) ON CONFLICT DO NOTHING;
    END IF;
    IF EXISTS (
        SELECT FROM session LEFT JOIN feed_end ON feed_end.session = number
        WHERE workspace = _workspace AND session.seq > coalesce(feed_end.seq, 0)) THEN
        SELECT * INTO known FROM feed WHERE workspace = _workspace FOR UPDATE;
        WITH gained AS (
            SELECT number AS session, session.seq, session.seq - coalesce(feed_end.seq, 0) AS count
            FROM session LEFT JOIN feed_end ON feed_end.session = number
            WHERE workspace = _workspace AND session.seq > coalesce(feed_end.seq, 0)
            FOR KEY SHARE OF session SKIP LOCKED),
        placed AS (SELECT *, known.last + sum(count) OVER (ORDER BY session) AS number FROM gained),
        ended AS (
            INSERT INTO feed_end SELECT session, seq FROM placed
            ON CONFLICT (session) DO UPDATE SET seq = excluded.seq),
        parted AS (
            INSERT INTO feed_part SELECT _workspace, number, session, seq, count FROM placed RETURNING number)
        UPDATE feed SET last = greatest(last, (SELECT max(number) FROM parted)) WHERE workspace = _workspace;
    END IF;
    RETURN QUERY SELECT mark, last FROM feed WHERE workspace = _workspace;
END $$;
