"""The suite of the EventStore and SessionLog ports."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from hashlib import sha256
from typing import Any, cast

import anyio
import pytest

from lmagent.core.errors import SessionBusy, SessionNotFound, StoreError
from lmagent.core.events import DurableEvent, InputReceived, SessionCreated, ToolFinished, TurnStarted
from lmagent.core.messages import user
from lmagent.core.ports import EventStore, SessionLog

SESSION = "20260101_000000_abc123"
OTHER = "20260102_000000_abc123"


def opening(session: str = SESSION) -> SessionCreated:
    """Return the first event of a session."""
    return SessionCreated(session=session, workspace="/somewhere", agent="main", system="Be brief.", tools=())


def said(text: str) -> InputReceived:
    """Return an event with text in it."""
    return InputReceived(message=user(text), delivery="submit")


def _stream(store: EventStore, after: int = 0) -> AsyncGenerator[DurableEvent]:
    return cast("AsyncGenerator[DurableEvent]", store.follow(SESSION, after))


class EventStoreConformance:
    """Subclass it and override `make`; for a store on a disk also `again`."""

    def make(self) -> EventStore:
        """Return an empty store."""
        raise AssertionError("override make")

    def again(self, store: EventStore) -> EventStore:
        """Return a second store on the same data, as another process would open it; the default is the store itself."""
        return store

    def _with_log(self, work: Callable[[EventStore, SessionLog], Awaitable[Any]]) -> Any:
        """Run `work` on a session that holds its first event."""

        async def main() -> Any:
            store = self.make()
            log = store.create(SESSION)
            await log.append(opening())
            try:
                return await work(store, log)
            finally:
                log.close()

        return anyio.run(main)

    # --- writing ----------------------------------------------------------------------------------------------------

    def test_an_appended_event_comes_back_with_its_number_id_and_time(self) -> None:
        """Numbers begin at 1 and have no gaps."""

        async def work(store: EventStore, log: SessionLog) -> list[DurableEvent]:
            return [await log.append(said("one")), await log.append(said("two"), sync=True)]

        events = self._with_log(work)
        assert [event.seq for event in events] == [2, 3]
        assert all(event.ts > 1e9 for event in events)
        assert all(event.id for event in events)
        assert events[0].id != events[1].id

    def test_what_was_appended_is_read_back_equal(self) -> None:
        """Text of any kind survives: line ends, quotes, control characters, characters outside the BMP."""
        text = 'line\r\nend "quoted" \\ \x00\x1f\u2028\ud7ff\U0001f600 é'

        async def work(store: EventStore, log: SessionLog) -> tuple[list[DurableEvent], list[DurableEvent]]:
            data = {"path": "a/b", "lines": 3, "nested": {"x": [1, 2.5, None, True]}}
            finished = ToolFinished(call_id="c", tool="read", status="ok", content=text, data=data, turn=1)
            written = [await log.append(said(text)), await log.append(finished)]
            return written, list(self.again(store).read(SESSION, after=1))

        written, read = self._with_log(work)
        assert written == read

    def test_reading_begins_after_the_given_number(self) -> None:
        """0 is everything, the last number is nothing."""

        async def work(store: EventStore, log: SessionLog) -> list[list[int]]:
            for number in range(3):
                await log.append(said(str(number)))
            return [[event.seq for event in store.read(SESSION, after=after)] for after in (0, 2, 4, 99)]

        assert self._with_log(work) == [[1, 2, 3, 4], [3, 4], [], []]

    def test_a_closed_log_takes_no_more_events(self) -> None:
        """Closing twice is allowed."""

        async def work(store: EventStore, log: SessionLog) -> None:
            log.close()
            log.close()
            with pytest.raises(StoreError):
                await log.append(said("late"))

        self._with_log(work)

    def test_many_events_keep_their_order(self) -> None:
        """Appends of several tasks at once are numbered one by one."""

        async def work(store: EventStore, log: SessionLog) -> list[int]:
            async with anyio.create_task_group() as tasks:
                for number in range(50):
                    tasks.start_soon(log.append, said(str(number)))
            return [event.seq for event in store.read(SESSION)]

        assert self._with_log(work) == list(range(1, 52))

    # --- opening ----------------------------------------------------------------------------------------------------

    def test_a_session_begins_to_exist_with_its_first_event(self) -> None:
        """`create` alone leaves nothing behind."""

        async def main() -> None:
            store = self.make()
            log = store.create(SESSION)
            assert list(store.sessions()) == []
            with pytest.raises(SessionNotFound):
                list(store.read(SESSION))
            await log.append(opening())
            assert list(self.again(store).sessions()) == [SESSION]
            log.close()

        anyio.run(main)

    def test_an_opened_log_holds_what_was_in_it_and_numbers_go_on(self) -> None:
        """`events` is the state at the time of opening, without later events."""

        async def work(store: EventStore, log: SessionLog) -> tuple[list[int], int, int]:
            await log.append(said("one"))
            log.close()
            second = self.again(store).open(SESSION)
            try:
                before = [event.seq for event in second.events()]
                stored = await second.append(said("two"))
                assert second.session == SESSION
                assert list(second.damage) == []
                return before, stored.seq, len(list(store.read(SESSION)))
            finally:
                second.close()

        assert self._with_log(work) == ([1, 2], 3, 3)

    def test_a_session_that_is_being_written_cannot_be_opened_or_deleted(self) -> None:
        """Not even by the same process; when it is closed it can."""

        async def work(store: EventStore, log: SessionLog) -> None:
            for known in (store, self.again(store)):
                with pytest.raises(SessionBusy):
                    known.open(SESSION)
                with pytest.raises(SessionBusy):
                    known.delete(SESSION)
            log.close()
            self.again(store).open(SESSION).close()

        self._with_log(work)

    def test_an_existing_session_cannot_be_created(self) -> None:
        """Its log is safe."""

        async def work(store: EventStore, log: SessionLog) -> None:
            log.close()
            with pytest.raises(StoreError):
                self.again(store).create(SESSION)
            assert len(list(store.read(SESSION))) == 1

        self._with_log(work)

    def test_an_unknown_session_is_reported_as_such(self) -> None:
        """By every way in."""
        store = self.make()
        unknown = "20990101_000000_ffffff"
        with pytest.raises(SessionNotFound):
            store.open(unknown)
        with pytest.raises(SessionNotFound):
            store.delete(unknown)
        with pytest.raises(SessionNotFound):
            list(store.read(unknown))

    def test_sessions_are_listed_oldest_first_and_can_be_deleted(self) -> None:
        """Deleting one leaves the others alone."""

        async def main() -> None:
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
            assert [event.seq for event in store.read(OTHER)] == [1]

        anyio.run(main)

    # --- following --------------------------------------------------------------------------------------------------

    def test_a_follower_sees_history_and_then_news_without_a_gap(self) -> None:
        """Also through another store on the same data."""

        async def work(store: EventStore, log: SessionLog) -> list[int]:
            seen: list[int] = []
            started = anyio.Event()

            async def watch() -> None:
                async with aclosing(_stream(self.again(store))) as events:
                    async for event in events:
                        seen.append(event.seq)
                        started.set()
                        if event.seq == 6:
                            return

            await log.append(TurnStarted(turn=1))
            with anyio.fail_after(5):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(watch)
                    await started.wait()
                    for number in range(4):
                        await log.append(said(str(number)))
            return seen

        assert self._with_log(work) == [1, 2, 3, 4, 5, 6]

    def test_a_follower_can_begin_in_the_middle(self) -> None:
        """Reconnecting costs only the missed events."""

        async def work(store: EventStore, log: SessionLog) -> int:
            await log.append(said("one"))
            await log.append(said("two"))
            with anyio.fail_after(5):
                async with aclosing(_stream(store, after=2)) as events:
                    async for event in events:
                        return event.seq
            return 0

        assert self._with_log(work) == 3

    # --- blobs ------------------------------------------------------------------------------------------------------

    def test_a_blob_is_found_by_its_hash_and_by_a_unique_beginning_of_it(self) -> None:
        """The name is the SHA-256 of the content; the same content twice is one blob."""
        content = bytes(range(256)) * 100

        async def work(store: EventStore, log: SessionLog) -> None:
            name = await log.put_blob(content)
            assert name == sha256(content).hexdigest()
            assert await log.put_blob(content) == name
            assert log.get_blob(name) == content
            assert log.get_blob(name[:8]) == content
            log.close()
            second = self.again(store).open(SESSION)
            assert second.get_blob(name) == content
            second.close()

        self._with_log(work)

    def test_a_blob_that_is_not_there_is_an_error(self) -> None:
        """So is a beginning that is too short, and a name that is a path."""

        async def work(store: EventStore, log: SessionLog) -> None:
            name = await log.put_blob(b"content")
            for wrong in ("0" * 64, name[:7], "", "../events.jsonl", "../../../../etc/passwd"):
                with pytest.raises(StoreError):
                    log.get_blob(wrong)

        self._with_log(work)
