"""Asker: shows approvals to the user at the terminal, one at a time.

An answer must belong to the question on the screen. So the next question appears only when the one before is resolved,
and anything typed before it appeared is thrown away. A question that another surface has answered, or that the end of
the turn has made void, is taken back or never shown.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from contextlib import suppress

import anyio
from msgspec.structs import replace

from lmagent.core import events as ev
from lmagent.core.commands import Approve
from lmagent.engine.session import Session, holder
from lmagent.headless.printer import Questions
from lmagent.terminal.question import approval
from lmagent.terminal.render import Renderer
from lmagent.terminal.style import TextStyle
from lmagent.tools.sanitize import visible

_ANSWERS = ("", "n", "no", "y", "yes", "a", "always")


class Asker:
    """Listens for approvals and asks for them, in the order of their arrival.

    It must listen before the printer does: it takes a void question back before its end is printed.

    Args:
        questions: shows the questions.
        style: formats the details of a question.
    """

    def __init__(self, session: Session, questions: Questions, style: TextStyle) -> None:
        self._session = session
        self._questions = questions
        self._style = style
        self._waiting: deque[tuple[str, ev.ApprovalRequested]] = deque()
        self._heard: set[str] = set()
        self._news = anyio.Event()
        self._asked: ev.ApprovalRequested | None = None
        self._asker = ""
        self._scope = anyio.CancelScope()

    def __call__(self, event: ev.Event) -> None:
        asked, (child, event) = self._asked, ev.innermost(event)
        match event:
            case ev.ApprovalRequested() if event.id not in self._heard:  # a resumed session asks a second time
                self._heard.add(event.id)
                self._waiting.append((child, event))
                self._news.set()
            case ev.ApprovalResolved() if asked and event.approval == asked.id:
                self._take_back()
            case ev.ToolFinished() if asked and event.call_id == asked.call_id and child == self._asker:
                self._take_back()
            case ev.TurnFinished() if asked and child in ("", self._asker):
                self._take_back()
            case _:
                pass

    async def run(self) -> None:
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            while self._waiting:
                child, request = self._waiting.popleft()
                if holder(self._session, request.id) is not None:  # no other surface has answered it
                    await self._ask(child, request)

    async def _ask(self, child: str, request: ev.ApprovalRequested) -> None:
        details = list[str]()
        named = replace(request, summary=f"sub-agent: {request.summary}") if child else request
        Renderer(self._style, details.append).approval(named)
        self._asked, self._asker = request, child
        forget_typed()
        self._questions.ask("".join(details).rstrip("\n"), approval(visible(request.tool), request.grant))
        line = ""
        with anyio.CancelScope() as self._scope:
            line = await read_line()
        if self._scope.cancelled_caught:
            return
        self._asked = None
        self._questions.answered(entered=line.endswith("\n"))
        await self._session.send(_answer(request, line))

    def _take_back(self) -> None:
        self._asked = None
        self._questions.answered(entered=False)
        self._scope.cancel()


def _answer(request: ev.ApprovalRequested, line: str) -> Approve:
    """Read an answer; anything but a clear yes is a no, and text goes to the model."""
    word = line.strip().lower()
    always = word in ("a", "always") and bool(request.grant)
    return Approve(
        approval=request.id,
        approved=word in ("y", "yes") or always,
        scope="session" if always else "once",
        feedback="" if word in _ANSWERS else line.strip(),
        by="cli",
    )


def forget_typed() -> None:
    """Throw away input typed before the question appeared: it cannot be meant for it."""
    if sys.platform == "win32":
        return
    import termios

    with suppress(OSError, termios.error):  # if the terminal is gone, reading says so
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


async def read_line() -> str:
    """Return a line from the terminal; empty at its end (Ctrl+D, or the terminal is gone)."""
    if sys.platform == "win32":
        return await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    # Not in a thread: the end of the program would wait for it, and so for the Enter key.
    typed = b""
    while not typed.endswith((b"\n", b"\r")):
        await anyio.wait_readable(sys.stdin.fileno())
        try:
            piece = os.read(sys.stdin.fileno(), 4096)
        except OSError:
            piece = b""
        if not piece:
            break
        typed += piece
    return typed.decode("utf-8", "replace").replace("\r", "\n")
