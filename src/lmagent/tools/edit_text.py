"""Lines with their own ends, and the frame of a file that no edit changes: line ends, byte order mark, last newline."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from msgspec import Struct

BOM = "\ufeff"


class Document(Struct, frozen=True):
    """A text as lines; `lines[i] + ends[i]` joined over all lines is `text`. Only a last line can have the end ''.

    A carriage return on its own ends a line only where the text has no line feed at all (the old Mac style).
    """

    text: str
    lines: list[str]
    ends: list[str]

    @property
    def old_mac(self) -> bool:
        """Whether lines end with a carriage return alone."""
        return "\r" in self.text and "\n" not in self.text

    def offsets(self) -> list[int]:
        """Where each line starts in `text`, and the length of `text` behind them."""
        sizes = (len(line) + len(end) for line, end in zip(self.lines, self.ends, strict=True))
        return list(accumulate(sizes, initial=0))


class Splice(Struct, frozen=True):
    """`text[start:stop]` becomes `new`."""

    start: int
    stop: int
    new: str


def document(text: str) -> Document:
    """`text` (without its byte order mark) as lines."""
    lines, ends = split_lines(text)
    return Document(text, lines, ends)


def split_lines(text: str) -> tuple[list[str], list[str]]:
    """The lines of `text` without their ends, and their ends."""
    mark = "\r" if "\r" in text and "\n" not in text else "\n"
    lines = text.split(mark)
    ends = [mark] * (len(lines) - 1) + [""]
    if lines[-1] == "":
        lines.pop()
        ends.pop()
    if mark == "\n" and "\r\n" in text:
        for row, line in enumerate(lines):
            if ends[row] and line.endswith("\r"):
                lines[row] = line[:-1]
                ends[row] = "\r\n"
    return lines, ends


def to_lf(text: str, *, old_mac: bool = False) -> str:
    """`text` with every line end as a line feed."""
    text = text.replace("\r\n", "\n")
    return text.replace("\r", "\n") if old_mac else text


def block_lines(text: str, *, old_mac: bool = False) -> tuple[list[str], bool]:
    """The lines of a search or a replacement, and whether its last line is closed by a line end.

    A last piece of nothing but blanks is the start of the following line, copied along: it is left out.
    """
    lines = to_lf(text, old_mac=old_mac).split("\n")
    if len(lines) > 1 and not lines[-1].strip():
        return lines[:-1], True
    return ([], True) if lines == [""] else (lines, False)


def end_near(document: Document, first: int, stop: int) -> str:
    """The line end that new text takes at rows `first` to `stop` (exclusive): the region's, else its neighbours'."""
    for row in range(first, min(stop, len(document.ends))):
        if document.ends[row]:
            return document.ends[row]
    for row in range(min(first, len(document.ends)) - 1, -1, -1):
        if document.ends[row]:
            return document.ends[row]
    return "\n"


def splice(text: str, splices: Sequence[Splice]) -> str:
    """`text` with all splices applied; they must not overlap."""
    pieces: list[str] = []
    position = 0
    for one in sorted(splices, key=lambda each: each.start):
        pieces += [text[position : one.start], one.new]
        position = one.stop
    return "".join([*pieces, text[position:]])


def keep_frame(before: str, after: str) -> str:
    """`after` with the last newline and the byte order mark present exactly where `before` (its body) has them."""
    if after.startswith(BOM) and not before.startswith(BOM):
        after = after.lstrip(BOM)
    if not before or not after:
        return after
    mark = "\r" if "\r" in before and "\n" not in before else "\n"
    if before.endswith(mark) and not after.endswith(mark):
        return after + ("\r\n" if before.endswith("\r\n") else mark)
    if not before.endswith(mark):
        while after.endswith(mark):
            after = after.removesuffix(mark).removesuffix("\r")
    return after
