"""Printers: the events of a single task as text or as JSON lines."""

from __future__ import annotations

import sys
from functools import cached_property
from typing import TYPE_CHECKING, TextIO

from lmagent.core import events as ev

if TYPE_CHECKING:
    from lmagent.headless.life import ActivityLine
    from lmagent.terminal.render import Renderer

_OPENING = (ev.SessionCreated, ev.InputReceived, ev.TurnStarted, ev.MessageAdded, ev.StepStarted)
"""Events before the first request. They are held, so that the renderer is loaded while the server works on a reply."""


class JsonPrinter:
    """Prints every event verbatim, one JSON object a line, flushed."""

    def __call__(self, event: ev.Event) -> None:
        sys.stdout.buffer.write(ev.encode(event) + b"\n")
        sys.stdout.buffer.flush()


class Questions:
    """Questions to the user, on a terminal that also shows other output; they pause its activity line."""

    def __init__(self, err: TextIO, life: ActivityLine | None) -> None:
        self._err = err
        self._life = life
        self._question = ""

    def ask(self, details: str, question: str) -> None:
        """Show a question below its details. It stays the last thing on the screen until `answered`."""
        if self._life is not None:
            self._life.pause(True)
        self._question = question
        self._write(f"\n{details}\n{question}" if details else f"\n{question}")

    def answered(self, *, entered: bool) -> None:
        """Settle the question; `entered` when the Enter key has ended its line."""
        self._question = ""
        self._write("" if entered else "\n")
        if self._life is not None:
            self._life.pause(False)

    def print(self, text: str) -> None:
        """Print finished lines above the question, if one is open."""
        if self._life is not None:
            self._life.erase()
        self._write(f"\n{text}{self._question}" if self._question else text)

    def _write(self, text: str) -> None:
        self._err.write(text)
        self._err.flush()


class TaskPrinter:
    """Prints the answer to standard output, and the actions to standard error.

    Args:
        color: whether a terminal gets colours.
        answer: whether the model's text is shown.
        planning: whether the session is in plan mode.
        life: the activity line; None if standard error is not a terminal.
    """

    def __init__(self, *, color: bool, answer: bool, planning: bool, life: ActivityLine | None) -> None:
        self._color = color
        self._answer = answer
        self._planning = planning
        self._life = life
        self._held: list[ev.Event] | None = [] if life is None else None
        self.questions = Questions(sys.stderr, life)
        if life is not None:
            life.above = self._growing

    def __call__(self, event: ev.Event) -> None:
        if self._held is not None:
            self._held.append(event)
            if isinstance(event, _OPENING):
                return
        held, self._held = self._held or [event], None
        for each in held:
            self._show(each)

    def _show(self, event: ev.Event) -> None:
        inner = ev.innermost(event)[1]
        if isinstance(inner, ev.ApprovalRequested):  # the question shows its details
            self._renderer.previewed |= {inner.call_id} if inner.preview else set()
        else:
            self._renderer(event)
        if self._life is not None:
            self._life.see(event)

    @cached_property
    def _renderer(self) -> Renderer:
        from lmagent.terminal.render import Renderer
        from lmagent.terminal.style import style_of

        style = style_of(sys.stdout, color=self._color)
        aside = style_of(sys.stderr, color=self._color), self.questions.print
        watched, verbatim = self._life is not None, not sys.stdout.isatty()
        renderer = Renderer(style, self._print, aside=aside, terminal=watched, verbatim=verbatim)
        renderer.words.planning = self._planning
        return renderer

    def _growing(self) -> list[str]:
        from lmagent.terminal.rich_style import last_rows
        from lmagent.terminal.style import columns

        tail = last_rows(self._renderer.tail, columns(sys.stderr)) if self._answer else []
        return self._renderer.live_lines() + tail

    def _print(self, text: str) -> None:
        if self._answer:
            if self._life is not None:
                self._life.erase()
            sys.stdout.write(text)
            sys.stdout.flush()
