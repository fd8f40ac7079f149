"""Screen: a single task on a terminal, shown as a conversation would be:

Markdown, colours, diffs, output of commands.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TextIO

from lmagent.core import events as ev
from lmagent.headless.life import ActivityLine, columns
from lmagent.headless.printer import Questions
from lmagent.terminal.render import Renderer
from lmagent.terminal.style import PlainStyle, RichStyle, TextStyle, wrapped

TAIL_LINES = 8
"""Rows of the growing paragraph that are shown."""


def style_of(stream: TextIO, *, color: bool) -> TextStyle:
    """Choose the style of a stream: plain unless it is a terminal whose cursor can move."""
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return PlainStyle()
    return RichStyle(lambda: columns(stream), color=color)


class ScreenPrinter:
    """Prints the answer to a terminal, and the actions to stderr, which may be another place.

    Args:
        color: whether colours may be used.
        answer: whether the model's text is shown.
        plans: whether a plan is shown when proposed; False if the question about it shows it.
        life: the activity line; None if stderr is not a terminal.
    """

    def __init__(self, *, color: bool, answer: bool, plans: Callable[[], bool], life: ActivityLine | None) -> None:
        self._out, self._err = sys.stdout, sys.stderr
        self._show_answer = answer
        self._plans = plans
        self._life = life
        self.questions = Questions(self._err, life)
        aside = (style_of(self._err, color=color), self.questions.print)
        style = style_of(self._out, color=color)
        self._renderer = Renderer(style, self._print, aside=aside, terminal=life is not None)
        self.words = self._renderer.words
        if life is not None:
            life.above = self._growing

    def __call__(self, event: ev.Event) -> None:
        inner = ev.innermost(event)[1]
        if isinstance(inner, ev.ApprovalRequested):  # the question shows its details
            self._renderer.previewed |= {inner.call_id} if inner.preview else set()
        elif not isinstance(event, ev.PlanProposed) or self._plans():
            self._renderer(event)
        if self._life is not None:
            self._life.see(event)

    def close(self) -> None: ...

    def _growing(self) -> list[str]:
        rows = self._renderer.live_lines()
        tail = self._renderer.tail.rstrip("\n") if self._show_answer else ""
        width = columns(self._err)
        return rows + [row for line in tail[-4000:].splitlines() for row in wrapped(line, width)][-TAIL_LINES:]

    def _print(self, text: str) -> None:
        if not self._show_answer:
            return
        if self._life is not None:
            self._life.erase()
        self._out.write(text)
        self._out.flush()
