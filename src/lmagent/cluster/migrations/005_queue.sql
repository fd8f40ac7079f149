-- The queue: `job` says which jobs are known, Procrastinate which of them is next. Each function is one transaction, and
-- may be called again after a commit whose answer was lost. A delivery is known by its number `run`: a worker that was
-- taken for dead changes nothing of the delivery that followed.

-- For each job that may be next, Procrastinate looks for others of its lane. Without this index it reads all jobs for that.
CREATE INDEX job_lock ON procrastinate_jobs (lock) WHERE status IN ('todo', 'doing');

CREATE FUNCTION job_enqueue(_workspace text, _id text) RETURNS void LANGUAGE sql AS $$
    UPDATE job
        SET state = 'queued',
            queued = (procrastinate_defer_jobs_v1(ARRAY[ROW(
                workspace, 'lmagent', priority, workspace || '/' || lane, NULL, jsonb_build_object('job', id), NULL
            )::procrastinate_job_to_defer_v1]))[1],
            changed = clock_timestamp()
        WHERE workspace = _workspace AND id = _id AND state = 'due'
$$;

-- Return whether the job is new.
CREATE FUNCTION job_submit(_workspace text, _id text, _lane text, _priority integer, _delay double precision)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO job (workspace, id, lane, priority, run_at, state)
        VALUES (_workspace, _id, _lane, _priority, clock_timestamp() + make_interval(secs => _delay), 'due')
        ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF _delay = 0 THEN
        PERFORM job_enqueue(_workspace, _id);
    END IF;
    RETURN true;
END $$;

-- Begin the next job of the workspace; no row if none can begin.
CREATE FUNCTION job_take(_workspace text, _process bigint)
RETURNS TABLE (id text, lane text, run bigint, attempts integer) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    fetched bigint;
BEGIN
    LOOP
        BEGIN
            SELECT found.id INTO fetched FROM procrastinate_fetch_job_v2(ARRAY[_workspace]::varchar[], NULL) AS found;
        EXCEPTION WHEN unique_violation THEN
            RETURN;  -- another worker has just begun a job of that lane
        END;
        EXIT WHEN fetched IS NULL;
        RETURN QUERY UPDATE job
            SET process = _process, run = run + 1, changed = clock_timestamp()
            WHERE queued = fetched AND state = 'queued'
            RETURNING job.id, job.lane, job.run, job.attempts;
        EXIT WHEN FOUND;
        PERFORM procrastinate_finish_job_v1(fetched, 'failed', true);  -- the job was forgotten meanwhile
    END LOOP;
END $$;

CREATE FUNCTION job_end(_workspace text, _id text, _run bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ended bigint;
BEGIN
    UPDATE job SET state = 'done', process = NULL, failure = '', changed = clock_timestamp()
        WHERE workspace = _workspace AND id = _id AND run = _run AND process IS NOT NULL
        RETURNING queued INTO ended;
    IF FOUND THEN
        PERFORM procrastinate_finish_job_v1(ended, 'succeeded', true);
    END IF;
END $$;

-- Deliver the job again after so many seconds; its lane waits for it.
CREATE FUNCTION job_postpone(_workspace text, _id text, _run bigint, _seconds double precision, _attempts integer)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    postponed bigint;
BEGIN
    UPDATE job SET process = NULL, attempts = _attempts, changed = clock_timestamp()
        WHERE workspace = _workspace AND id = _id AND run = _run AND process IS NOT NULL
        RETURNING queued INTO postponed;
    IF FOUND THEN
        PERFORM procrastinate_retry_job_v2(
            postponed, clock_timestamp() + make_interval(secs => _seconds), NULL, NULL, NULL);
        IF _seconds = 0 THEN
            PERFORM pg_notify('procrastinate_queue_v1#' || _workspace, '{"type": "job_inserted"}');
        END IF;
    END IF;
END $$;

-- Deliver the job again after so many seconds; its lane does not wait for it.
CREATE FUNCTION job_rest(_workspace text, _id text, _run bigint, _seconds double precision, _failure text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    rests bigint;
BEGIN
    UPDATE job
        SET state = 'due', process = NULL, attempts = 0, failure = _failure, changed = clock_timestamp(),
            run_at = clock_timestamp() + make_interval(secs => _seconds)
        WHERE workspace = _workspace AND id = _id AND run = _run AND process IS NOT NULL
        RETURNING queued INTO rests;
    IF FOUND THEN
        PERFORM procrastinate_finish_job_v1(rests, 'failed', true);
    END IF;
END $$;

-- Forget a job that is not running; return whether one was. Procrastinate's row is locked first, as by job_take.
CREATE FUNCTION job_cancel(_workspace text, _id text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    known job;
BEGIN
    SELECT * INTO known FROM job WHERE workspace = _workspace AND id = _id;
    IF known.state = 'queued' AND procrastinate_cancel_job_v1(known.queued, false, true) IS NULL THEN
        RETURN false;
    END IF;
    DELETE FROM job WHERE workspace = _workspace AND id = _id AND state = known.state AND state <> 'done';
    RETURN FOUND;
END $$;

-- Enqueue the jobs that are due, and return those to the queue that nothing works on: their process is dead, or this one
-- began them and never had the answer. Return how many became ready, and the seconds until the next one is due.
CREATE FUNCTION job_tend(_workspace text, _process bigint, _running text[])
RETURNS TABLE (ready integer, seconds double precision) LANGUAGE plpgsql AS $$
DECLARE
    found job;
BEGIN
    ready := 0;
    FOR found IN
        SELECT * FROM job WHERE workspace = _workspace AND state = 'due' AND run_at <= clock_timestamp()
            ORDER BY run_at LIMIT 1000 FOR UPDATE SKIP LOCKED
    LOOP
        PERFORM job_enqueue(_workspace, found.id);
        ready := ready + 1;
    END LOOP;
    FOR found IN
        SELECT * FROM job WHERE workspace = _workspace AND process IS NOT NULL AND CASE
            WHEN process = _process THEN id <> ALL (_running)
            ELSE NOT EXISTS (SELECT FROM process AS owner WHERE owner.id = job.process AND is_alive(owner.beat)) END
            FOR UPDATE SKIP LOCKED
    LOOP
        UPDATE job SET process = NULL, changed = clock_timestamp() WHERE workspace = _workspace AND id = found.id;
        IF EXISTS (SELECT FROM procrastinate_jobs WHERE id = found.queued AND status = 'doing') THEN
            PERFORM procrastinate_retry_job_v2(found.queued, NULL, NULL, NULL, NULL);
        END IF;
        ready := ready + 1;
    END LOOP;
    SELECT extract(epoch FROM min(run_at) - clock_timestamp()) INTO seconds
        FROM job WHERE workspace = _workspace AND state = 'due';
    RETURN NEXT;
END $$;

-- Forget the jobs that have been done for so long.
CREATE FUNCTION job_forget(_workspace text, _age interval) RETURNS void LANGUAGE sql AS $$
    DELETE FROM job WHERE workspace = _workspace AND state = 'done' AND changed < clock_timestamp() - _age
$$;
