CREATE TABLE migration (
    number integer PRIMARY KEY,
    taken timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Distinguishes this database from an earlier one at the same address.
CREATE TABLE cluster (mark uuid NOT NULL DEFAULT gen_random_uuid());
INSERT INTO cluster DEFAULT VALUES;

-- The processes that use the database: workers, gateways, terminals. A process that has not beaten for the lease is dead.
CREATE TABLE process (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL,
    name text NOT NULL,
    version text NOT NULL,
    workspaces text[] NOT NULL DEFAULT '{}',
    draining boolean NOT NULL DEFAULT false,
    started timestamptz NOT NULL DEFAULT clock_timestamp(),
    beat timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Whether a process with this heartbeat counts as alive. No process can beat while the database is down, so the lease
-- begins again with the start of the database.
CREATE FUNCTION is_alive(beat timestamptz) RETURNS boolean LANGUAGE sql VOLATILE STRICT AS
$$ SELECT greatest(beat, pg_postmaster_start_time()) > clock_timestamp() - interval '6 seconds' $$;

-- `number` distinguishes a session from a deleted one with the same id. No index has `changed` or `seq`, which each
-- event changes: so PostgreSQL changes the row within its page. Until `watched`, each event sends a notification.
CREATE TABLE session (
    workspace text NOT NULL,
    id text NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    epoch bigint NOT NULL DEFAULT 1,
    owner bigint REFERENCES process ON DELETE SET NULL,
    seq bigint NOT NULL DEFAULT 0,
    created timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed timestamptz NOT NULL DEFAULT clock_timestamp(),
    watched timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (workspace, id)
) WITH (fillfactor = 50);
CREATE INDEX session_owner ON session (owner) WHERE owner IS NOT NULL;

-- `line` is the event as in a file of the embedded store, without the line end.
CREATE TABLE event (
    session bigint NOT NULL REFERENCES session (number) ON DELETE CASCADE,
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    line bytea NOT NULL,
    PRIMARY KEY (session, seq)
);

-- A blob's content is here, or in the object storage under the key `object`.
CREATE TABLE blob (
    session bigint NOT NULL REFERENCES session (number) ON DELETE CASCADE,
    sha256 text NOT NULL,
    size bigint NOT NULL,
    content bytea,
    object text,
    PRIMARY KEY (session, sha256),
    CHECK ((content IS NULL) <> (object IS NULL))
);
ALTER TABLE blob ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE INDEX blob_object ON blob (object) WHERE object IS NOT NULL;
