#!/bin/sh
# The part of the official PostgreSQL image's entry point that compose.cluster.yaml uses; run as the user postgres.
set -eu
PATH="$(echo /usr/lib/postgresql/*/bin):$PATH"
data=/var/lib/postgresql/data
if [ ! -e "$data/PG_VERSION" ]; then
    printf '%s' "$POSTGRES_PASSWORD" >/tmp/password
    initdb -D "$data" -U "$POSTGRES_USER" --pwfile=/tmp/password -E UTF8 --locale=C.UTF-8 >&2
    rm /tmp/password
    # As there, connections from the container itself need no password.
    echo "host all all all scram-sha-256" >>"$data/pg_hba.conf"
    [ "$POSTGRES_DB" = postgres ] || echo "CREATE DATABASE \"$POSTGRES_DB\"" | postgres --single -D "$data" postgres >&2
fi
exec postgres -D "$data" -c listen_addresses='*' "$@"
