"""Asker: puts approvals and plans to the user at the terminal, one at a time.

An answer must belong to the question on the screen. So the next question appears only when the one before is resolved,
and anything typed before it appeared is thrown away. A question that another surface has answered, or that the end of
the turn has made void, is taken back or never shown.
"""

from __future__ import annotations

import sys
from contextlib import suppress

import anyio
from msgspec.structs import replace

from lmagent.core import events as ev
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
        self._heard: dict[str, tuple[str, ev.ApprovalRequested]] = {}
        self._news = anyio.Event()
        self._asked = ""
        self._scope = anyio.CancelScope()

    def __call__(self, event: ev.Event) -> None:
        child, event = ev.innermost(event)
        if isinstance(event, ev.ApprovalRequested) and event.id not in self._heard:  # a resumed session asks again
            self._heard[event.id] = child, event
            self._news.set()
        if self._asked and holder(self._session, self._asked) is None:  # answered elsewhere, or void
            self._asked = ""
            self._questions.answered(entered=False)
            self._scope.cancel()

    async def run(self) -> None:
        while True:
            waiting = [known for id, known in self._heard.items() if holder(self._session, id) is not None]
            if waiting:
                await self._ask(*waiting[0])
            else:
                self._news = anyio.Event()
                await self._news.wait()

    async def _ask(self, child: str, request: ev.ApprovalRequested) -> None:
        details = list[str]()
        named = replace(request, summary=f"sub-agent: {request.summary}") if child else request
        Renderer(self._style, details.append).approval(named)
        self._asked = request.id
        question = approval(visible(request.tool), request.grant)
        with anyio.CancelScope() as self._scope:
            line = await _answer(self._questions, "".join(details).rstrip("\n"), question)
            self._asked = ""
            await self._session.send(decision(request.id, request.grant, line, "cli"))


async def settle_plans(
    session: Session, finished: ev.TurnFinished | None, questions: Questions
) -> ev.TurnFinished | None:
    """Have every plan decided on, and run the turns that follow; returns how the last turn ended.

    The end of the input leaves the plan waiting.
    """
    news = ""
    while (proposal := session.state.work.proposal) is not None:
        is_on_screen = finished is not None and sys.stdout.isatty()  # printed when it was proposed
        line = await _answer(questions, news or ("" if is_on_screen else visible(plan_text(proposal.plan))), PLAN)
        if not line:
            break
        try:
            command = await editing.decision(line.strip(), session, by="cli")
            if command is not None:
                await session.send(command)
        except ConfigError as wrong:  # an edited plan that does not fit this session
            news = visible(str(wrong))
            continue
        news = "Nothing is decided yet." if command is None else ""
        finished = await run_until_idle(session) or finished
    return finished


async def _answer(questions: Questions, details: str, question: str) -> str:
    """Ask, and return the line that was typed after the question appeared; empty at the end of the input."""
    forget_typed()
    questions.ask(details, question)
    line = await TypedLines(sys.stdin.fileno()).line()
    questions.answered(entered=line.endswith("\n"))
    return line


def forget_typed() -> None:
    """Throw away input typed before the question appeared: it cannot be meant for it."""
    if sys.platform == "win32":
        return
    import termios

    with suppress(OSError, termios.error):  # if the terminal is gone, reading says so
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
