"""Style: finished text, plain or as a terminal shows it (`rich_style`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TextIO

_LIGHT_BACKGROUNDS = frozenset({"7", "15"})


class PlainStyle:
    """Leaves text unchanged, for screen readers and dumb terminals. Each method returns text with its line end."""

    def markdown(self, text: str) -> str:
        return f"{text}\n"

    def line(self, text: str, kind: str) -> str:
        """Format one line; `kind` is ok, fault, warning, quiet, user, plain, added or output, cut to one row."""
        return f"{text}\n"


def style_of(stream: TextIO, *, color: bool) -> PlainStyle:
    """Choose the style of a stream: plain unless it is a terminal whose cursor can move."""
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return PlainStyle()
    from lmagent.terminal.rich_style import RichStyle  # slow to import, and a pipe needs none

    return RichStyle(lambda: columns(stream), "dark" if color else "none")


def columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def resolved_theme(theme: str, environ: Mapping[str, str]) -> str:
    """Return the theme that `auto` means: light if the terminal says so (COLORFGBG), else dark."""
    if theme == "auto":
        return "light" if environ.get("COLORFGBG", "").rpartition(";")[2] in _LIGHT_BACKGROUNDS else "dark"
    return theme
