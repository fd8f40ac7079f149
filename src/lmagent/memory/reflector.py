"""Reflector: one run of reflection, from the logs to the files."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, cast

import anyio.to_thread
import msgspec
from msgspec import Struct, field

from lmagent.core.decoding import decode_json
from lmagent.core.errors import ProviderError, StoreError
from lmagent.core.ids import new_id
from lmagent.core.messages import user
from lmagent.core.model import ModelEvent, ModelReply, ModelRequest
from lmagent.memory.entries import MemoryEntry
from lmagent.memory.folder import MemoryFolder, Refused, live
from lmagent.memory.logs import Logs
from lmagent.memory.memory import MemoryScope
from lmagent.memory.reflect import (
    PROMPT,
    SCHEMA,
    Piece,
    ProposedFact,
    candidates_in,
    chosen,
    evidence_of,
    pieces_of,
    question,
)

MARKS = "reflected.json"  # session → `seq` up to which it was reflected on
SESSIONS = 10  # of one run; the others follow in the next
REPLY = 1500  # tokens

Stream = Callable[[ModelRequest], AsyncIterator[ModelEvent]]


class Report(Struct):
    """What a run did.

    Attributes:
        left: sessions that have more to read.
        failed: why a session could not be reflected on.
    """

    sessions: int = 0
    left: int = 0
    stored: list[MemoryEntry] = field(default_factory=list[MemoryEntry])
    pinned: list[MemoryEntry] = field(default_factory=list[MemoryEntry])
    refused: list[Refused] = field(default_factory=list[Refused])
    failed: list[str] = field(default_factory=list[str])


class Reflector:
    """Reflects on the sessions of a workspace.

    Args:
        stream: asks the model beside all conversations.
        model: the model's name; empty lets the server choose.
        is_busy: whether a session is in the middle of a turn.
    """

    def __init__(
        self,
        memory: MemoryScope,
        logs: Logs,
        stream: Stream,
        model: str,
        is_busy: Callable[[str], bool] = lambda session: False,
    ) -> None:
        self._memory = memory
        self._logs = logs
        self._stream = stream
        self._model = model
        self._is_busy = is_busy

    async def run(self) -> Report:
        """Reflect on the news of the sessions. Raise StoreError if nothing can be stored."""
        report, run, marks = Report(), new_id(), await anyio.to_thread.run_sync(reflected_marks, self._memory.folder)
        for session in [name for name in self._logs.sessions() if not self._is_busy(name)]:
            pieces, last = await anyio.to_thread.run_sync(self._pieces, session, marks.get(session, 0))
            if not any(piece.source == "user" for piece in pieces):
                continue
            if report.sessions == SESSIONS:
                report.left += 1
                continue
            report.sessions += 1
            try:
                fault = await self._reflect(session, chosen(pieces), run, report)
            except ProviderError as failure:
                report.failed.append(f"{session}: {failure.message}")
                break  # the server is away: the rest stays for the next run
            if fault:
                report.failed.append(f"{session}: {fault}")
            marks[session] = last
            await anyio.to_thread.run_sync(self._mark, marks)
        return report

    def _pieces(self, session: str, after: int) -> tuple[list[Piece], int]:
        try:
            return pieces_of(self._logs.read(session, after), after)
        except StoreError:
            return [], after  # deleted meanwhile

    async def _reflect(self, session: str, pieces: list[Piece], run: str, report: Report) -> str:
        """Reflect on a session; return why the reply could not be used, or empty."""
        entries = await anyio.to_thread.run_sync(self._memory.entries)
        candidates = candidates_in(await self._ask(question(pieces, live(entries))))
        if candidates is None:
            return "the model did not answer with the JSON that it was asked for"

        await anyio.to_thread.run_sync(self._settle, session, candidates, pieces, run, report)
        return ""

    def _settle(
        self, session: str, candidates: list[ProposedFact], pieces: list[Piece], run: str, report: Report
    ) -> None:
        for fact in candidates:
            entry, refused = self._memory.conclude(fact, evidence_of(fact, session, pieces), run)
            if entry is not None:
                (report.pinned if entry.is_pinned else report.stored).append(entry)
            if refused is not None:
                report.refused.append(refused)

    async def _ask(self, text: str) -> str:
        request = ModelRequest(
            self._model, PROMPT, (), (user(text),), temperature=0.2, max_tokens=REPLY, response_schema=SCHEMA
        )
        reply = ""
        async with aclosing(cast("Any", self._stream(request))) as events:
            async for event in events:
                if isinstance(event, ModelReply):
                    reply = event.message.text
        return reply

    def _mark(self, marks: dict[str, int]) -> None:
        with self._memory.folder.locked():
            self._memory.folder.rewrite(MARKS, json.dumps(marks, indent=1))


def reflected_marks(folder: MemoryFolder) -> dict[str, int]:
    """Return the `seq` up to which each session was reflected on."""
    try:
        return decode_json(folder.read(MARKS) or "{}", dict[str, int])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return {}  # damaged: everything is read again, and nothing is stored twice
