"""Watch: follows a session during one request: its progress goes to the client, and its approvals are answered.

The client's user answers an approval if the client can ask. Otherwise it waits for another surface of this program, if
there is one, and is denied if not.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from textwrap import indent
from typing import Any, Protocol, cast

import anyio
from msgspec import Struct

from lmagent.core import events as ev
from lmagent.core.commands import Approve
from lmagent.core.errors import ungrouped
from lmagent.engine.session import Session
from lmagent.tools.sanitize import one_line, printable, visible

SURFACE = "mcp"
"""The name of this surface in the log."""

PAUSE = 0.25
"""Seconds between two notifications of progress."""

LONGEST = 2000
"""Characters of a notification of progress: the newest ones."""


class Client(Protocol):
    """The client of one request.

    Attributes:
        can_ask: whether its user can be asked.
    """

    can_ask: bool

    async def ask(self, message: str, schema: dict[str, Any]) -> dict[str, Any] | None:
        """Show a form to the client's user; return the filled form, or None if the user declines.

        Raises NoAnswer: the client could not ask.
        """
        ...

    async def progress(self, text: str) -> None:
        """Send a piece of progress, if the client wants any."""
        ...


class NoAnswer(Exception):
    """The client could not ask its user."""


class AnswerPlaces(Struct, frozen=True):
    """The other ways to answer an approval: `elsewhere` if another surface of this program can.

    `patience` is the number of seconds that the client's user has.
    """

    elsewhere: bool
    patience: float


class RequestWatch:
    """The events of one request; `call` restricts it to one call of the session.

    Attributes:
        finished: the result of the call.
        ended: the end of the last turn.
        changed: the paths that were changed, by sub-agents too; not those of a command that changed very many.
    """

    def __init__(self, session: Session, client: Client, places: AnswerPlaces, call: str = "") -> None:
        self.finished: ev.ToolFinished | None = None
        self.ended: ev.TurnFinished | None = None
        self.changed = dict[str, None]()
        self._session = session
        self._client = client
        self._places = places
        self._call = call
        self._asked: dict[str, anyio.CancelScope] = {}
        self._text = ""
        self._news = anyio.Event()

    @asynccontextmanager
    async def following(self) -> AsyncGenerator[None]:
        with ungrouped():
            async with anyio.create_task_group() as self._tasks:
                stop = self._session.listen(self._hear)
                self._tasks.start_soon(self._report)
                try:
                    yield
                finally:
                    stop()
                    self._tasks.cancel_scope.cancel()

    def say(self, text: str) -> None:
        """Add a line to the progress."""
        self._text += text if text.endswith("\n") or self._call else f"{text}\n"
        self._news.set()

    def _hear(self, event: ev.Event) -> None:
        _, inner = ev.innermost(event)
        if self._call and str(getattr(inner, "call_id", "")).partition("/")[0] != self._call:
            return
        match inner:
            case ev.ApprovalRequested() if inner.id not in self._asked:
                self._asked[inner.id] = anyio.CancelScope()
                self._tasks.start_soon(self._settle, inner)
            case ev.ApprovalResolved() if inner.approval in self._asked:
                self._asked[inner.approval].cancel()
            case ev.ToolFinished() if self._call:
                self.finished = inner
            case ev.TurnFinished() if inner is event:
                self.ended = inner
            case ev.FilesChanged():
                self.changed.update((change.path, None) for change in inner.changes)
            case ev.ToolOutput() if self._call:
                self.say(inner.text)
            case ev.ToolStarted() if not self._call:
                self.say(f"{inner.tool}: {inner.summary}")
            case ev.Notice() if not self._call:
                self.say(inner.text)
            case _:
                pass

    async def _report(self) -> None:
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            text, self._text = self._text, ""
            await self._client.progress(printable(text[-LONGEST:]))
            await anyio.sleep(PAUSE)

    # --- approvals --------------------------------------------------------------------------------------------------

    async def _settle(self, request: ev.ApprovalRequested) -> None:
        with self._asked[request.id]:
            answer = await self._answer(request) if self._client.can_ask else None
            if answer is None and self._places.elsewhere:
                self.say(f"waits for an answer on lmagent's page: {request.summary}")
                return
            if answer is None:
                answer = Approve(approval=request.id, approved=False, by="unattended")
            with anyio.CancelScope(shield=True):
                await self._session.send(answer)

    async def _answer(self, request: ev.ApprovalRequested) -> Approve | None:
        """Return the answer of the client's user; None if they cannot be asked, or do not answer in time."""
        try:
            with anyio.fail_after(self._places.patience):
                form = await self._client.ask(question(request, str(self._session.wiring.workspace)), form_of(request))
        except (NoAnswer, TimeoutError):
            return None
        allowed = form is not None and form.get("allow") is True
        always = allowed and bool(request.grant) and form is not None and form.get("always") is True
        return Approve(approval=request.id, approved=allowed, scope="session" if always else "once", by=SURFACE)


def question(request: ev.ApprovalRequested, workspace: str) -> str:
    """Return the text on which the client's user decides. Text from outside is indented, so it cannot pass for ours."""
    facts = visible("\n".join(part for part in (request.summary, request.preview) if part))
    reason = f"\n\nReason: {one_line(request.reason, 500)}" if request.reason else ""
    head = f"lmagent asks whether {one_line(request.tool)} may run in {one_line(workspace, 500)}:"
    return f"{head}\n\n{indent(facts, '    ')}{reason}"


def form_of(request: ev.ApprovalRequested) -> dict[str, Any]:
    """Return the form of an approval: yes or no, and for a call that can be granted, for how long."""
    fields: dict[str, Any] = {"allow": {"type": "boolean", "title": "Allow this call"}}
    if request.grant:
        grant = visible(", ".join(request.grant.splitlines()))
        fields["always"] = {"type": "boolean", "title": f"Always allow {grant} in this session", "default": False}
    return {"type": "object", "properties": cast("Any", fields), "required": ["allow"]}
