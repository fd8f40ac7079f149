"""What the tests of the store share: a clock, a sample session, and processes that can be killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from lmagent.core import events as ev
from lmagent.core.messages import Message, Text, ToolCall, assistant, user
from lmagent.core.model import ToolSpec, Usage
from lmagent.store.jsonl import JsonlLog, JsonlStore

T = TypeVar("T")
SESSION = "20260102_030405_a1b2c3"
NOW = 1_767_323_045.0


class StepClock:
    """A clock that moves on by a second whenever it is read."""

    def __init__(self, start: float = NOW) -> None:
        self.time = start

    def now(self) -> float:
        self.time += 1
        return self.time

    def monotonic(self) -> float:
        return self.now()

    async def sleep(self, seconds: float) -> None:
        await anyio.lowlevel.checkpoint()


def store_in(workspace: Path) -> JsonlStore:
    return JsonlStore(workspace / ".lmagent" / "sessions", StepClock())


def created(session: str = SESSION) -> ev.SessionCreated:
    tools = (ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}}),)
    return ev.SessionCreated(
        session=session, workspace="/somewhere", agent="lmagent", system="Be exact.", tools=tools, model="tiny"
    )


def a_turn(question: str = "what is in a.txt?", answer: str = "It says héllo.") -> list[ev.DurableEvent]:
    """The events of one turn with one tool call."""
    call = ToolCall(f"call_{abs(hash(question)) % 10**6}", "read", '{"path": "a.txt"}')
    asked = ev.InputReceived(
        id=f"in{abs(hash(question)) % 10**6}", message=user(question), delivery="submit", by="test"
    )
    usage = Usage(100, 10, 90)
    return [
        asked,
        ev.TurnStarted(turn=1),
        ev.MessageAdded(message=user(question), origin="input", input=asked.id, turn=1),
        ev.StepStarted(step=1, model="tiny", prompt_bytes=400, prompt_tokens=100),
        ev.MessageAdded(message=Message("assistant", (Text("Let me look."), call)), origin="model", turn=1),
        ev.StepFinished(step=1, usage=usage, finish_reason="tool_calls", first_token_s=0.1, total_s=0.2),
        ev.ToolStarted(call_id=call.id, tool="read", effect="read", summary="read(a.txt)"),
        ev.ToolFinished(call_id=call.id, tool="read", status="ok", content="héllo\n", size=7),
        ev.StepStarted(step=2, model="tiny", prompt_bytes=500, prompt_tokens=120),
        ev.MessageAdded(message=assistant(answer), origin="model", turn=1),
        ev.StepFinished(step=2, usage=usage, finish_reason="stop", first_token_s=0.1, total_s=0.2, model="tiny-q4"),
        ev.TurnFinished(outcome="done", answer=answer, steps=2, turn=1),
    ]


def write_all(log: JsonlLog, events: list[ev.DurableEvent]) -> list[ev.DurableEvent]:
    async def go() -> list[ev.DurableEvent]:
        return [await log.append(event) for event in events]

    return anyio.run(go)


def a_session(store: JsonlStore, session: str = SESSION, *events: ev.DurableEvent) -> list[ev.DurableEvent]:
    """Write a session and close it; one turn unless other events are given."""
    log = store.create(session)
    try:
        return write_all(log, [created(session), *(events or a_turn())])
    finally:
        log.close()


def path_of(store: JsonlStore, session: str = SESSION) -> Path:
    return store.root / session / "events.jsonl"


def run(function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    return anyio.run(function, *arguments)


HEAD = """
import os, sys, resource, anyio
from pathlib import Path
from lmagent.core.errors import StoreError
from lmagent.core import events as ev
from lmagent.app.clock import SystemClock
from lmagent.store.jsonl import JsonlStore
store = JsonlStore(Path(sys.argv[1]), SystemClock())
session = sys.argv[2]
def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
"""


def start(script: str, store: JsonlStore, session: str = SESSION, *more: str) -> subprocess.Popen[bytes]:
    """A process of its own that runs `script` on the store."""
    argv = [sys.executable, "-c", HEAD + script, str(store.root), session, *more]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> tuple[str, str]:
    """Its output, once it has ended."""
    out, err = process.communicate(timeout=30)
    return out.decode(), err.decode()
