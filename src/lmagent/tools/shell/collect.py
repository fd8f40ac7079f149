"""Collects the output of a command, however long: a head and a tail in memory, the whole in a file up to a cap.

Progress bars that draw over their line are reduced to their last state, and terminal escapes are taken out: a model
pays for every byte, and a terminal obeys them.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from lmagent.core.errors import StoreError
from lmagent.engine.context.intake import ends
from lmagent.tools.page import BYTES
from lmagent.tools.sanitize import printable

IN_MEMORY = 1 << 20
"""Bytes up to which the whole output stays in memory."""

SPILL_CAP = 64 << 20
"""Bytes of output that are kept; further output is read and thrown away."""

_ENDS = BYTES
"""Bytes that are kept in memory of the beginning and of the end of an output in a file: the most that is shown."""

_STORED_WITHIN = 3600.0  # seconds; an output that is closed and still not stored is left over from a dead process
_SHOW_EVERY = 0.05
_SHOW_AT_MOST = 4096


class Collector:
    """Takes pieces of output as they come, and shows them by `emit`, at most 20 times a second.

    `file` has the whole, in `folder`, once it is too long for memory; `changed_at` is the time of the last piece.
    """

    def __init__(self, folder: Path, emit: Callable[[str], None]) -> None:
        self.total = 0
        self.file: Path | None = None
        self.changed_at = time.monotonic()
        self._folder = folder
        self._emit = emit
        self._memory = bytearray()
        self._head = b""
        self._tail = b""
        self._line_feeds = 0
        self._descriptor = -1
        self._kept = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""
        self._shown_at = 0.0

    def feed(self, piece: bytes) -> None:
        """Take a piece; raises StoreError on a full disk."""
        self.changed_at = time.monotonic()
        self.total += len(piece)
        self._line_feeds += piece.count(b"\n")
        self._show(piece)
        if self._descriptor < 0 and len(self._memory) + len(piece) <= IN_MEMORY:
            self._memory += piece
            return
        if self._descriptor < 0:
            self._spill()
        self._write(piece)
        self._tail = (self._tail + piece)[-_ENDS:]

    def text(self, size: int = BYTES) -> str:
        """Return the output; its beginning and end in `size` bytes if it is kept in a file."""
        if self._descriptor < 0 and self.file is None:
            return clean(bytes(self._memory))
        lines = self._line_feeds + (not self._tail.endswith(b"\n"))
        head, tail, gap, _ = ends(self._head, self._tail, (self.total, lines), max(0, size - 80))
        return f"{clean(head.encode())}\n[… {gap} left out …]\n{clean(tail.encode())}"

    def tail(self, size: int) -> str:
        return clean((self._tail if self.file else bytes(self._memory[-size:]))[-size:])

    def read(self, at: int, size: int) -> tuple[int, bytes]:
        """Return output after `at` bytes, or after the first ones that are still kept, and where it begins."""
        if self.file is None:
            return at, bytes(self._memory[at : at + size])
        if at < self._kept:
            with self.file.open("rb") as file:
                file.seek(at)
                return at, file.read(size)
        begin = max(at, self.total - len(self._tail))
        return begin, self._tail[begin - (self.total - len(self._tail)) :][:size]

    def close(self) -> None:
        """Show the pending text, and close the file."""
        self._flush()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def discard(self) -> None:
        self.close()
        if self.file is not None:
            self.file.unlink(missing_ok=True)

    def _spill(self) -> None:
        import tempfile  # only a long output pays for it

        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _remove_leftovers(self._folder)
            self._descriptor, name = tempfile.mkstemp(prefix="output-", dir=self._folder)
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)
        except OSError as error:
            raise StoreError(f"a long output cannot be kept: {error.strerror}", fix="make room on the disk") from error
        self.file = Path(name)
        self._head = bytes(self._memory[:_ENDS])
        self._tail = bytes(self._memory[-_ENDS:])
        self._write(bytes(self._memory))
        self._memory.clear()

    def _write(self, piece: bytes) -> None:
        room = SPILL_CAP - self._kept
        if room <= 0:
            return
        try:
            self._kept += os.write(self._descriptor, piece[:room])
        except OSError as error:
            raise StoreError(f"a long output cannot be kept: {error.strerror}", fix="make room on the disk") from error

    def _show(self, piece: bytes) -> None:
        self._pending = (self._pending + self._decoder.decode(piece[-_SHOW_AT_MOST:]))[-_SHOW_AT_MOST:]
        if self.changed_at - self._shown_at >= _SHOW_EVERY:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._shown_at = self.changed_at
            text, self._pending = self._pending, ""
            self._emit(printable(text))


def clean(raw: bytes) -> str:
    """Return output as text: overdrawn lines in their last state, no escapes, undecodable bytes replaced."""
    lines = raw.decode("utf-8", "replace").split("\n")
    return printable("\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines))


def _remove_leftovers(folder: Path) -> None:
    """Remove outputs of processes that died before they stored them: files that no process has open for writing."""
    for path in folder.glob("output-*"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if time.time() - path.stat().st_mtime > _STORED_WITHIN:
                path.unlink()
