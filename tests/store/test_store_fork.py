"""Forking: the same bytes under a new name, whatever the source is doing."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from store_kit import SESSION, a_session, a_turn, created, path_of, run, start, store_in, write_all

from lmagent.core import events as ev
from lmagent.core.errors import SessionNotFound, StoreError
from lmagent.core.messages import user

FORK = "20260102_999999_ffffff"


def test_a_fork_is_the_same_bytes_up_to_its_event_and_says_where_it_comes_from(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    run(store.fork, SESSION, FORK, 8)
    lines = path_of(store).read_bytes().splitlines(keepends=True)
    copied = path_of(store, FORK).read_bytes().splitlines(keepends=True)
    assert copied[:8] == lines[:8]
    *_, last = store.read(FORK)
    assert isinstance(last, ev.SessionForked)
    assert (last.session, last.parent, last.at_seq, last.seq) == (FORK, SESSION, 8, 9)
    assert len(copied) == 9


def test_a_fork_without_a_place_copies_everything_and_can_go_on(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    forked = run(store.fork, SESSION, FORK)
    assert forked.at_seq == 13
    log = store.open(FORK)
    assert list(log.damage) == []
    write_all(log, a_turn("and now?", "More."))
    log.close()
    assert len(list(store.read(FORK))) == 26
    assert len(list(store.read(SESSION))) == 13


def test_a_fork_takes_the_blobs_it_refers_to_and_no_others(tmp_path: Path) -> None:
    store = store_in(tmp_path)

    async def source() -> tuple[str, str]:
        log = store.create(SESSION)
        await log.append(created())
        early, late = await log.put_blob(b"early"), await log.put_blob(b"late")
        await log.append(ev.ToolFinished(call_id="a", tool="t", status="ok", content="…", artifact=early))
        await log.append(ev.ToolFinished(call_id="b", tool="t", status="ok", content="…", artifact=late))
        await log.append(ev.ToolFinished(call_id="c", tool="t", status="ok", content="…", artifact="0" * 64))
        log.close()
        return early, late

    early, late = run(source)
    run(store.fork, SESSION, FORK, 2)
    assert store.get_blob(FORK, early[:8]) == b"early"
    with pytest.raises(StoreError):
        store.get_blob(FORK, late)
    run(store.fork, SESSION, "whole")
    store.delete(SESSION)
    assert store.get_blob("whole", late) == b"late"


@pytest.mark.crash
def test_a_running_session_can_be_forked(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    script = """
async def main():
    log = store.create(session)
    for n in range(100):
        await log.append(ev.SessionRenamed(title=str(n)))
    say("written")
    sys.stdin.read()
anyio.run(main)
"""
    process = start(script, store)
    assert process.stdout is not None
    process.stdout.readline()
    with path_of(store).open("ab") as stream:
        stream.write(b'{"type":"half')  # it is in the middle of a write
    run(store.fork, SESSION, FORK)
    process.communicate(timeout=30)
    assert len(list(store.read(FORK))) == 101


def test_damaged_lines_are_not_copied_and_newer_ones_are(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    path = path_of(store)
    lines = path.read_bytes().splitlines(keepends=True)
    newer = b'{"type":"todo.changed","v":1,"id":"x","seq":14,"ts":1.0,"turn":0}\n'
    path.write_bytes(b"".join([*lines[:5], b"rubbish\n", *lines[5:], newer]))
    forked = run(store.fork, SESSION, FORK)
    assert forked.at_seq == 14
    copied = path_of(store, FORK).read_bytes()
    assert b"rubbish" not in copied
    assert newer in copied


def test_a_fork_that_cannot_be_made_leaves_nothing_behind(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    with pytest.raises(SessionNotFound):
        run(store.fork, "nothing", FORK)
    with pytest.raises(StoreError, match="nothing to copy"):
        run(store.fork, SESSION, FORK, 0)
    assert os.listdir(store.root) == [SESSION]
    run(store.fork, SESSION, FORK)
    with pytest.raises(StoreError, match="already"):
        run(store.fork, SESSION, FORK)
    assert len(list(store.read(FORK))) == 14


def test_a_fork_of_a_fork_names_its_own_parent(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)

    async def twice() -> ev.SessionForked:
        await store.fork(SESSION, FORK)
        await anyio.lowlevel.checkpoint()
        return await store.fork(FORK, "third")

    assert run(twice).parent == FORK


def test_a_fork_takes_the_blobs_of_many_changes_and_of_an_input_that_was_too_long(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    log = store.create(SESSION)

    async def main() -> tuple[str, str]:
        await log.append(created())
        changes, whole = await log.put_blob(b"[]"), await log.put_blob(b"a long story")
        await log.append(ev.FilesChanged(call_id="c", tool="shell", count=900, blob=changes))
        await log.append(ev.MessageAdded(message=user(f"a lo… (artifact:{whole[:12]})"), origin="input"))
        log.close()
        await store.fork(SESSION, FORK)
        return changes, whole

    changes, whole = run(main)
    assert store.get_blob(FORK, changes) == b"[]"
    assert store.get_blob(FORK, whole[:12]) == b"a long story"
