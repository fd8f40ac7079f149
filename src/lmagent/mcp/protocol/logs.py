"""Logs: the output of servers, in `mcp/logs/NAME-KEY.log` of the user's data folder, each of bounded size."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

CAP = 1_000_000
"""Bytes of a file; then it becomes the old one (`.1`), and the one before that is deleted."""

_LINE = 2000


class ServerLog:
    """The log of one server. A full disk or a folder that cannot be written loses lines, and stops nothing."""

    def __init__(self, path: Path, redact: Callable[[str], str] = str) -> None:
        self._path = path
        self.redact = redact

    def write(self, kind: str, text: str) -> None:
        """Append lines; `kind` says where they come from: `stderr`, `stdout`, `server`, `lmagent`."""
        text = self.redact(text)
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        lines = "".join(f"{stamp} {kind}: {line[:_LINE]}\n" for line in text.splitlines() if line.strip())
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(lines.encode("utf-8", "replace"))
                size = file.tell()
            if size > CAP:
                os.replace(self._path, self._path.with_suffix(".log.1"))
        except OSError:
            pass

    def tail(self, lines: int) -> tuple[str, ...]:
        """Return the last lines, the newest last."""
        found: list[str] = []
        for path in (self._path, self._path.with_suffix(".log.1")):
            try:
                text = path.read_bytes()[-2 * CAP :].decode("utf-8", "replace")
            except OSError:
                continue
            found = [*text.splitlines(), *found]
            if len(found) >= lines:
                break
        return tuple(found[-lines:]) if lines > 0 else ()


def log_of(data: Path, workspace: Path, name: str, redact: Callable[[str], str] = str) -> ServerLog:
    """Return the log of a server of a workspace."""
    file = f"{re.sub(r'[^A-Za-z0-9-]', '_', name)[:40]}-{digest(workspace, name)}.log"
    return ServerLog(data / "mcp" / "logs" / file, redact)


def digest(*parts: object) -> str:
    """Return the part of a file's name that tells what it belongs to."""
    text = "\0".join(map(str, parts))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
