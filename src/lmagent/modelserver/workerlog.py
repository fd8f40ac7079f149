"""Worker log: the file into which a model's worker writes, kept from growing without end.

The worker writes to the file itself, so that its last words are there however it or the server ends. A file that has
grown too long is copied and emptied, as logrotate's `copytruncate` does: the worker appends, and so goes on at the
beginning.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

LIMIT = 5 << 20
"""Bytes of a log file before it is rotated."""

KEPT = 3
"""Files that are kept, the one that is written to among them."""

TAIL = 64 << 10
"""Bytes at the end that are looked through for the reason of a failure."""


def log_path(folder: Path, name: str) -> Path:
    """The log file of a model.

    Args:
        folder: of all of them.
        name: the model's; what cannot stand in the name of a file is replaced.
    """
    plain = re.sub(r"[^\w.+-]", "_", name)[:80].lstrip(".")
    if plain != name:
        plain += "-" + hashlib.sha256(name.encode()).hexdigest()[:8]
    return folder / f"{plain}.log"


class WorkerLog:
    """The log of one worker.

    Args:
        path: the file.
        limit: bytes of it before it is rotated.
    """

    def __init__(self, path: Path, *, limit: int = LIMIT) -> None:
        self.path = path
        self._limit = limit
        self._start = 0

    def open(self) -> int:
        """A descriptor for the worker's standard error; whoever asked closes it. It can be read too.

        Raises:
            OSError: the file cannot be written.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.rotate()
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.write(descriptor, time.strftime("--- started %Y-%m-%d %H:%M:%S\n").encode())
        self._start = os.fstat(descriptor).st_size
        return descriptor

    def size(self) -> int:
        """Bytes of the file; 0 if it is gone."""
        with suppress(OSError):
            return self.path.stat().st_size
        return 0

    def tail(self) -> list[str]:
        """The last lines since the worker was started."""
        try:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                start = self._start if self._start <= size else 0
                file.seek(max(start, size - TAIL))
                return file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return []

    def rotate(self) -> None:
        """Begin anew if it has grown too long; the older ones are `.log.1`, `.log.2`."""
        if self.size() < self._limit:
            return
        older = [self.path.with_name(f"{self.path.name}.{number}") for number in range(1, KEPT)]
        with suppress(OSError):
            for to, source in zip(reversed(older), reversed(older[:-1]), strict=False):
                if source.exists():
                    source.replace(to)
            shutil.copyfile(self.path, older[0])
            os.truncate(self.path, 0)
            self._start = 0
