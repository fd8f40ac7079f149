#!/usr/bin/env bash
# A docker engine for the tests, where none answers: scripts/dockerd.sh install|start|stop|status [PID OF A USER]
#
# Root only; `install` is for Debian. The engine has a socket, a data folder and a pid file of its own; `start` prints its DOCKER_HOST. Several users
# (test workers) share it: the last one to stop it ends it, and it is ended by its own pid, never by name.
# Never --bridge=none: that deletes the docker0 of an engine that already runs.
set -euo pipefail

base="${LMAGENT_DOCKERD:-/var/tmp/lmagent-dockerd}"
socket="unix://$base/docker.sock"
users="$base/users"
user="${2:-$PPID}"

running() { [ -f "$base/pid" ] && kill -0 "$(cat "$base/pid")" 2>/dev/null; }
answers() { docker -H "$socket" version >/dev/null 2>&1; }

start() {
    running || launch
    mkdir -p "$users"
    touch "$users/$user"
    echo "$socket"
}

launch() {
    local program
    program="$(command -v dockerd || true)"
    [ -n "$program" ] || { echo "dockerd is not installed: scripts/dockerd.sh install" >&2; exit 3; }
    [ "$(id -u)" = 0 ] || { echo "only root can start dockerd" >&2; exit 3; }
    # Two engines with the default bridge would take it from each other.
    if pgrep -x dockerd >/dev/null; then echo "another dockerd runs, and does not answer here" >&2; exit 3; fi
    rm -rf "$base/pid" "$base/docker.sock" "$users"
    mkdir -p "$base"
    # 9: the lock must not live on in the engine.
    setsid "$program" -H "$socket" --pidfile "$base/pid" --data-root "$base/data" --exec-root "$base/exec" \
        >"$base/log" 2>&1 </dev/null 9>&- &
    for _ in $(seq 150); do
        answers && return
        sleep 0.2
    done
    echo "dockerd did not come up; the end of $base/log:" >&2
    tail -5 "$base/log" >&2
    exit 3
}

stop() {
    rm -f "$users/$user"
    for file in "$users"/*; do
        if [ -e "$file" ] && kill -0 "${file##*/}" 2>/dev/null; then return; fi
    done
    running || return 0
    local pid
    pid="$(cat "$base/pid")"
    kill -TERM "$pid"
    for _ in $(seq 150); do
        kill -0 "$pid" 2>/dev/null || return 0
        sleep 0.2
    done
    echo "dockerd ($pid) does not end" >&2
    exit 1
}

install() {
    command -v dockerd >/dev/null && return
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "docker.io is only installed by root, on Debian" >&2
        exit 3
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q --no-install-recommends docker.io >&2 ||
        { apt-get update -q >&2 && apt-get install -y -q --no-install-recommends docker.io >&2; }
}

mkdir -p "$base"
exec 9>"$base/lock"
flock 9
case "${1:-}" in
    install) install ;;
    start) start ;;
    stop) stop ;;
    status) if running; then echo "runs: $socket"; else echo "does not run"; fi ;;
    *) sed -n 2,3p "$0" >&2; exit 2 ;;
esac
