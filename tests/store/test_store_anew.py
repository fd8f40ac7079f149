"""A conversation that is begun anew: killed, or refused by the disk, at any step, nothing that was said is lost."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from store_kit import SESSION, a_turn, created, run, store_in, write_all

from lmagent.core import events as ev
from lmagent.core.errors import StoreError
from lmagent.store.jsonl import JsonlStore

STEPS = ("open", "write", "rename", "replace", "unlink", "mkdir", "link", "fsync", "fdatasync", "ftruncate", "rmdir")
"""Calls that change a disk, or that it can refuse."""

ASIDE = "aside"
MANY = 200


class Stepping:
    """Does something at the n-th of the calls; `count` is how many there were."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, act: Callable[[], None]) -> None:
        self.count = 0
        self._at, self._act = at, act
        for name in STEPS:
            monkeypatch.setattr(os, name, self._stepped(getattr(os, name)))

    def _stepped(self, call):
        def stepped(*arguments, **more):
            self.count += 1
            if self.count == self._at:
                self._act()
            return call(*arguments, **more)

        return stepped


def said_in(folder: Path) -> tuple[JsonlStore, list[ev.DurableEvent]]:
    """A session with a big result, and its events."""
    store = store_in(folder)
    log = store.create(SESSION)
    write_all(log, [created(), *a_turn()])
    big = run(log.put_blob, b"x" * 5000)
    write_all(log, [ev.ToolFinished(call_id="c", tool="t", status="ok", content=f"artifact:{big}")])
    log.close()
    return store, list(store.read(SESSION))


def begin_anew(store: JsonlStore) -> None:
    store.begin_anew(SESSION, ASIDE, msgspec.structs.replace(created(), replaces=ASIDE))


def is_there(store: JsonlStore, session: str, old: list[ev.DurableEvent]) -> bool:
    """Whether the conversation is there, with what it refers to."""
    if session not in store.sessions() or list(store.read(session))[: len(old)] != old:
        return False
    big = old[-1].content.removeprefix("artifact:")
    return store.get_blob(session, big) == b"x" * 5000


def is_new(store: JsonlStore, old: list[ev.DurableEvent]) -> bool:
    first = next(iter(store.read(SESSION)))
    return isinstance(first, ev.SessionCreated) and (first.replaces, first.seq) == (ASIDE, old[-1].seq + 1)


def killed_at(store: JsonlStore, monkeypatch: pytest.MonkeyPatch, at: int) -> bool:
    """Whether a process that begins it anew was killed at that step; False where it has none so late."""
    child = os.fork()
    if not child:
        try:
            Stepping(monkeypatch, at, lambda: os.kill(os.getpid(), signal.SIGKILL))
            begin_anew(store)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_session_that_is_begun_anew_is_the_old_one_or_the_new_one_wherever_it_is_killed(tmp_path, monkeypatch):
    seen = set()
    for at in range(1, MANY):
        store, old = said_in(tmp_path / str(at))
        was_killed = killed_at(store, monkeypatch, at)
        assert is_there(store, ASIDE if is_new(store, old) else SESSION, old), at
        if ASIDE in store.sessions():
            assert is_there(store, ASIDE, old), at
        seen.add(is_new(store, old))
        store.open(SESSION).close()
        if not was_killed:
            assert is_new(store, old)
            break
    assert at < MANY - 1
    assert seen == {True, False}


@pytest.mark.parametrize("refusal", [errno.ENOSPC, errno.EIO])
def test_a_session_that_is_begun_anew_loses_nothing_whatever_the_disk_refuses(tmp_path, refusal):
    def refuse() -> None:
        raise OSError(refusal, os.strerror(refusal))

    outcomes = set()
    for at in range(1, MANY):
        store, old = said_in(tmp_path / str(at))
        failed = False
        with pytest.MonkeyPatch.context() as patched:
            steps = Stepping(patched, at, refuse)
            try:
                begin_anew(store)
            except StoreError:
                failed = True
        new = is_new(store, old)
        assert is_there(store, ASIDE if new else SESSION, old), at
        assert failed or new
        assert not list(store.root.rglob("*.new"))
        outcomes.add((failed, new))
        store.open(SESSION).close()
        if steps.count < at:
            break
    assert at < MANY - 1
    assert outcomes >= {(True, False), (False, True)}
