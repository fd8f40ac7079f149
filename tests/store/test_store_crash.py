"""Real processes, really killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from store_kit import SESSION, a_session, finish, path_of, start, store_in, write_all

from lmagent.core import events as ev
from lmagent.core.errors import SessionBusy
from lmagent.store.lock import is_held

pytestmark = pytest.mark.long

HOT_WRITER = """
async def main():
    log = store.create(session)
    say("0")
    n = 0
    while True:
        n += 1
        event = ev.ToolFinished(call_id=str(n), tool="t", status="ok", content="x" * (n * 37 % 3000))
        stored = await log.append(event, sync=n % 50 == 0)
        say(stored.seq)
anyio.run(main)
"""
HOLDER = """
log = store.open(session)
say("open")
sys.stdin.read()
"""


def _kill(process: subprocess.Popen[bytes]) -> bytes:
    process.send_signal(signal.SIGKILL)
    out, _ = process.communicate(timeout=30)
    return out


@pytest.mark.crash
def test_a_killed_writer_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    delays = random.Random(7)
    for attempt in range(20):
        session = f"run{attempt}"
        process = start(HOT_WRITER, store, session)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delays.uniform(0.0, 0.03))
        said = _kill(process)
        acknowledged = [int(line) for line in said.splitlines() if line] if said.endswith(b"\n") else []
        if not path_of(store, session).exists():
            assert not acknowledged
            continue
        log = store.open(session)  # the lock is free at once
        found = [event.seq for event in log.events()]
        assert found == list(range(1, len(found) + 1))
        assert len(found) >= max(acknowledged, default=0)
        (stored,) = write_all(log, [ev.SessionRenamed(title="on")])
        log.close()
        assert stored.seq == len(found) + 1


@pytest.mark.crash
def test_a_second_process_is_refused_and_told_who_has_the_session(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    holder = start(HOLDER, store)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"open\n"
    assert is_held(store.root / SESSION / "lock")
    with pytest.raises(SessionBusy, match=f"process {holder.pid}") as refused:
        store.open(SESSION)
    assert f"lmagent sessions fork {SESSION}" in refused.value.terminal
    with pytest.raises(SessionBusy):
        store.delete(SESSION)
    assert len(list(store.read(SESSION))) == 13  # reading needs no lock
    _kill(holder)
    assert not is_held(store.root / SESSION / "lock")
    store.open(SESSION).close()


@pytest.mark.crash
def test_a_child_of_a_killed_owner_does_not_keep_the_lock(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    script = """
import subprocess
log = store.open(session)
null = subprocess.DEVNULL
child = subprocess.Popen(["sleep", "30"], stdin=null, stdout=null, stderr=null, close_fds=False)
say(child.pid)
sys.stdin.read()
"""
    holder = start(script, store)
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    try:
        _kill(holder)
        store.open(SESSION).close()
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.crash
def test_a_clean_exit_releases_the_session(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    holder = start(HOLDER, store)
    assert holder.stdout is not None
    holder.stdout.readline()
    out, err = finish(holder)
    assert (out, err) == ("", "")
    store.open(SESSION).close()
