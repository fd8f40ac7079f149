-- What gives access to the gateways. Whoever can read these tables can log in.
-- `token`, `cookie.key` and `pin` are made by the first gateway; `tries` is what was used of the tries of the PIN, as JSON.
CREATE TABLE access (
    name text PRIMARY KEY,
    value text NOT NULL
);

-- Cookies of browsers that logged out, until they would have expired.
CREATE TABLE access_revoked (
    number text PRIMARY KEY,
    until timestamptz NOT NULL
);

-- Links that log a browser in once, by their SHA-256.
CREATE TABLE access_link (
    digest bytea PRIMARY KEY,
    until timestamptz NOT NULL
);
