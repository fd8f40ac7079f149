"""One-shot: one task in, events out, an exit code. Also `--resume` and `--continue` without a terminal session."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.abc
from msgspec import Struct

from lmagent.app.host import Host
from lmagent.core import events as ev
from lmagent.core.commands import Approve, Continue, Interrupt, Submit
from lmagent.core.errors import ConfigError, ungrouped
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import Session
from lmagent.headless.exitcode import exit_code
from lmagent.headless.printer import JsonPrinter, TextPrinter


class TaskRequest(Struct, frozen=True):
    """What to do.

    Attributes:
        task: the task; empty to go on with an unfinished turn.
        resume: id or prefix of a session to go on with; empty for a new one.
        json: print events as JSON lines.
        schema: file of a JSON schema that the answer must follow.
        color: use colours.
    """

    task: str
    resume: str = ""
    json: bool = False
    schema: Path | None = None
    color: bool = False


async def run_task(host: Host, request: TaskRequest) -> int:
    """Do the task and return the exit code."""
    answer_check = None
    task = request.task
    if request.schema is not None:
        from lmagent.headless.schema import AnswerCheck  # loads a JSON schema library

        answer_check = AnswerCheck.load(request.schema)
        task = f"{task}\n\n{answer_check.instruction}"
    session = await host.open_session(request.resume) if request.resume else await host.new_session()
    quiet = answer_check is not None
    printer = JsonPrinter() if request.json else TextPrinter(color=request.color, answer=not quiet)
    for event in session.opening:  # recorded before anybody could listen
        printer(event)
    session.listen(printer)
    finished: ev.TurnFinished | None = None
    with ungrouped():
        async with anyio.create_task_group() as tasks:
            if host.attended:
                session.listen(_approver(session, tasks))
            if sys.platform != "win32":
                tasks.start_soon(_watch_signals, session)
            finished = await _run(session, task)
            if answer_check is not None and finished is not None and finished.outcome == "done":
                finished = await answer_check.settle(session, finished)
            tasks.cancel_scope.cancel()
    printer.close()
    if report := host.replay_report():
        sys.stderr.write(report + "\n")
    if answer_check is not None and not request.json and finished is not None and finished.outcome == "done":
        sys.stdout.write(answer_check.answer(finished) + "\n")
    return exit_code(finished)


async def _run(session: Session, task: str) -> ev.TurnFinished | None:
    if task:
        await session.send(Submit(message=user(task), by="cli"))
    elif not (session.state.turn_open or session.state.owes_reply or session.state.inputs):
        raise ConfigError(
            f"session {session.state.session} has nothing unfinished to go on with",
            fix='give a task: lmagent --continue "what to do next"',
        )
    else:
        await session.send(Continue(by="cli"))
    return await run_until_idle(session)


async def _watch_signals(session: Session) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            if not session.running:
                raise KeyboardInterrupt
            await session.send(Interrupt(by="cli"))


def _approver(session: Session, tasks: anyio.abc.TaskGroup) -> Callable[[ev.Event], None]:
    """A listener that puts approvals before the person at the terminal."""

    def listen(event: ev.Event) -> None:
        if isinstance(event, ev.ApprovalRequested):
            tasks.start_soon(_ask, session, event)

    return listen


async def _ask(session: Session, request: ev.ApprovalRequested) -> None:
    from lmagent.tools.sanitize import printable

    preview = f"\n{printable(request.preview)}" if request.preview else ""
    sys.stderr.write(f"\n{printable(request.summary)} — {request.reason}{preview}\n")
    always = f", a = always ({request.grant})" if request.grant else ""
    sys.stderr.write(f"Allow? [y = yes, n = no{always}] ")
    sys.stderr.flush()
    line = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    word = line.strip().lower()
    always_given = word in ("a", "always") and bool(request.grant)
    await session.send(
        Approve(
            approval=request.id,
            approved=word in ("y", "yes") or always_given,
            scope="session" if always_given else "once",
            feedback="" if word in ("", "n", "no", "y", "yes", "a", "always") else line.strip(),
            by="cli",
        )
    )
