"""The real program on a pseudo-terminal: type, and read what a person would see."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from fcntl import ioctl
from pathlib import Path
from typing import Self

from testkit.starting import take_terminal

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")

ROWS = 30


class Terminal:
    """One run of the REPL; without a `base_url`, the bare command, as somebody starts it who has configured nothing."""

    def __init__(
        self, workspace: Path, base_url: str = "", *arguments: str, columns: int = 100, **environ: str
    ) -> None:
        self.screen = ""
        self._shown = b""
        self._columns = columns
        self._master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("NO_COLOR", "XDG", "LLM"))},
            "HOME": str(workspace.parent),
            "TERM": "xterm-256color",
            "LLM_MODEL": "test-model",
            **environ,
        }
        told = ["chat", "-w", str(workspace), "--base-url", base_url] if base_url else []
        self._arguments = [*told, *arguments]
        command = [sys.executable, "-m", "lmagent", *self._arguments]
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            cwd=workspace,
            start_new_session=True,
            preexec_fn=take_terminal,  # Ctrl+C in cooked mode is a signal then, not a key
        )
        os.close(slave)

    def __enter__(self) -> Self:
        self.wait_for("> " if "--base-url" in self._arguments else "brackets")
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._master)

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def enter(self, text: str) -> None:
        """Type a line and press Enter."""
        self.type(text + "\r")

    def wait_for(self, text: str, seconds: float = 15.0, *, times: int = 1) -> str:
        """Read until `text` has been shown `times` times; returns all that was shown, escapes taken out."""
        deadline = time.monotonic() + seconds
        while self.screen.count(text) < times:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} was not shown; what was:\n{self.screen}"
            self._read(left)
        return self.screen

    def rows(self) -> list[str]:
        """The rows that the person can see or scroll back to now, without blanks at their ends."""
        import pyte  # only what looks at the screen as a whole needs an emulator

        screen = pyte.HistoryScreen(self._columns, ROWS, history=2000)
        pyte.ByteStream(screen).feed(self._shown)
        above = ["".join(row[column].data for column in range(self._columns)) for row in screen.history.top]
        return [row.rstrip() for row in (*above, *screen.display)]

    def sees(self, wanted: Callable[[list[str]], bool], seconds: float = 15.0) -> list[str]:
        """Read until the rows are as wanted; returns them."""
        deadline = time.monotonic() + seconds
        while not wanted(rows := self.rows()):
            left = deadline - time.monotonic()
            assert left > 0, "the screen never came to look as it should:\n" + "\n".join(rows)
            self._read(left)
        return rows

    @property
    def shown(self) -> str:
        """All that was written to the terminal, escapes and all."""
        return self._shown.decode("utf-8", "replace")

    def ended(self, seconds: float = 10.0) -> int:
        """Wait for the end; returns the exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read(0.05)
        return self.process.wait(timeout=1)

    def _read(self, seconds: float) -> None:
        ready, _, _ = select.select([self._master], [], [], min(seconds, 0.2))
        if ready:
            try:
                shown = os.read(self._master, 65536)
            except OSError:
                return
            if b"\x1b[6n" in shown:  # where is the cursor? a terminal answers
                os.write(self._master, b"\x1b[1;1R")
            self._shown += shown
            self.screen += _ESCAPES.sub("", shown.decode("utf-8", "replace"))
