-- Jobs that are known. One waits here until `run_at`; then it is in the queue of its workspace. A job that is done stays
-- for a day, so that a late repeat of it is known. One that is due and has a `failure` rests: it failed too often.
CREATE TABLE job (
    workspace text NOT NULL,
    id text NOT NULL,
    lane text NOT NULL,
    priority integer NOT NULL DEFAULT 0,
    run_at timestamptz NOT NULL,
    state text NOT NULL CHECK (state IN ('due', 'queued', 'done')),
    queued bigint,
    run bigint NOT NULL DEFAULT 0,
    process bigint,
    attempts integer NOT NULL DEFAULT 0,
    failure text NOT NULL DEFAULT '',
    created timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (workspace, id)
);
CREATE UNIQUE INDEX job_queued ON job (queued);
CREATE INDEX job_due ON job (workspace, run_at) WHERE state = 'due';
CREATE INDEX job_running ON job (workspace, process) WHERE process IS NOT NULL;
CREATE INDEX job_done ON job (changed) WHERE state = 'done';
