"""Own shell: commands that run as the user, outside of the sandbox, because the user typed them so."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from codecs import getincrementaldecoder
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio

INTERACTIVE = frozenset(
    "emacs htop ipython irb less man more mysql nano nvim psql screen ssh su sudo tmux top vi vim watch".split()  # noqa: SIM905
)
"""Programs that are of no use without a terminal."""

PROMPTS = frozenset("bash bpython fish ghci lua node python python3 sh sqlite3 zsh".split())  # noqa: SIM905
"""Programs that talk to the user unless they get something else to do."""

_WORD = re.compile(r"\s*(?:\w+=\S*\s+)*([\w.+-]+)(.*)", re.DOTALL)


def terminal_program(command: str) -> str:
    """Return the program of a command that cannot work without a terminal; empty if none is known."""
    found = _WORD.fullmatch(command)
    if found is None:
        return ""
    name, rest = found[1], found[2].strip()
    return name if name in INTERACTIVE or (name in PROMPTS and not rest) else ""


def shell() -> str:
    return os.environ.get("SHELL") or "/bin/sh"


async def run_streaming(command: str, folder: Path, show: Callable[[str], None]) -> str:
    """Run a command without a terminal, passing its output to `show` piece by piece; returns the output.

    Cancelled, it ends the command with everything that the command started in its process group.
    """
    pieces = list[str]()
    decoder = getincrementaldecoder("utf-8")("replace")
    async with await anyio.open_process(
        (shell(), "-c", command),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            async for data in process.stdout:
                pieces.append(decoder.decode(data))
                show(pieces[-1])
            code = await process.wait()
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    output = "".join(pieces).rstrip("\n")
    return f"{output}\n[exit code {code}]".lstrip() if code else output


async def run_in_terminal(command: str, folder: Path) -> int:
    """Run a command that has the terminal to itself; returns its exit status.

    Ctrl+C reaches it as a signal, which the surface that lends the terminal ignores.
    """
    process = subprocess.Popen((shell(), "-c", command), cwd=folder)  # noqa: ASYNC220 - it starts at once
    return await anyio.to_thread.run_sync(process.wait, abandon_on_cancel=True)
