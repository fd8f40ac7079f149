-- Requests of clients that gateways forward to workers. They need not survive a crash of the database: the client has
-- no answer then, and sends its request again. `number` is their order. `worker` has taken the request; it waits without.
-- `only_open`: it is for the process that has the session open, and for no other.
CREATE UNLOGGED TABLE request (
    id text PRIMARY KEY,
    number bigint GENERATED ALWAYS AS IDENTITY,
    workspace text NOT NULL,
    session text NOT NULL,
    only_open boolean NOT NULL,
    head bytea NOT NULL,
    gateway bigint NOT NULL,
    worker bigint,
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'left', 'ended'))
);
CREATE INDEX request_open ON request (workspace, number) WHERE state = 'open';

-- What one end of a request sent: ASGI messages as MessagePack. `down`: to the worker.
CREATE UNLOGGED TABLE piece (
    request text NOT NULL REFERENCES request ON DELETE CASCADE,
    down boolean NOT NULL,
    number integer NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (request, down, number)
);

CREATE FUNCTION living(_process bigint) RETURNS boolean LANGUAGE sql STABLE AS
$$ SELECT EXISTS (SELECT FROM process WHERE id = _process AND is_alive(beat)) $$;

-- The living worker that has a session open. One that a terminal has open is for any worker, which answers that it is in
-- use.
CREATE FUNCTION session_worker(_workspace text, _session text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT process.id FROM session JOIN process ON process.id = owner
        WHERE session.workspace = _workspace AND session.id = _session AND kind = 'worker' AND is_alive(beat)
$$;

-- Add a request, and wake the process that has its session open; all workers of the workspace, if none has.
CREATE FUNCTION request_add(
    _id text, _workspace text, _session text, _only_open boolean, _head bytea, _gateway bigint, _first bytea
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO request (id, workspace, session, only_open, head, gateway)
        VALUES (_id, _workspace, _session, _only_open, _head, _gateway) ON CONFLICT DO NOTHING;
    INSERT INTO piece VALUES (_id, true, 1, _first) ON CONFLICT DO NOTHING;
    PERFORM pg_notify(coalesce('lmagent_process_' || session_worker(_workspace, _session), 'lmagent_request'), _id);
END $$;

-- Take the next request, with its first piece, whose session this process has open; if it takes `_others`, the next one
-- that no other worker is to answer. Workers do the latter one after the other. `_taken`: the requests that it works on.
-- One that it has and does not work on was taken by a call whose answer was lost.
CREATE FUNCTION request_take(_workspace text, _process bigint, _others boolean, _taken text[])
RETURNS TABLE (id text, head bytea, first bytea) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    known request;
    owner bigint;
BEGIN
    IF _others THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('request ' || _workspace, 0));
    END IF;
    FOR known IN
        SELECT * FROM request
            WHERE workspace = _workspace AND state = 'open'
                AND (worker IS NULL OR (worker = _process AND id <> ALL (_taken)))
            ORDER BY number
    LOOP
        owner := session_worker(_workspace, known.session);
        CONTINUE WHEN owner IS DISTINCT FROM _process AND (owner IS NOT NULL OR known.only_open OR NOT _others);
        CONTINUE WHEN owner IS NULL AND known.session <> '' AND EXISTS (
            SELECT FROM request AS other WHERE other.workspace = _workspace AND other.session = known.session
                AND other.state = 'open' AND other.worker <> _process AND living(other.worker));
        RETURN QUERY UPDATE request SET worker = _process WHERE id = known.id AND coalesce(worker, _process) = _process
            RETURNING request.id, request.head,
                (SELECT body FROM piece WHERE piece.request = request.id AND down AND piece.number = 1);
        IF FOUND THEN
            RETURN;
        END IF;
    END LOOP;
END $$;

-- Let another worker answer a request that this process has.
CREATE FUNCTION request_give_back(_id text, _process bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    known request;
BEGIN
    UPDATE request SET worker = NULL WHERE id = _id AND worker = _process AND state = 'open' RETURNING * INTO known;
    IF FOUND THEN
        PERFORM pg_notify(
            coalesce('lmagent_process_' || session_worker(known.workspace, known.session), 'lmagent_request'), _id);
    END IF;
END $$;

-- Add pieces of one end, the first of them with this number; wake the other end. Return how many it has not read yet;
-- nothing if the request or the client is gone. The first piece stays: another worker may have to read it.
CREATE FUNCTION request_send(_id text, _down boolean, _number integer, _bodies bytea[], _ends boolean)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    known request;
BEGIN
    SELECT * INTO known FROM request WHERE id = _id FOR UPDATE;
    IF known.id IS NULL THEN
        RETURN NULL;
    END IF;
    IF NOT _down AND (known.state = 'left' OR NOT living(known.gateway)) THEN
        IF _ends THEN
            DELETE FROM request WHERE id = _id;
        END IF;
        RETURN NULL;
    END IF;
    INSERT INTO piece SELECT _id, _down, _number + place - 1, body
        FROM unnest(_bodies) WITH ORDINALITY AS given (body, place) ON CONFLICT DO NOTHING;
    IF _ends AND known.state = 'open' THEN
        UPDATE request SET state = CASE WHEN _down THEN 'left' ELSE 'ended' END WHERE id = _id;
    END IF;
    IF _ends OR cardinality(_bodies) > 0 THEN
        PERFORM pg_notify(coalesce(
            'lmagent_process_' || CASE WHEN _down THEN known.worker ELSE known.gateway END, 'lmagent_request'), _id);
    END IF;
    RETURN (SELECT count(*) FROM piece WHERE request = _id AND down = _down AND NOT (down AND number = 1));
END $$;
