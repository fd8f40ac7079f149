"""One-shot: one task in, events out, an exit code. Also `--resume` and `--continue` without a terminal session."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct

from lmagent.app.host import Host
from lmagent.app.signals import ending
from lmagent.core import events as ev
from lmagent.core.commands import Continue, DecidePlan, Interrupt, SetWork, Submit
from lmagent.core.errors import ConfigError, ungrouped
from lmagent.core.messages import Message, user
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import Session
from lmagent.headless.exitcode import BLOCKED, exit_code
from lmagent.headless.printer import JsonPrinter, Questions, TextPrinter

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmagent.headless.asker import Asker
    from lmagent.headless.life import ActivityLine
    from lmagent.headless.screen import ScreenPrinter


class TaskRequest(Struct, frozen=True):
    """A task and its options.

    Attributes:
        task: the task; empty to continue an unfinished turn.
        typed: the part of the task that the user typed, which may name files to attach.
        resume: id or prefix of a session to continue; empty for a new one.
        json: print events as JSON lines.
        schema: file of a JSON schema that the answer must follow.
        color: use colours.
        work: the session's mode of work from here on; None leaves it.
        decision: the decision on the plan that waits.
    """

    task: str
    resume: str = ""
    json: bool = False
    schema: Path | None = None
    color: bool = False
    work: SetWork | None = None
    decision: DecidePlan | None = None
    typed: str = ""


async def run_task(host: Host, request: TaskRequest) -> int:
    answer_check = None
    task = request.task
    if request.schema is not None:
        from lmagent.headless.schema import AnswerCheck  # loads a JSON schema library

        answer_check = AnswerCheck.load(request.schema)
        task = f"{task}\n\n{answer_check.instruction}"
    session = await host.open_session(request.resume) if request.resume else await host.new_session()
    gc.freeze()  # loaded modules stay, by now with the HTTP client: no collection needs to visit them again
    gc.enable()
    life = None if request.json else _life(host)
    printer = JsonPrinter() if request.json else _text_printer(host, request, session, life)
    for event in session.opening:  # recorded before any listener
        printer(event)
    questions = None if isinstance(printer, JsonPrinter) or not host.attended else printer.questions
    asker = _asker(session, questions, request) if questions is not None else None
    session.listen(printer)
    finished: ev.TurnFinished | None = None
    waits = False
    with ungrouped():
        async with anyio.create_task_group() as tasks:
            for beside in (life, asker):
                if beside is not None:
                    tasks.start_soon(beside.run)
            if sys.platform != "win32":
                tasks.start_soon(_watch_signals, session)
            finished = await _run(host, session, request, task)
            waits = session.state.work.proposal is not None
            if questions is not None:
                from lmagent.headless.plandesk import PlanDesk, settle_plans

                finished = await settle_plans(session, finished, PlanDesk(session, questions))
            if answer_check is not None and finished is not None and finished.outcome == "done":
                finished = await answer_check.settle(session, finished)
            tasks.cancel_scope.cancel()
    if finished is not None and finished.cause == "schema":
        printer(_misfit(session, finished))
    printer.close()
    diverged = host.replay.report() if host.replay is not None else ""
    if diverged:
        sys.stderr.write(diverged + "\n")
    if answer_check is not None and not request.json and finished is not None and finished.outcome == "done":
        sys.stdout.write(answer_check.answer(finished) + "\n")
    if finished is None and waits:
        return _nothing_ran(session, printer)
    return exit_code(finished) or (1 if diverged else 0)


def _asker(session: Session, questions: Questions, request: TaskRequest) -> Asker:
    from lmagent.headless.asker import Asker
    from lmagent.headless.screen import style_of

    asker = Asker(session, questions, style_of(sys.stderr, color=request.color))
    session.listen(asker)
    return asker


def _life(host: Host) -> ActivityLine | None:
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return None
    from lmagent.headless.life import ActivityLine

    return ActivityLine(sys.stderr, host.clock)


def _text_printer(
    host: Host, request: TaskRequest, session: Session, life: ActivityLine | None
) -> TextPrinter | ScreenPrinter:
    answer = request.schema is None
    if sys.stdout.isatty():
        from lmagent.headless.screen import ScreenPrinter
        from lmagent.planning.proposing import begins_unread

        color = not os.environ.get("NO_COLOR")

        def plans() -> bool:
            return not host.attended or host.settings.approve_plans or begins_unread(session.state)

        printer = ScreenPrinter(color=color, answer=answer, plans=plans, life=life)
    else:
        printer = TextPrinter(color=request.color, answer=answer, life=life)
    printer.words.planning = session.state.work.mode == "plan"
    return printer


def _nothing_ran(session: Session, printer: Callable[[ev.Event], None]) -> int:
    """Say again how to continue: the plan was rejected, or still waits."""
    from lmagent.planning.proposing import waits  # few runs have a plan

    if session.state.work.proposal is not None:
        end = waits(session, "")
        printer(ev.Notice(level="warning", code="plan", text=end.reason, terminal=end.terminal))
    return BLOCKED


def _misfit(session: Session, finished: ev.TurnFinished) -> ev.Notice:
    """Return the final notice for an answer that does not follow the schema; in the log the turn itself was done."""
    return ev.Notice(
        level="error",
        code="schema",
        text=finished.reason,
        fix=f"read its answer: lmagent sessions show {session.state.session}",
        turn=finished.turn,
    )


async def _message(task: str, typed: str, host: Host, session: Session) -> Message:
    if "@" not in typed:
        return user(task)
    from lmagent.app.attaching import with_attachments  # few tasks name files

    def say(line: str, _: str) -> None:
        sys.stderr.write(line + "\n")

    return await with_attachments(task, typed, host, session, say)


async def _run(host: Host, session: Session, request: TaskRequest, task: str) -> ev.TurnFinished | None:
    if request.work is not None:
        await session.send(request.work)
    if request.decision is not None:
        await session.send(request.decision)
    elif task:
        await session.send(Submit(message=await _message(task, request.typed, host, session), by="cli"))
    elif session.state.work.proposal is not None and not session.state.turn_open:
        return None
    elif not (session.state.turn_open or session.state.owes_reply or session.state.inputs):
        raise ConfigError(
            f"session {session.state.session} is finished already",
            fix='give a task: lmagent --continue "what to do next"',
        )
    else:
        await session.send(Continue(by="cli"))
    return await run_until_idle(session)


async def _watch_signals(session: Session) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, *ending()) as signals:
        async for _ in signals:
            if not session.running:
                raise KeyboardInterrupt
            await session.send(Interrupt(by="cli"))
