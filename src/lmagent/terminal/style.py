"""Style: the look of finished pieces, plain or with Markdown laid out and colours."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

_COLORS = {"ok": "32", "added": "32", "fault": "31", "warning": "33", "user": "1;36"}
_LOOKS = {"user": "1", "quiet": "2", "output": "2"}

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_WORDS = re.compile(r"\s*\S+|\s+$")


class TextStyle(Protocol):
    """Formats finished pieces. Each method returns text with its line end, ready for the terminal."""

    def markdown(self, text: str) -> str: ...

    def line(self, text: str, kind: str) -> str:
        """Format one line; `kind` is ok, fault, warning, quiet, user, plain, added or output, cut to one row."""
        ...


class PlainStyle:
    """Leaves text unchanged: for screen readers and dumb terminals."""

    def markdown(self, text: str) -> str:
        return f"{text}\n"

    def line(self, text: str, kind: str) -> str:
        return f"{text}\n"


class RichStyle:
    """Colours, and Markdown as a terminal shows it.

    Args:
        width: asks for the terminal's width in columns, at each piece, since windows are resized.
        color: colours may be used; bold and faint text remain without them.
    """

    def __init__(self, width: Callable[[], int], *, color: bool = True) -> None:
        self._width = width
        self._codes = _LOOKS | _COLORS if color else _LOOKS
        self._color = color

    def markdown(self, text: str) -> str:
        """Lay the block out for the width of the terminal, without blank lines around it."""
        from io import StringIO

        from rich.console import Console
        from rich.markdown import Markdown

        out = StringIO()
        console = Console(
            file=out, force_terminal=True, width=max(20, self._width()), highlight=False, no_color=not self._color
        )
        console.print(Markdown(text, code_theme="ansi_dark"))
        rows = out.getvalue().split("\n")
        shown = [number for number, row in enumerate(rows) if _ESCAPES.sub("", row).strip()]
        return "\n".join([*rows[shown[0] : shown[-1] + 1], ""]) if shown else ""

    def line(self, text: str, kind: str) -> str:
        """Format the text in the look of its kind, broken between words."""
        rows = [clipped(text, self._width())] if kind == "output" else wrapped(text, self._width())
        code = self._codes.get(kind)
        return "".join(f"\x1b[{code}m{row}\x1b[0m\n" if code else f"{row}\n" for row in rows)


def clipped(text: str, width: int) -> str:
    """Cut the text to one row of a terminal, with an ellipsis if something is missing."""
    from rich.cells import cell_len, set_cell_size  # knows which characters take two columns

    room = max(2, width - 1)  # a full last column would wrap on some terminals
    return text if cell_len(text) <= room else f"{set_cell_size(text, room - 1).rstrip()}…"


def rows_of(text: str, width: int) -> int:
    """Return how many rows of a terminal a line takes that the terminal breaks wherever it ends."""
    from rich.cells import cell_len

    return max(1, -(-cell_len(text) // max(1, width)))


def fitted(row: str, name: str, width: int) -> str:
    """Return a row with `name` in the place of `{}`, its middle left out if the row would not fit the terminal.

    A name keeps its beginning and its end: models of one family, and folders of one home, differ there.
    """
    from rich.cells import cell_len, set_cell_size

    room = max(12, width - 1 - cell_len(row.replace("{}", "")))
    if cell_len(name) > room:
        end = set_cell_size(name[::-1], room // 2).strip()[::-1]
        name = f"{set_cell_size(name, room - 1 - room // 2).rstrip()}…{end}"
    return row.replace("{}", name)


def wrapped(text: str, width: int) -> list[str]:
    """Break a line into rows of the terminal, between words; later rows are indented like the first.

    Only a word that is longer than a row is broken itself.
    """
    from rich.cells import cell_len, chop_cells

    room = max(10, width - 1)
    if cell_len(text) <= room:
        return [text]
    indent = text[: len(text) - len(text.lstrip())]
    indent = indent if len(indent) <= room // 2 else ""
    rows, row = list[str](), ""
    for word in _WORDS.findall(text):
        if cell_len(row + word) <= room:
            row += word
            continue
        if row.strip():
            rows.append(row)
            word = indent + word.lstrip()
        *whole, row = chop_cells(word, room) if cell_len(word) > room else [word]
        rows += whole
    return [*rows, row] if row.strip() else rows
