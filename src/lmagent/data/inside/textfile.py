"""Text files: the encoding is detected, and they are read in blocks of whole lines, in bounded memory."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator

from .values import DataError, TimeLimit

BLOCK = 1 << 20
"""Bytes that are read at once."""

LONGEST = 16 << 20
"""Characters of one line; a longer one is no line of a table."""

SAMPLE = 256 << 10
"""Bytes by which encoding and dialect are detected."""

_MARKS = (
    (codecs.BOM_UTF8, "utf-8", "UTF-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le", "UTF-32"),
    (codecs.BOM_UTF32_BE, "utf-32-be", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "UTF-16"),
)


class TextFile:
    """A text file; raises DataError for other files.

    Attributes:
        codec: of the encoding; `encoding` is its usual name.
        sample: the beginning of the text.
        is_whole: whether the sample is all of it.
        undecodable: bytes that were no text, up to now.
    """

    def __init__(self, path: str, limit: TimeLimit) -> None:
        self.path = path
        self.limit = limit
        with open(path, "rb") as file:
            head = file.read(SAMPLE)
            self.is_whole = len(head) < SAMPLE
        self.codec, self.encoding, self.mark = _encoding(head, whole=self.is_whole)
        decoder = codecs.getincrementaldecoder(self.codec)("replace")
        self.sample = decoder.decode(head[self.mark :], self.is_whole)
        if "\0" in self.sample:
            line = self.sample.count("\n", 0, self.sample.index("\0")) + 1
            raise DataError(f"it is no text: line {line} has a NUL byte. It is neither CSV nor JSON")
        # Line ends of old Macs; a file with both kinds has line feeds.
        self.is_old_mac = "\r" in self.sample and "\n" not in self.sample
        if self.is_old_mac:
            self.sample = self.sample.replace("\r", "\n")
        self.undecodable = 0

    def blocks(self) -> Iterator[str]:
        """Return the text in blocks that end at the end of a line."""
        codecs.register_error("lmagent", self._count)
        decoder = codecs.getincrementaldecoder(self.codec)("lmagent")
        self.undecodable, parts, length = 0, list[str](), 0
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self.mark)
            while True:
                self.limit.check()
                data = file.read(BLOCK)
                text = decoder.decode(data, not data)
                if self.is_old_mac:
                    text = text.replace("\r", "\n")
                cut = text.rfind("\n") + 1
                if cut:
                    yield "".join((*parts, text[:cut]))
                    parts, length = [text[cut:]], len(text) - cut
                else:
                    parts.append(text)
                    length += len(text)
                if length > LONGEST:
                    line = self._line_at(file.tell() - length)
                    raise DataError(f"line {line} is longer than {LONGEST >> 20} million characters: that is no table")
                if not data:
                    break
        if rest := "".join(parts):
            yield rest

    def _line_at(self, place: int) -> int:
        """Return the number of the line about this place; it is counted only when it is needed."""
        line = 1
        with open(self.path, "rb", buffering=0) as file:
            while (left := place - file.tell()) > 0 and (data := file.read(min(BLOCK, left))):
                line += data.count(b"\r" if self.is_old_mac else b"\n")
        return line

    def lines(self) -> Iterator[str]:
        """Return the lines with their ends; they end at a line feed and nowhere else."""
        for block in self.blocks():
            yield from io.StringIO(block, newline="\n")

    def remarks(self) -> list[str]:
        if not self.undecodable:
            return []
        return [f"{self.undecodable:,} bytes are not {self.encoding} and are shown as \ufffd"]

    def _count(self, error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeDecodeError):
            raise error
        self.undecodable += error.end - error.start
        return "\ufffd", error.end


def _encoding(head: bytes, *, whole: bool) -> tuple[str, str, int]:
    """Return the codec of a file, its usual name, and the length of the mark at the file's beginning."""
    for mark, codec, name in _MARKS:
        if head.startswith(mark):
            return codec, name, len(mark)
    even, odd = head[0:4096:2].count(0), head[1:4096:2].count(0)
    if max(even, odd) > len(head[:4096]) // 5 and min(even, odd) == 0:  # Latin text in UTF-16 without a mark
        return ("utf-16-le" if odd else "utf-16-be"), "UTF-16", 0
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, whole)
    except UnicodeDecodeError:
        try:
            head.decode("cp1252")
        except UnicodeDecodeError:
            return "latin-1", "Latin-1", 0
        return "cp1252", "Windows-1252", 0
    return "utf-8", "UTF-8", 0
