"""Rich style: Markdown laid out, colours, and rows that fit the terminal's width."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO

from rich import get_console
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from lmagent.terminal.style import PlainStyle

_COLORS = {"ok": "32", "added": "32", "fault": "31", "warning": "33", "user": "1;36"}
_LOOKS = {"user": "1", "quiet": "2", "output": "2"}

_SGR = re.compile(r"\x1b\[([0-9;]*)m")

_ON_LIGHT = {"40": "", "33": "35", "36": "34", "37": "30", **{str(90 + n): str(30 + n) for n in range(8)}}
"""Replacements for colours that are unreadable on a light background."""

TAIL_LINES = 8
"""Rows of the growing paragraph that are shown."""


class RichStyle(PlainStyle):
    """Colours, and Markdown as a terminal shows it. The theme `none` leaves bold and faint text."""

    def __init__(self, width: Callable[[], int], theme: str = "dark") -> None:
        self.theme = theme
        self._width = width  # asked for each piece, since windows are resized

    def markdown(self, text: str) -> str:
        """Lay the block out for the width of the terminal, without blank lines around it."""
        out = StringIO()
        width, plain = max(20, self._width()), self.theme == "none"
        console = Console(file=out, force_terminal=True, width=width, highlight=False, no_color=plain)
        console.print(Markdown(text, code_theme="ansi_dark"))
        rows = out.getvalue().split("\n")
        shown = [number for number, row in enumerate(rows) if _SGR.sub("", row).strip()]
        return self._themed("\n".join([*rows[shown[0] : shown[-1] + 1], ""])) if shown else ""

    def line(self, text: str, kind: str) -> str:
        rows = [clipped(text, self._width())] if kind == "output" else wrapped(text, self._width())
        code = (_LOOKS if self.theme == "none" else _LOOKS | _COLORS).get(kind)
        return "".join(self._themed(f"\x1b[{code}m{row}\x1b[0m\n") if code else f"{row}\n" for row in rows)

    def _themed(self, text: str) -> str:
        return _SGR.sub(_on_light, text) if self.theme == "light" else text


def clipped(text: str, width: int) -> str:
    """Cut the text to one row of a terminal, with an ellipsis if something is missing."""
    room = max(2, width - 1)  # a full last column would wrap on some terminals
    return text if cell_len(text) <= room else f"{set_cell_size(text, room - 1).rstrip()}…"


def wrapped(text: str, width: int) -> list[str]:
    """Break a line into rows of the terminal, between words; later rows are indented like the first."""
    room = max(10, width - 1)
    if cell_len(text) <= room:
        return [text]
    indent = text[: len(text) - len(text.lstrip())]
    indent = indent if len(indent) <= room // 2 else ""
    return [f"{indent}{row.plain.rstrip()}" for row in Text(text.strip()).wrap(get_console(), room - len(indent))]


def last_rows(text: str, width: int) -> list[str]:
    """Return the last rows that a growing text takes up on a terminal of this width."""
    return [row for line in text.rstrip("\n")[-4000:].splitlines() for row in wrapped(line, width)][-TAIL_LINES:]


def _on_light(found: re.Match[str]) -> str:
    codes = ";".join(filter(None, (_ON_LIGHT.get(code, code) for code in found[1].split(";"))))
    return f"\x1b[{codes}m" if codes else ""
