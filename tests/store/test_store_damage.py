"""Whatever happens to the bytes of a log, it opens, and what is whole survives."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from store_kit import SESSION, a_session, a_turn, created, path_of, store_in, write_all
from testkit.amount import examples

from lmagent.core import events as ev
from lmagent.core.events import DurableEvent, encode


def _sample() -> tuple[bytes, list[DurableEvent]]:
    with tempfile.TemporaryDirectory() as folder:
        store = store_in(Path(folder))
        events = a_session(store, SESSION, *a_turn(), *a_turn("and b.txt?", "Nothing: 日本語 “quoted” \n\t."))
        return path_of(store).read_bytes(), events


LOG, EVENTS = _sample()


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, len(LOG)))
def test_cut_anywhere_every_whole_line_before_the_cut_survives(length: int) -> None:
    kept = LOG[:length]
    complete = kept.count(b"\n")
    with tempfile.TemporaryDirectory() as folder:
        store = store_in(Path(folder))
        a_session(store)
        path_of(store).write_bytes(kept)
        assert list(store.read(SESSION)) == EVENTS[:complete]
        log = store.open(SESSION)
        found = list(log.events())
        # A cut just before a line end leaves an event whole, and it is kept.
        assert found[:complete] == EVENTS[:complete]
        assert len(found) - complete in (0, 1)
        (stored,) = write_all(log, [ev.SessionRenamed(title="after")])
        log.close()
        assert path_of(store).read_bytes() == b"".join(encode(event) + b"\n" for event in [*found, stored])


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(LOG) - 1), st.binary(max_size=4)), min_size=1, max_size=6))
def test_damaged_anywhere_it_opens_and_goes_on(hits: list[tuple[int, bytes]]) -> None:
    content = bytearray(LOG)
    for position, rubbish in hits:
        content[position : position + len(rubbish) + 1] = rubbish
    untouched = [line for line in LOG.splitlines() if line in bytes(content).splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        store = store_in(Path(folder))
        a_session(store)
        path_of(store).write_bytes(content)
        seen = list(store.read(SESSION))
        log = store.open(SESSION)
        found = list(log.events())
        assert [event.seq for event in found] == sorted({event.seq for event in found})
        # A line is only lost by being hit, or by standing behind a `seq` that was hit.
        assert len(found) >= len(untouched) - 3 * len(hits)
        (stored,) = write_all(log, [ev.SessionRenamed(title="after")])
        log.close()
        assert stored.seq > max((event.seq for event in found), default=0)
        again = store.open(SESSION)
        assert list(again.events()) == [*found, stored]
        again.close()
        assert seen == found or seen == found[: len(seen)]


def test_deeply_nested_rubbish_is_only_rubbish() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = store_in(Path(folder))
        log = store.create(SESSION)
        write_all(log, [created()])
        log.close()
        path = path_of(store)
        path.write_bytes(path.read_bytes() + b"[" * 200_000 + b"\n" + b'{"a":' * 50_000 + b"\n")
        log = store.open(SESSION)
        log.close()
        assert len(list(log.events())) == 1
        assert len(log.damage) == 2
