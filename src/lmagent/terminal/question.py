"""Question: questions to the user on a terminal, the typed line, and the decision that it means."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import anyio

from lmagent.core.commands import Approve
from lmagent.core.lines import grant_in_a_line
from lmagent.tools.sanitize import visible

PLAN = "Approve the plan? y yes · e edit · n no · or say what should be otherwise: "


def approval(what: str, grant: str) -> str:
    """Ask whether a call may be carried out; `grant` are the rules of "always", if there are any.

    A name with a space is no tool's: a server asks during its call, and takes a yes, a no or values.
    """
    if " " in what:
        return f"Your answer to {what}? y yes · n no · or type the values: "
    always = f" · a always ({visible(grant_in_a_line(grant))})" if grant else ""
    return f"Allow {what}? y yes · n no{always} · or say why not: "


def decision(approval: str, grant: str, answer: str, by: str) -> Approve:
    """Return the decision: anything but a clear yes is a no, and other text goes to the model."""
    word = answer.strip().lower()
    always = word in ("a", "always") and bool(grant)
    feedback = "" if word in ("", "y", "yes", "n", "no", "a", "always") else answer.strip()
    scope = "session" if always else "once"
    return Approve(approval=approval, approved=always or word in ("y", "yes"), scope=scope, feedback=feedback, by=by)


class TypedLines:
    """Reads lines without a thread, which would keep the program from ending while it waits for one."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._read = bytearray()

    async def line(self) -> str:
        """Return the next line with its end; an empty text at the end of the file."""
        while b"\n" not in self._read and (piece := await self._piece()):
            self._read += piece
        line, end, rest = self._read.partition(b"\n")
        self._read = rest
        return (line + end).decode("utf-8", "replace")

    async def _piece(self) -> bytes:
        if sys.platform == "win32":
            return await anyio.to_thread.run_sync(os.read, self._descriptor, 65536, abandon_on_cancel=True)
        with suppress(PermissionError):  # a regular file never blocks
            await anyio.wait_readable(self._descriptor)
        try:
            return os.read(self._descriptor, 65536)
        except OSError:  # the terminal is gone
            return b""
