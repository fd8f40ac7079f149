"""What was spent and what happened, as the index adds it up from the logs."""

from __future__ import annotations

import time
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_kit import NOW, SESSION, a_session, a_turn, created, run, store_in, write_all

from lmagent.core import events as ev
from lmagent.core.messages import user
from lmagent.core.model import Usage
from lmagent.store.activity import Activity
from lmagent.store.jsonl import JsonlStore
from lmagent.store.spent import Spending, day_of

DAY = 86_400.0


def _spent(store: JsonlStore, since: str = "") -> Spending:
    with store.index() as index:
        index.refresh()
        return index.spending(since)


def _activity(store: JsonlStore, limit: int = 50, session: str = "") -> list[Activity]:
    with store.index() as index:
        index.refresh()
        return index.activity(limit, session)


def _step(model: str = "tiny", prompt: int = 10, completion: int = 1) -> ev.StepFinished:
    usage = Usage(prompt, completion)
    return ev.StepFinished(step=1, usage=usage, finish_reason="stop", first_token_s=0, total_s=0, model=model)


def test_what_steps_took_is_added_up_by_day_model_and_session(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store, "one", *a_turn(), _step("other", 5, 7))
    a_session(store, "two", ev.InputReceived(message=user("hello"), delivery="submit"), _step("tiny-q4", 1000, 1))
    found = _spent(store)
    assert (found.sessions, found.total.steps, found.total.prompt_tokens) == (2, 4, 1205)
    assert [(row.key, row.steps) for row in found.by_day] == [(day_of(NOW), 4)]
    assert {(row.key, row.prompt_tokens) for row in found.by_model} == {("tiny", 100), ("tiny-q4", 1100), ("other", 5)}
    assert [(row.key, row.title, row.prompt_tokens) for row in found.by_session] == [
        ("two", "hello", 1000),
        ("one", "what is in a.txt?", 205),
    ]


def test_a_range_begins_with_its_first_local_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")  # half an hour off: days begin at 18:30 UTC
    time.tzset()
    try:
        store = store_in(tmp_path)
        store._clock.time = 1_767_205_799.0 - 2  # type: ignore[attr-defined]  # 23:59:57 there
        a_session(store, "late", _step(), _step(), _step())  # the log's own event is the first second
        days = [(row.key, row.steps) for row in _spent(store).by_day]
        assert days == [("2025-12-31", 1), ("2026-01-01", 2)]
        assert _spent(store, "2026-01-01").total.steps == 2
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_summary_is_counted_and_a_fork_spends_only_what_is_its_own(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    summary = ev.CompactionDone(
        messages=(),
        trigger="window",
        summary="",
        before_tokens=9,
        after_tokens=1,
        through_seq=1,
        usage=Usage(50, 5),
    )
    a_session(store, SESSION, *a_turn(), summary)
    before = _spent(store).total
    assert (before.steps, before.prompt_tokens) == (3, 250)
    run(store.fork, SESSION, "fork")
    assert _spent(store).total == before
    assert _activity(store, session="fork") == []
    log = store.open("fork")
    write_all(log, [_step(prompt=1)])
    log.close()
    assert _spent(store).total.prompt_tokens == 251


def test_a_deleted_session_is_out_of_the_figures(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    assert _spent(store).sessions == 1
    store.delete(SESSION)
    found = _spent(store)
    assert (found.sessions, found.total.steps, found.by_day) == (0, 0, ())
    assert _activity(store) == []


def test_activity_shows_what_happened_the_newest_first(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    rows = _activity(store)
    assert [row.type for row in rows] == ["done", "tool_result", "tool_call", "message"]
    done, result, call, message = rows
    assert (done.status, done.title, done.session) == ("done", "what is in a.txt?", SESSION)
    assert (result.tool, result.status, call.summary) == ("read", "ok", "read(a.txt)")
    assert message.summary == "what is in a.txt?"
    assert _activity(store, limit=1) == rows[:1]
    assert _activity(store, session="other") == []


def test_only_the_newest_lines_of_a_session_are_kept(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store, SESSION, *(ev.InputReceived(message=user(f"{n}"), delivery="queue") for n in range(1005)))
    rows = _activity(store, limit=2000)
    assert [len(rows), rows[0].summary, rows[-1].summary] == [1000, "1004", "5"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=4), max_size=5))
def test_whatever_is_read_at_once_the_sums_are_those_of_the_whole_log(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[tuple[str, int]]]
) -> None:
    store = store_in(tmp_path_factory.mktemp("w"))
    log = store.create(SESSION)
    write_all(log, [created()])
    with store.index() as index:
        for part in parts:
            write_all(log, [_step(model, prompt) for model, prompt in part])
            index.refresh()
        found = index.spending()
    log.close()
    steps = [step for part in parts for step in part]
    assert {row.key: row.prompt_tokens for row in found.by_model} == {
        model: sum(prompt for name, prompt in steps if name == model) for model in {name for name, _ in steps}
    }
    (store.root.parent / "state.db").unlink()
    assert _spent(store) == found  # from the beginning again


def test_readers_at_the_same_time_count_nothing_twice(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    log = store.create(SESSION)
    write_all(log, [created()])

    def read() -> None:
        with store.index() as index:
            for _ in range(15):
                index.refresh()

    async def go() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(anyio.to_thread.run_sync, read)
            for _ in range(200):
                await log.append(_step())
                await anyio.lowlevel.checkpoint()

    anyio.run(go)
    log.close()
    assert _spent(store).total.steps == 200


def test_a_session_that_moved_takes_what_it_spent_along(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    before = _spent(store).total

    async def move() -> None:
        await store.fork(SESSION, "elsewhere", moved=True)
        store.delete(SESSION)

    run(move)
    found = _spent(store)
    assert found.total == before
    assert [row.key for row in found.by_session] == ["elsewhere"]
    assert [row.type for row in _activity(store, session="elsewhere")] == [
        "done",
        "tool_result",
        "tool_call",
        "message",
    ]
