"""A window of a file's lines, with the hash of the whole file and the number of all its lines.

Lines end at a line feed and nowhere else, as editors, compilers and the edit tool count them. Files up to a limit are
read at once; bigger ones flow through in one pass that hashes, counts and keeps only the window.
"""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from lmagent.core.errors import ToolError
from lmagent.core.plurals import plural
from lmagent.tools.textfile import Encoding, decode, sniff

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

AT_ONCE = 4 << 20
"""Bytes up to which a file is read at once."""

WINDOW = 2000
"""Lines that are kept for a page; a page of bytes never holds more."""

KEPT = 8192
"""Characters of a line that are kept; nothing longer is ever shown."""


class TextLine(Struct, frozen=True):
    """A line without its end; `length` counts its characters, of which `text` may have only the first ones."""

    text: str
    length: int


class LineWindow(Struct, frozen=True):
    """Some lines of a file.

    Attributes:
        first: number of the first line, from 1; 0 in an empty file.
        total: lines of the file.
        sha256: of the whole file.
        crlf: whether its first line ends in CR LF.
        ended: whether its last line has an end.
    """

    first: int
    lines: list[TextLine]
    total: int
    sha256: str
    encoding: Encoding
    crlf: bool
    ended: bool


def window(descriptor: int, size: int, head: bytes, offset: int, count: int) -> LineWindow | None:
    """Return lines of an open file from `offset` on; None if it turns out not to be text.

    Args:
        descriptor: the file, at its start.
        head: its first bytes, which decide its encoding.
        offset: first line, from 1; negative counts from the end.
        count: at most `WINDOW`.

    Raises:
        ToolError: the offset is after the end.
    """
    if size <= AT_ONCE:
        return _at_once(descriptor, offset, count)
    return _flowing(descriptor, sniff(head, whole=size <= len(head)), offset, count)


def _at_once(descriptor: int, offset: int, count: int) -> LineWindow | None:
    with open(os.dup(descriptor), "rb") as file:
        data = file.read()
    decoded = decode(data)
    if decoded is None:
        return None
    text, encoding = decoded
    lines = text.split("\n")
    ended = not lines[-1]
    if ended:
        lines.pop()
    first = _first(offset, len(lines))
    kept = [TextLine(line[:KEPT], len(line)) for line in lines[max(0, first - 1) : first - 1 + count]]
    import hashlib  # it loads OpenSSL: not before the first request

    digest = hashlib.sha256(data).hexdigest()
    crlf = bool(lines) and ended and lines[0].endswith("\r")
    return LineWindow(first, kept, len(lines), digest, encoding, crlf, ended)


def _flowing(descriptor: int, encoding: Encoding, offset: int, count: int) -> LineWindow:
    source = _Hashing(descriptor)
    codec = {"utf-8": "utf-8-sig"}.get(encoding.codec, encoding.codec)
    reader = io.TextIOWrapper(io.BufferedReader(source, 1 << 20), codec, "replace", newline="\n")
    lines = _Counted(reader)
    if offset < 0:
        kept = list(deque(lines, maxlen=min(-offset, WINDOW)))
        first = lines.total - len(kept) + 1
        kept = kept[:count]
    else:
        first = max(1, offset)
        for _ in islice(lines, first - 1):
            pass
        kept = list(islice(lines, count))
        for _ in lines:
            pass
        _first(first, lines.total)
    if encoding.mark and first == 1 and kept:
        start = kept[0].text.removeprefix("\ufeff")
        kept[0] = TextLine(start, kept[0].length - len(kept[0].text) + len(start))
    return LineWindow(first, kept, lines.total, source.digest, encoding, lines.crlf, lines.ended)


def _first(offset: int, total: int) -> int:
    if total == 0:
        return 0
    if offset < 0:
        return max(1, total + offset + 1)
    if offset > total:
        raise ToolError(
            f"offset {offset} is after the end: the file has {plural(total, 'line')}. Use an offset from 1 to {total}.",
            data={"code": "offset"},
        )
    return max(1, offset)


class _Hashing(io.RawIOBase):
    """Hashes an open file while it is read, so that hash and shown lines are of the same bytes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        import hashlib

        self._hash = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        count = os.readv(self._descriptor, [buffer])
        self._hash.update(memoryview(buffer)[:count])
        return count

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


class _Counted(Iterable[TextLine]):
    """The lines of a reader, with a count; only the beginning of a very long line is ever in memory."""

    def __init__(self, reader: io.TextIOWrapper) -> None:
        self.total = 0
        self.crlf = False
        self.ended = True
        self._lines = self._read(reader)

    def __iter__(self) -> Iterator[TextLine]:
        return self._lines

    def _read(self, reader: io.TextIOWrapper) -> Iterator[TextLine]:
        while piece := reader.readline(KEPT):
            start, length = piece, len(piece)
            while not piece.endswith("\n") and (piece := reader.readline(KEPT)):
                length += len(piece)
            self.total += 1
            self.ended = piece.endswith("\n")
            if self.total == 1:
                self.crlf = start.endswith("\r\n")
            yield TextLine(start.removesuffix("\n"), length - self.ended)
