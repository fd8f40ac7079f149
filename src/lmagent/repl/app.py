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

from lmagent import __version__
from lmagent.app.host import Host
from lmagent.app.signals import ending
from lmagent.core.commands import Close
from lmagent.core.errors import LmagentError, StoreError, ungrouped
from lmagent.providers.concealed import shown
from lmagent.providers.urls import authority, server_root
from lmagent.repl.conversation import ReplConversation
from lmagent.repl.plain import PlainSurface
from lmagent.sandbox.scratch import forget_scratch
from lmagent.schedule.rights import may_run_jobs, waiting_for_trust
from lmagent.terminal.render import Renderer
from lmagent.terminal.style import resolved_theme
from lmagent.tools.sanitize import one_line

AT_ONCE = 1.0
"""Seconds that the plain loop waits for the lines about server and sandbox; later answers are left out."""

LOOK = 0.5
"""Seconds between two looks whether the workspace has files of lmagent, which the scheduler needs."""

Say = Callable[[str, str], None]


async def run_repl(host: Host, resume: str = "", *, pick: bool = False, plain: bool = False) -> int:
    """Talk until the user leaves, or the terminal closes; returns the exit code.

    Args:
        host: the sessions; attended.
        resume: id or prefix of the session to resume; empty for a new one.
        pick: the user picks the session from a list.
        plain: plain lines, nothing redrawn; always so without a terminal.
    """
    signals = list[int]()
    plain = plain or host.settings.plain or os.environ.get("TERM") == "dumb"
    plain = plain or not (sys.stdin.isatty() and sys.stdout.isatty())
    conversation: ReplConversation | None = None
    with ungrouped():
        async with anyio.create_task_group() as tasks:
            scheduling = anyio.CancelScope()
            with anyio.CancelScope() as talk:
                if sys.platform != "win32":
                    tasks.start_soon(_watch_signals, talk, signals)
                if plain:
                    surface, more = PlainSurface(_bell(host)), ""
                else:
                    from lmagent.repl.screen import Screen  # prompt_toolkit

                    surface, more = Screen(_history(host), _bell(host), _theme(host)), "Ctrl+O shows them"
                renderer = Renderer(surface.style, surface.write, terminal=sys.stdout.isatty(), more=more)
                renderer.workspace = None if plain else host.workspace
                conversation = ReplConversation(host, renderer, tasks, surface)
                if isinstance(surface, PlainSurface) and sys.platform != "win32":
                    await tasks.start(_stop_on_interrupt, conversation, surface, talk, signals)
                await _open(conversation, resume, pick=pick)
                if plain:
                    with anyio.move_on_after(AT_ONCE):  # a later line would appear in the middle of one being typed
                        await show_facts(host, renderer.say)
                else:
                    tasks.start_soon(show_facts, host, renderer.say)
                    if conversation.session is None:
                        conversation.prewarm()
                tasks.start_soon(conversation.wake_in_time)
                tasks.start_soon(_schedule, host, conversation, scheduling)
                await surface.run(conversation)
            scheduling.cancel()
            if conversation is not None and conversation.session is not None:
                await conversation.session.send(Close(by="repl"))
                await conversation.until(lambda: not conversation.working)
                await _leave(host, conversation)
            tasks.cancel_scope.cancel()
    return 128 + signals[0] if signals else 0


async def _open(conversation: ReplConversation, resume: str, *, pick: bool) -> None:
    host, say = conversation.host, conversation.renderer.say
    folder, home = str(host.workspace), os.path.expanduser("~")
    folder = f"~{folder.removeprefix(home)}" if folder.startswith(f"{home}{os.sep}") else folder
    say(f"lmagent {__version__} · {folder}", "user")
    say("Type a task. /help lists the commands, Ctrl+C twice leaves.", "quiet")
    if resume:
        session = await host.open_session(resume)  # an unknown name ends the program here
        await conversation.line(f"/resume {session.state.session}")
    elif pick:
        await conversation.line("/resume")


async def _leave(host: Host, conversation: ReplConversation) -> None:
    """Print how to resume the session; a session that was created here and stayed empty is deleted."""
    session = conversation.id
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
    surface: PlainSurface,
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


# --- the facts that must be asked for, printed as they arrive ---------------------------------------------------------


async def show_facts(host: Host, say: Say) -> None:
    """Ask the server and the machine, and print a line about each."""
    async with anyio.create_task_group() as group:
        group.start_soon(_show_sandbox, host, say)
        try:
            text, kind = await _server(host)
        except LmagentError as failure:
            text, kind = failure.message, "warning"
        say(one_line(text, 300), kind)


async def _server(host: Host) -> tuple[str, str]:
    if host.replay is not None:
        return "the model's side is played from a cassette", "quiet"
    wanted = host.agent.model
    facts = await host.served.facts(wanted)
    url = shown(server_root(host.settings.endpoint))
    name = f"{facts.label} at {authority(url)}" if facts.label else url
    if not facts.reached:
        return f"{name} does not answer: lmagent doctor says what does", "warning"
    window = host.settings.context_window or await host.served.window(wanted)
    tokens = f"{window:,} tokens" if window else f"window unknown, {host.settings.window(None).tokens:,} tokens assumed"
    model = wanted or (facts.model.id if facts.model is not None else "")
    if not model:
        count = len(facts.models)
        model = f"none of {count} models loaded, /model picks one" if count else "no model loaded"
    return f"{name} answers · {model} · {tokens}", "quiet"


async def _show_sandbox(host: Host, say: Say) -> None:
    mode = f"mode {host.settings.permission_mode}"
    if host.settings.sandbox == "off":
        say(f"{mode} · SANDBOX IS OFF: commands run unconfined, with everything you may do", "warning")
        return
    expected, missing = await host.registry.confined.outlook()
    if expected:
        say(f"{mode} · sandbox {expected}", "quiet")
    else:
        say(f"{mode} · no sandbox, so no command runs: {missing}", "warning")


def _bell(host: Host) -> Callable[[], None]:
    """Return a function that rings the bell, if there is a terminal and the settings allow it."""

    def ring() -> None:
        sys.stdout.write("\a")
        sys.stdout.flush()

    return ring if host.settings.notify_bell and sys.stdout.isatty() else lambda: None


def _theme(host: Host) -> str:
    """Return the theme of the settings; NO_COLOR removes the colours and nothing else."""
    return "none" if host.settings.no_color else resolved_theme(host.settings.theme, os.environ)


def _history(host: Host) -> Path | None:
    """Return the file of the input history; None if it cannot be written."""
    path = host.settings.agent_data_dir / "history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return None
    return path
