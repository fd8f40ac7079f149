"""Own commands: the user's commands with `!`, run beside the agent in the sandbox or in the user's own shell."""

from __future__ import annotations

import os
import subprocess
from codecs import getincrementaldecoder
from collections.abc import Callable
from pathlib import Path

import anyio

from lmagent.app.host import Host
from lmagent.core.sandbox import Exec, Stream
from lmagent.core.titles import ATTACHED
from lmagent.engine.session import Session
from lmagent.sandbox.process import Process
from lmagent.terminal.render import Renderer
from lmagent.tools.sanitize import one_line

MOST_OUTPUT = 8000
"""Characters of a command's output that the model sees."""

OUTSIDE = "Run it in your own shell, outside of the sandbox?"
"""The question before the first such command."""


class OwnCommands:
    """The commands of one user, one at a time. `changed`: called when there is something new to show."""

    def __init__(self, host: Host, renderer: Renderer, changed: Callable[[], None]) -> None:
        self._host = host
        self._renderer = renderer
        self._changed = changed
        self._told: list[str] = []
        self._waiting = 0
        self._turn = anyio.Lock()
        self._scope = anyio.CancelScope()
        self._explained = False

    @property
    def running(self) -> bool:
        """Whether a command runs, or waits for the one before it."""
        return self._waiting > 0

    def take_told(self) -> str:
        """Return the commands and outputs that the model has not seen yet, as attachments of a message."""
        told, self._told = self._told, []
        return "".join(told)

    def stop(self) -> None:
        self._scope.cancel()

    async def run(self, session: Session, command: str) -> None:
        """Run a command after the one before it; the model sees its output with the next input."""
        self._waiting += 1
        line = f"!{one_line(command, 60)}"
        latest = ""

        def show(text: str) -> None:
            nonlocal latest
            latest = (latest + text)[-MOST_OUTPUT:]
            last = one_line(latest.strip().rpartition("\n")[2])
            self._renderer.running[line] = f"{line}  {last}" if last else line
            self._changed()

        try:
            async with self._turn:
                self._explain()
                show("")
                with anyio.CancelScope() as self._scope:
                    latest = await self._output(session, command, show)
                if self._scope.cancelled_caught:
                    latest = f"{latest.rstrip()}\n[stopped]".lstrip()
                self._renderer.say(latest or "(no output)")
                self._told.append(f"{ATTACHED}the output of `{command}`]\n{latest[-MOST_OUTPUT:]}")
        finally:
            self._waiting -= 1
            self._renderer.running.pop(line, None)
            self._changed()

    async def _output(self, session: Session, command: str, show: Callable[[str], None]) -> str:
        if self._host.settings.own_shell:
            return await _run_streaming(command, self._host.workspace, show)
        return await self._host.run_for_person(session.state.session, command, show)

    def _explain(self) -> None:
        settings = self._host.settings
        if self._explained or settings.sandbox == "off" or settings.own_shell:
            return
        self._explained = True
        hosts = settings.sandbox_hosts
        network = f"network: only {', '.join(hosts)}" if hosts else "without network"
        self._renderer.say(f"(in the sandbox, {network}; !!COMMAND runs in your own shell)", "quiet")


async def _run_streaming(command: str, folder: Path, show: Callable[[str], None]) -> str:
    """Run a command without a terminal, passing its output to `show` piece by piece; returns the output.

    Cancelled, it ends the command with everything that the command started in its process group.
    """
    pieces = list[str]()
    decoder = getincrementaldecoder("utf-8")("replace")

    def take(_: Stream, data: bytes) -> None:
        pieces.append(decoder.decode(data))
        show(pieces[-1])

    argv = (_shell(), "-c", command)
    process = Process(argv, Exec(argv, timeout=None, merge=True), take, env=os.environ, cwd=folder)
    try:
        end = await process.wait()
    finally:
        process.kill()
    output = "".join(pieces).rstrip("\n")
    return f"{output}\n[exit code {end.code}]".lstrip() if end.code else output


async def run_in_terminal(command: str, folder: Path) -> int:
    """Run a command that has the terminal to itself; returns its exit status.

    Ctrl+C reaches it as a signal, which the surface that lends the terminal ignores.
    """
    process = subprocess.Popen((_shell(), "-c", command), cwd=folder)  # noqa: ASYNC220 - it starts at once
    return await anyio.to_thread.run_sync(process.wait, abandon_on_cancel=True)


def _shell() -> str:
    return os.environ.get("SHELL") or "/bin/sh"
