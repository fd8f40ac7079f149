"""The suite of the EventStore and SessionLog ports."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from hashlib import sha256
from typing import cast

import anyio
import pytest

from lmagent.core.errors import SessionBusy, SessionNotFound, StoreError
from lmagent.core.events import DurableEvent, InputReceived, SessionCreated, ToolFinished, TurnStarted
from lmagent.core.messages import user
from lmagent.core.ports import EventStore, SessionLog
from lmagent.testing.conformance.asynchronous import Asynchronous

SESSION = "20260101_000000_abc123"
OTHER = "20260102_000000_abc123"


def opening(session: str = SESSION) -> SessionCreated:
    """Return the first event of a session."""
    return SessionCreated(session=session, workspace="/somewhere", agent="main", system="Be brief.", tools=())


def said(text: str) -> InputReceived:
    """Return an event with text in it."""
    return InputReceived(message=user(text), delivery="submit")


def _numbers(store: EventStore, session: str = SESSION, after: int = 0) -> list[int]:
    return [event.seq for event in store.read(session, after=after)]


def _stream(store: EventStore, after: int = 0) -> AsyncGenerator[DurableEvent]:
    return cast("AsyncGenerator[DurableEvent]", store.follow(SESSION, after))


class EventStoreConformance(Asynchronous):
    """Subclass it and override `make`; for a store on a disk also `again`."""

    def make(self) -> EventStore:
        """Return an empty store."""
        raise AssertionError("override make")

    def again(self, store: EventStore) -> EventStore:
        """Return a second store on the same data, as another process would open it; the default is the store itself."""
        return store

    @asynccontextmanager
    async def _session(self) -> AsyncGenerator[tuple[EventStore, SessionLog]]:
        """Open a session that holds its first event."""
        store = self.make()
        log = store.create(SESSION)
        await log.append(opening())
        try:
            yield store, log
        finally:
            log.close()

    # --- writing ----------------------------------------------------------------------------------------------------

    async def test_an_appended_event_comes_back_with_its_number_id_and_time(self) -> None:
        async with self._session() as (_, log):
            events = [await log.append(said("one")), await log.append(said("two"), sync=True)]
        assert [event.seq for event in events] == [2, 3]
        assert all(event.ts > 1e9 for event in events)
        assert all(event.id for event in events)
        assert events[0].id != events[1].id

    async def test_what_was_appended_is_read_back_equal(self) -> None:
        text = 'line\r\nend "quoted" \\ \x00\x1f\u2028\ud7ff\U0001f600 é'
        data = {"path": "a/b", "lines": 3, "nested": {"x": [1, 2.5, None, True]}}
        finished = ToolFinished(call_id="c", tool="read", status="ok", content=text, data=data, turn=1)
        async with self._session() as (store, log):
            written = [await log.append(said(text)), await log.append(finished)]
            assert written == list(self.again(store).read(SESSION, after=1))

    async def test_reading_begins_after_the_given_number(self) -> None:
        async with self._session() as (store, log):
            for number in range(3):
                await log.append(said(str(number)))
            assert [_numbers(store, after=after) for after in (0, 2, 4, 99)] == [[1, 2, 3, 4], [3, 4], [], []]

    async def test_a_closed_log_takes_no_more_events(self) -> None:
        async with self._session() as (_, log):
            log.close()
            log.close()
            with pytest.raises(StoreError):
                await log.append(said("late"))

    async def test_many_events_keep_their_order(self) -> None:
        async with self._session() as (store, log):
            async with anyio.create_task_group() as tasks:
                for number in range(50):
                    tasks.start_soon(log.append, said(str(number)))
            assert _numbers(store) == list(range(1, 52))

    # --- opening ----------------------------------------------------------------------------------------------------

    async def test_a_session_begins_to_exist_with_its_first_event(self) -> None:
        store = self.make()
        log = store.create(SESSION)
        assert list(store.sessions()) == []
        with pytest.raises(SessionNotFound):
            list(store.read(SESSION))
        await log.append(opening())
        assert list(self.again(store).sessions()) == [SESSION]
        log.close()

    async def test_an_opened_log_holds_what_was_in_it_and_numbers_go_on(self) -> None:
        async with self._session() as (store, log):
            await log.append(said("one"))
            log.close()
            second = self.again(store).open(SESSION)
            before = [event.seq for event in second.events()]
            stored = await second.append(said("two"))
            assert (before, stored.seq, _numbers(store)) == ([1, 2], 3, [1, 2, 3])
            assert [event.seq for event in second.events()] == before
            assert second.session == SESSION
            assert list(second.damage) == []
            second.close()

    async def test_a_session_that_is_being_written_cannot_be_opened_or_deleted(self) -> None:
        async with self._session() as (store, log):
            for known in (store, self.again(store)):
                with pytest.raises(SessionBusy):
                    known.open(SESSION)
                with pytest.raises(SessionBusy):
                    known.delete(SESSION)
            log.close()
            self.again(store).open(SESSION).close()

    async def test_an_existing_session_cannot_be_created(self) -> None:
        async with self._session() as (store, log):
            log.close()
            with pytest.raises(StoreError):
                self.again(store).create(SESSION)
            assert _numbers(store) == [1]

    def test_an_unknown_session_is_reported_as_such(self) -> None:
        store = self.make()
        with pytest.raises(SessionNotFound):
            store.open(OTHER)
        with pytest.raises(SessionNotFound):
            store.delete(OTHER)
        with pytest.raises(SessionNotFound):
            _numbers(store, OTHER)

    async def test_sessions_are_listed_oldest_first_and_can_be_deleted(self) -> None:
        store = self.make()
        for session in (SESSION, OTHER):
            log = store.create(session)
            await log.append(opening(session))
            log.close()
        assert list(store.sessions()) == [SESSION, OTHER]
        store.delete(SESSION)
        assert list(self.again(store).sessions()) == [OTHER]
        with pytest.raises(SessionNotFound):
            list(store.read(SESSION))
        assert _numbers(store, OTHER) == [1]

    # --- following --------------------------------------------------------------------------------------------------

    async def test_a_follower_sees_history_and_then_news_without_a_gap(self) -> None:
        seen: list[int] = []
        started = anyio.Event()

        async def watch(store: EventStore) -> None:
            async with aclosing(_stream(self.again(store))) as events:
                async for event in events:
                    seen.append(event.seq)
                    started.set()
                    if event.seq == 6:
                        return

        async with self._session() as (store, log):
            await log.append(TurnStarted(turn=1))
            with anyio.fail_after(5):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(watch, store)
                    await started.wait()
                    for number in range(4):
                        await log.append(said(str(number)))
        assert seen == [1, 2, 3, 4, 5, 6]

    async def test_a_follower_can_begin_in_the_middle(self) -> None:
        async with self._session() as (store, log):
            await log.append(said("one"))
            await log.append(said("two"))
            with anyio.fail_after(5):
                async with aclosing(_stream(store, after=2)) as events:
                    assert (await anext(events)).seq == 3

    # --- blobs ------------------------------------------------------------------------------------------------------

    async def test_a_blob_is_found_by_its_hash_and_by_a_unique_beginning_of_it(self) -> None:
        content = bytes(range(256)) * 100
        async with self._session() as (store, log):
            name = await log.put_blob(content)
            assert name == sha256(content).hexdigest()
            assert await log.put_blob(content) == name
            assert log.get_blob(name) == log.get_blob(name[:8]) == content
            log.close()
            second = self.again(store).open(SESSION)
            assert second.get_blob(name) == content
            second.close()

    async def test_a_blob_that_is_not_there_is_an_error(self) -> None:
        async with self._session() as (_, log):
            name = await log.put_blob(b"content")
            for wrong in ("0" * 64, name[:7], "", "../events.jsonl", "../../../../etc/passwd"):
                with pytest.raises(StoreError):
                    log.get_blob(wrong)
