"""Asker: puts approvals and plans to the user at the terminal, one at a time.

An answer must belong to the question on the screen. So the next question appears only when the one before is resolved,
and anything typed before it appeared is thrown away. A question that another surface has answered, or that the end of
the turn has made void, is taken back or never shown.
"""

from __future__ import annotations

import sys
from collections import deque
from contextlib import suppress

import anyio
from msgspec.structs import replace

from lmagent.core import events as ev
from lmagent.core.commands import DecidePlan
from lmagent.core.errors import ConfigError
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import Session, holder
from lmagent.headless.printer import Questions
from lmagent.planning import editing
from lmagent.planning.plans import plan_text
from lmagent.terminal.question import PLAN, TypedLines, approval, decision
from lmagent.terminal.render import Renderer
from lmagent.terminal.style import style_of
from lmagent.tools.sanitize import visible


class Asker:
    """Listens for approvals and asks for them, in the order of their arrival.

    It must listen before the printer does: it takes a void question back before its end is printed.
    """

    def __init__(self, session: Session, questions: Questions, *, color: bool) -> None:
        self._session = session
        self._questions = questions
        self._style = style_of(sys.stderr, color=color)
        self._waiting: deque[tuple[str, ev.ApprovalRequested]] = deque()
        self._heard: set[str] = set()
        self._news = anyio.Event()
        self._asked: tuple[str, ev.ApprovalRequested] | None = None
        self._scope = anyio.CancelScope()

    def __call__(self, event: ev.Event) -> None:
        child, event = ev.innermost(event)
        if isinstance(event, ev.ApprovalRequested) and event.id not in self._heard:  # a resumed session asks again
            self._heard.add(event.id)
            self._waiting.append((child, event))
            self._news.set()
        if self._asked is None:
            return
        asker, asked = self._asked
        match event:
            case ev.ApprovalResolved():
                void = event.approval == asked.id
            case ev.ToolFinished():
                void = event.call_id == asked.call_id and child == asker
            case ev.TurnFinished():
                void = child in ("", asker)
            case _:
                void = False
        if void:
            self._asked = None
            self._questions.answered(entered=False)
            self._scope.cancel()

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
        self._asked = child, request
        forget_typed()
        self._questions.ask("".join(details).rstrip("\n"), approval(visible(request.tool), request.grant))
        line = ""
        with anyio.CancelScope() as self._scope:
            line = await TypedLines(sys.stdin.fileno()).line()
        if self._scope.cancelled_caught:
            return
        self._asked = None
        self._questions.answered(entered=line.endswith("\n"))
        await self._session.send(decision(request.id, request.grant, line, "cli"))


async def settle_plans(
    session: Session, finished: ev.TurnFinished | None, questions: Questions
) -> ev.TurnFinished | None:
    """Have every plan decided on, and run the turns that follow; returns how the last turn ended."""
    refused = ""
    while (proposal := session.state.work.proposal) is not None:
        command = await _decide(session, questions, visible(refused or plan_text(proposal.plan)))
        if command is None:
            break
        try:
            await session.send(command)
        except ConfigError as wrong:  # an edited plan that does not fit this session
            refused = str(wrong)
            continue
        refused = ""
        if command.decision == "rejected":
            break
        finished = await run_until_idle(session) or finished
    return finished


async def _decide(session: Session, questions: Questions, details: str) -> DecidePlan | None:
    """Ask until there is an answer; the end of the input leaves the plan waiting."""
    while True:
        forget_typed()
        questions.ask(details, PLAN)
        line = await TypedLines(sys.stdin.fileno()).line()
        questions.answered(entered=line.endswith("\n"))
        if not line:
            return None
        try:
            command = await editing.decision(line.strip(), session, by="cli")
        except ConfigError as wrong:
            details = visible(str(wrong))
            continue
        if command is not None:
            return command
        details = "Nothing is decided yet."


def forget_typed() -> None:
    """Throw away input typed before the question appeared: it cannot be meant for it."""
    if sys.platform == "win32":
        return
    import termios

    with suppress(OSError, termios.error):  # if the terminal is gone, reading says so
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
