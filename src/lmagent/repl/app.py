"""The REPL: a conversation in the terminal."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
from anyio.abc import TaskStatus
from msgspec import Struct

from lmagent.app.host import Host
from lmagent.app.signals import ending
from lmagent.core.commands import Close
from lmagent.core.errors import LmagentError, StoreError, ungrouped
from lmagent.repl import banner
from lmagent.repl import plain as plain_loop
from lmagent.repl.conversation import ReplConversation
from lmagent.sandbox.scratch import forget_scratch
from lmagent.terminal.render import Renderer
from lmagent.terminal.style import PlainStyle, RichStyle
from lmagent.terminal.theme import resolved

AT_ONCE = 1.0
"""Seconds that the plain loop waits for the lines about server and sandbox; later answers are left out."""

LOOK = 0.5
"""Seconds between two looks whether the workspace has files of lmagent, which the scheduler needs."""


class Opening(Struct, frozen=True):
    """How a conversation begins.

    Attributes:
        resume: id or prefix of the session to resume; empty for a new one.
        pick: the user picks the session from a list.
    """

    resume: str = ""
    pick: bool = False


async def run_repl(host: Host, opening: Opening, *, plain: bool = False) -> int:
    """Talk until the user leaves, or the terminal closes; returns the exit code.

    Args:
        host: the sessions; attended.
        opening: how it begins.
        plain: plain lines, nothing redrawn; always so without a terminal.
    """
    signals = list[int]()
    conversation: ReplConversation | None = None
    plain = plain or host.settings.plain or os.environ.get("TERM") == "dumb"
    plain = plain or not (sys.stdin.isatty() and sys.stdout.isatty())
    with ungrouped():
        async with anyio.create_task_group() as tasks:
            scheduling = anyio.CancelScope()
            with anyio.CancelScope() as talk:
                if sys.platform != "win32":
                    tasks.start_soon(_watch_signals, talk, signals)
                if plain:
                    renderer = Renderer(PlainStyle(), plain_loop.write, terminal=sys.stdout.isatty())
                    surface = plain_loop.PlainSurface(_bell(host))
                    conversation = ReplConversation(host, renderer, tasks, surface)
                    if sys.platform != "win32":
                        await tasks.start(_stop_on_interrupt, conversation, surface, talk, signals)
                    await _open(conversation, opening)
                    with anyio.move_on_after(AT_ONCE):  # a later line would appear in the middle of one being typed
                        await banner.finish(host, renderer.say)
                    tasks.start_soon(_schedule, host, conversation, scheduling)
                    await plain_loop.run(conversation)
                else:
                    from lmagent.repl.screen import Screen  # prompt_toolkit

                    screen = Screen(_history(host), _bell(host), _theme(host))
                    renderer = Renderer(RichStyle(screen.width), screen.write, more="Ctrl+O shows them")
                    conversation = ReplConversation(host, renderer, tasks, screen)
                    await _open(conversation, opening)
                    tasks.start_soon(banner.finish, host, renderer.say)
                    tasks.start_soon(_schedule, host, conversation, scheduling)
                    if conversation.session is None:
                        conversation.prewarm()
                    await screen.run(conversation)
            scheduling.cancel()
            if conversation is not None and conversation.session is not None:
                await conversation.session.send(Close(by="repl"))
                await conversation.until(lambda: not conversation.working)
                await _leave(host, conversation, conversation.session.state.session)
            tasks.cancel_scope.cancel()
    return 128 + signals[0] if signals else 0


async def _leave(host: Host, conversation: ReplConversation, session: str) -> None:
    """Print how to resume the session; a session that was created here and stayed empty is deleted."""
    if conversation.has_questions:
        conversation.renderer.say(f"Resume with: lmagent --resume {session}", "quiet")
    elif conversation.begun_here:
        await host.release(session)
        with suppress(StoreError):
            host.store.delete(session)
            forget_scratch(host.settings.agent_data_dir, host.workspace, session)


async def _schedule(host: Host, conversation: ReplConversation, scope: anyio.CancelScope) -> None:
    """Run the due work of the workspace beside the conversation, if the user wants that and trusts the folder.

    A cron job, a task or a waiting session may have come with a checkout. A user who only wants to talk about the
    checkout has asked for none of it.
    """
    from lmagent.schedule.rights import may_run_jobs, waiting_for_trust

    if not host.settings.scheduler_in_chat or host.replay is not None:
        return

    def say(text: str) -> None:
        conversation.renderer.say(text, "quiet")

    with scope:
        try:
            with ungrouped():
                if not may_run_jobs(host.settings, host.workspace):
                    if problem := waiting_for_trust(host.workspace):
                        say(problem)
                    return
                while not (host.workspace / ".lmagent").is_dir():
                    await host.clock.sleep(LOOK)
                from lmagent.app.runner import Runner
                from lmagent.schedule.scheduler import Scheduler  # opens the index

                await Scheduler(Runner(host, say)).run()
        except LmagentError as error:
            say(f"the scheduler of this chat has stopped: {error}")


async def _watch_signals(talk: anyio.CancelScope, signals: list[int]) -> None:
    """End the conversation on a signal to stop, or when the terminal closes."""
    with anyio.open_signal_receiver(*ending()) as received:
        async for number in received:
            signals.append(number)
            talk.cancel()


async def _stop_on_interrupt(
    conversation: ReplConversation,
    surface: plain_loop.PlainSurface,
    talk: anyio.CancelScope,
    signals: list[int],
    *,
    task_status: TaskStatus[None],
) -> None:
    """Handle Ctrl+C in the plain loop: stop the running turn; twice, end the conversation."""
    with anyio.open_signal_receiver(signal.SIGINT) as received:
        task_status.started()
        async for number in received:
            if not surface.lent and await conversation.pressed_ctrl_c(empty=True):
                signals.append(number)
                talk.cancel()


async def _open(conversation: ReplConversation, opening: Opening) -> None:
    host, say = conversation.host, conversation.renderer.say
    banner.begin(host, say)
    if opening.resume:
        session = await host.open_session(opening.resume)  # an unknown name ends the program here
        await conversation.line(f"/resume {session.state.session}")
    elif opening.pick:
        await conversation.line("/resume")


def _bell(host: Host) -> Callable[[], None]:
    """Return a function that rings the bell, if there is a terminal and the settings allow it."""

    def ring() -> None:
        sys.stdout.write("\a")
        sys.stdout.flush()

    return ring if host.settings.notify_bell and sys.stdout.isatty() else lambda: None


def _theme(host: Host) -> str:
    """Return the theme of the settings; NO_COLOR removes the colours and nothing else."""
    return "none" if host.settings.no_color else resolved(host.settings.theme, os.environ)


def _history(host: Host) -> Path | None:
    """Return the file of the input history; None if it cannot be written."""
    folder = host.settings.agent_data_dir
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "history"
        path.touch(mode=0o600)
    except OSError:
        return None
    return path
