"""Following a log: no gap, no repetition, whoever writes."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from store_kit import SESSION, StepClock, a_session, a_turn, created, path_of, run, start, store_in

from lmagent.core import events as ev
from lmagent.store.follow import LogTail
from lmagent.store.jsonl import JsonlStore
from lmagent.store.log import stamp


async def _take(store: JsonlStore, count: int, after: int = 0) -> list[int]:
    seen: list[int] = []
    with anyio.fail_after(30):
        stream = store.follow(SESSION, after)
        try:
            async for event in stream:
                seen.append(event.seq)
                if len(seen) == count:
                    break
        finally:
            await stream.aclose()  # type: ignore[attr-defined]
    return seen


def test_history_comes_first_and_after_is_respected(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    assert run(_take, store, 13) == list(range(1, 14))
    assert run(_take, store, 3, 10) == [11, 12, 13]


def test_a_long_history_comes_whole(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store, SESSION, *(ev.SessionRenamed(title=str(n)) for n in range(700)))
    assert run(_take, store, 701) == list(range(1, 702))


def test_a_session_can_be_followed_before_it_exists(tmp_path: Path) -> None:
    store = store_in(tmp_path)

    async def both() -> list[int]:
        seen: list[int] = []
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                seen.extend(await _take(store, 13))

            tasks.start_soon(watch)
            await anyio.sleep(0.12)
            log = store.create(SESSION)
            for event in [created(), *a_turn()]:
                await log.append(event)
                await anyio.sleep(0.005)
            log.close()
        return seen

    assert run(both) == list(range(1, 14))


def test_a_half_written_line_is_waited_for(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    path = path_of(store)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])

    async def both() -> list[int]:
        seen: list[int] = []
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                seen.extend(await _take(store, 13))

            tasks.start_soon(watch)
            await anyio.sleep(0.12)
            assert len(seen) == 0
            with path.open("ab") as stream:
                stream.write(lines[-1][20:])
        return seen

    assert run(both) == list(range(1, 14))


def test_a_torn_end_that_the_writer_cuts_off_costs_the_follower_nothing(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    with path_of(store).open("ab") as stream:
        stream.write(b'{"type":"notice","level' + b"x" * 400)

    async def both() -> list[int]:
        seen: list[int] = []
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                seen.extend(await _take(store, 15))

            tasks.start_soon(watch)
            await anyio.sleep(0.12)
            log = store.open(SESSION)
            await log.append(ev.SessionRenamed(title="a"))
            await anyio.sleep(0.12)
            await log.append(ev.SessionRenamed(title="b"))
            log.close()
        return seen

    assert run(both) == list(range(1, 16))


@pytest.mark.crash
def test_another_process_is_followed_without_a_gap(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    script = """
async def main():
    log = store.create(session)
    for n in range(400):
        await log.append(ev.ToolFinished(call_id=str(n), tool="t", status="ok", content="x" * (n * 37 % 3000)))
        if n % 20 == 0:
            await anyio.sleep(0.01)
    log.close()
anyio.run(main)
"""
    process = start(script, store)
    try:
        assert run(_take, store, 400) == list(range(1, 401))
    finally:
        process.communicate(timeout=30)


def test_another_log_under_the_number_of_the_old_file_is_read_from_its_beginning(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    path = path_of(store, SESSION)
    tail = LogTail(path)
    while old := tail.read():
        last = old[-1].seq
    before = path.stat().st_ino
    for events in (a_turn(), [*a_turn(), *a_turn("and then?")]):  # as long as the old one; longer
        content = b"".join(
            stamp(event, last + number, StepClock())[1] for number, event in enumerate([created(), *events], 1)
        )
        path.write_bytes(content)
        assert path.stat().st_ino == before
        assert tail.has_news
        found = [event.seq for event in tail.read()]
        assert found == list(range(last + 1, last + len(events) + 2))
        last = found[-1]
