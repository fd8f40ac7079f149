"""Rehearsal: one session with a model that reads its lines, for the checks that need a session at work.

The lines are a cassette of model traffic, so provider, loop, tools, gate, store and undo are the real ones.
"""

from __future__ import annotations

import json
from pathlib import Path

from msgspec import Struct

from lmagent.app.host import Host
from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core.commands import SetMode, Submit, Undo
from lmagent.core.events import Event, ToolFinished, TurnFinished
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import Session

FILE, TEXT = "grüße 日本 🙂.txt", "Grüße aus 東京, שלום\n"
"""The name and the text of the file that the model writes."""


class Rehearsal(Struct):
    """What happened.

    Attributes:
        refused: the end of the turn in which a call was denied, since no user could be asked.
        worked: the end of the turn in which the calls were allowed.
        written: the file's bytes after it; None without a file.
        undone: undo removed the file.
        results: of the tools, in order.
        events: the ids of the events that were recorded.
        session: its id.
    """

    refused: TurnFinished | None
    worked: TurnFinished | None
    written: bytes | None
    undone: bool
    results: list[ToolFinished]
    events: list[str]
    session: str

    def result(self, tool: str) -> str:
        """Return the last result of a tool; empty if it did not run."""
        return next((event.content for event in reversed(self.results) if event.tool == tool), "")


async def rehearse(folder: Path) -> Rehearsal:
    """Hold the rehearsal in an empty folder."""
    write = _call("write", path=FILE, content=TEXT)
    in_text = f"<tool_call>{json.dumps({'name': 'read', 'arguments': {'path': FILE}})}</tool_call>"
    lines = (write, "It may not be written.", write, _call("grep", pattern="שלום"), in_text, "Done.")
    cassette = folder.with_suffix(".jsonl")
    cassette.write_text("".join(f"{json.dumps(line)}\n" for line in ({"cassette": 1}, *map(_exchange, lines))))
    flags = {"llm_url": "http://127.0.0.1:9/v1", "llm_model": "rehearsal", "permission_mode": "normal"}
    host = await open_host(HostOptions(folder, flags, replay=cassette), say=lambda _: None)
    try:
        return await _held(host, folder / FILE)
    finally:
        await host.aclose()


async def _held(host: Host, file: Path) -> Rehearsal:
    session = await host.new_session()
    events: list[Event] = []
    session.listen(events.append)
    refused = await _turn(session, "Write the file.")
    await session.send(SetMode(mode="auto", by="self-test"))
    worked = await _turn(session, "Write it now.")
    written = file.read_bytes() if file.exists() else None
    await session.send(Undo(by="self-test"))
    finished = [event for event in events if isinstance(event, ToolFinished)]
    ids = [event.id for event in events if event.seq]
    return Rehearsal(refused, worked, written, not file.exists(), finished, ids, session.state.session)


async def _turn(session: Session, text: str) -> TurnFinished | None:
    await session.send(Submit(message=user(text)))
    return await run_until_idle(session)


def _call(tool: str, **arguments: str) -> dict[str, object]:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"index": 0, "id": f"call-{tool}", "type": "function", "function": function}]}


def _exchange(line: str | dict[str, object]) -> dict[str, object]:
    """Return one request and its streamed reply, as a cassette holds them."""
    delta, reason = ({"content": line}, "stop") if isinstance(line, str) else (line, "tool_calls")
    last: dict[str, object] = {"delta": {}, "finish_reason": reason}
    chunks = [json.dumps({"choices": [{"index": 0, **choice}]}) for choice in ({"delta": delta}, last)]
    return {
        "method": "POST",
        "path": "/v1/chat/completions",
        "request": "",
        "status": 200,
        "headers": {"content-type": "text/event-stream"},
        "chunks": [*(f"data: {chunk}\n\n" for chunk in chunks), "data: [DONE]\n\n"],
    }
