"""One-shot: one task in, events out, an exit code. Also `--resume` and `--continue` without a terminal session."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial
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
from lmagent.headless.printer import JsonPrinter, TaskPrinter
from lmagent.planning.proposing import waits

if TYPE_CHECKING:
    from lmagent.headless.life import ActivityLine

DONE, ERROR, LIMIT, BLOCKED, DENIED, INTERRUPTED = 0, 1, 2, 3, 4, 130

_BY_OUTCOME = {
    "done": DONE,
    "blocked": BLOCKED,
    "waiting": BLOCKED,
    "question": BLOCKED,
    "limit": LIMIT,
    "interrupted": INTERRUPTED,
    "error": ERROR,
}


def exit_code(finished: ev.TurnFinished | None) -> int:
    """Return the exit code of a turn.

    A turn in which a call was denied because no user could be asked, and which did not make up for it, is 4 whatever
    the model says about it.
    """
    if finished is None:
        return ERROR
    return DENIED if finished.ending == "denied" else _BY_OUTCOME[finished.outcome]


class TaskRequest(Struct, frozen=True):
    """A task and its options."""

    task: str  # empty to continue an unfinished turn
    resume: str = ""  # id or prefix of a session to continue; empty for a new one
    json: bool = False  # print events as JSON lines
    schema: Path | None = None  # of JSON; the answer must follow it
    work: SetWork | None = None
    decision: DecidePlan | None = None  # on the plan that waits
    typed: str = ""  # the part of the task that the user typed, which may name files to attach


async def run_task(host: Host, request: TaskRequest) -> int:
    check = None
    task = request.task
    if request.schema is not None:
        from lmagent.headless.schema import AnswerCheck  # loads a JSON schema library

        check = AnswerCheck.load(request.schema)
        task = f"{task}\n\n{check.instruction}"
    session = await host.open_session(request.resume) if request.resume else await host.new_session()
    gc.freeze()  # loaded modules stay, by now with the HTTP client: no collection needs to visit them again
    gc.enable()
    printer, beside = _watchers(host, session, request)
    finished: ev.TurnFinished | None = None
    planned = False
    with ungrouped():
        async with anyio.create_task_group() as tasks:
            for run in beside:
                tasks.start_soon(run)
            finished = await _run(host, session, request, task)
            planned = session.state.work.proposal is not None
            if planned and host.attended and isinstance(printer, TaskPrinter):
                from lmagent.headless.asker import settle_plans

                finished = await settle_plans(session, finished, printer.questions)
            if check is not None and finished is not None and finished.outcome == "done":
                finished = await check.settle(session, finished)
            tasks.cancel_scope.cancel()
    if finished is not None and finished.cause == "schema":
        printer(_misfit(session, finished))
    if diverged := host.replay.report() if host.replay is not None else "":
        sys.stderr.write(diverged + "\n")
    if check is not None and not request.json and finished is not None and finished.outcome == "done":
        sys.stdout.write(check.answer(finished) + "\n")
    if finished is None and planned:
        if notice := _still_waits(session):
            printer(notice)
        return BLOCKED
    return exit_code(finished) or (1 if diverged else 0)


def _watchers(
    host: Host, session: Session, request: TaskRequest
) -> tuple[JsonPrinter | TaskPrinter, list[Callable[[], Coroutine[None, None, None]]]]:
    """Return the printer, which listens to the session, and the functions that run beside the task."""
    beside = list[Callable[[], Coroutine[None, None, None]]]()
    if sys.platform != "win32":
        beside.append(partial(_watch_signals, session))
    if request.json:
        printer = JsonPrinter()
    else:
        life = _life(host)
        planning = session.state.work.mode == "plan"
        color, answer = not host.settings.no_color, request.schema is None
        printer = TaskPrinter(color=color, answer=answer, planning=planning, life=life)
        beside += [] if life is None else [life.run]
        if host.attended:
            from lmagent.headless.asker import Asker

            asker = Asker(session, printer.questions, color=not host.settings.no_color)
            session.listen(asker)
            beside.append(asker.run)
    for event in session.opening:  # recorded before any listener
        printer(event)
    session.listen(printer)
    return printer, beside


def _life(host: Host) -> ActivityLine | None:
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return None
    from lmagent.headless.life import ActivityLine

    return ActivityLine(sys.stderr, host.clock)


def _still_waits(session: Session) -> ev.Notice | None:
    """Say again how to continue with a plan that waits; None if it was rejected."""
    if session.state.work.proposal is None:
        return None
    end = waits(session, "")
    return ev.Notice(level="warning", code="plan", text=end.reason, terminal=end.terminal)


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
