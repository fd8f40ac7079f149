"""Views that are kept: looked at as often as one likes, they say what folding the whole log says."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from lmagent.app.clock import SystemClock
from lmagent.core import events as ev
from lmagent.core.messages import Message, Text, ToolCall, user
from lmagent.core.view import View, reduce
from lmagent.gateway.gateway import KEPT, Folded, Views
from lmagent.store.jsonl import JsonlStore

SESSION = "20260102_030405_a1b2c3"

EVENTS_SEEN = st.sampled_from(
    [
        ev.InputReceived(id="i1", message=user("one"), delivery="submit"),
        ev.InputReceived(id="i2", message=user("two"), delivery="queue"),
        ev.InputWithdrawn(input="i2"),
        ev.TurnStarted(turn=1),
        ev.MessageAdded(message=user("one"), origin="input", input="i1"),
        ev.MessageAdded(message=Message("assistant", (Text("said"), ToolCall("c1", "read", "{}"))), origin="model"),
        ev.ToolStarted(call_id="c1", tool="read", effect="read", summary="read a"),
        ev.ToolFinished(call_id="c1", tool="read", status="ok", content="a"),
        ev.Notice(level="info", code="n", text="note"),
        ev.TurnFinished(outcome="done"),
        ev.TurnFinished(outcome="blocked", reason="no way"),
    ]
)


@given(st.lists(st.tuples(EVENTS_SEEN, st.booleans()), max_size=25))
@settings(max_examples=80, deadline=None)
def test_a_view_that_is_looked_at_in_between_is_the_view_of_the_whole_log(tmp_path_factory, steps):
    store = JsonlStore(tmp_path_factory.mktemp("views"), SystemClock())
    log = store.create(SESSION)
    folded = Folded(store.tail(SESSION))
    whole = View()
    written = 0
    is_open = is_called = False  # the call of a turn that is over stays as it was left: no log goes on with it
    for event, looks in steps:
        if isinstance(event, ev.TurnStarted | ev.TurnFinished):
            is_open, is_called = isinstance(event, ev.TurnStarted), False
        elif isinstance(event, ev.ToolStarted | ev.ToolFinished):
            if not is_called:
                continue
        elif isinstance(event, ev.MessageAdded) and event.message.tool_calls:
            if not is_open:
                continue
            is_called = True
        whole = reduce(whole, anyio.run(log.append, event))
        written += 1
        if looks:
            folded.look()
    log.close()
    seq, view, blocks = folded.look()
    assert seq == written
    assert (view, blocks) == (replace(whole, blocks=()), whole.blocks)


@pytest.mark.anyio
async def test_only_the_views_that_were_looked_at_last_are_kept(tmp_path):
    store = JsonlStore(tmp_path, SystemClock())
    views = Views(store)
    for number in range(KEPT + 3):
        log = store.create(f"s{number}")
        await log.append(ev.SessionRenamed(title=str(number)))
        log.close()
        _, view, _ = await views.look(f"s{number}")
        assert view.title == str(number)
    assert views._kept.cache_info().currsize == KEPT


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
