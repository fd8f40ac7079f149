"""Undelivered: messages sent while the agent works, shown once, where they take effect."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from lmagent.core import events as ev
from lmagent.terminal.render import Renderer
from lmagent.tools.sanitize import one_line


class Undelivered:
    """The messages that the screen removed when they were sent."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._sending = ""
        self._waiting: dict[str, tuple[str, str]] = {}

    def lines(self) -> list[str]:
        return [
            f"{'queued' if delivery == 'queue' else 'steering'}: {one_line(text)}"
            for delivery, text in self._waiting.values()
        ]

    @contextmanager
    def sending(self, text: str) -> Generator[None]:
        """Expect the input that is received meanwhile to have this text; an empty one is on the screen already."""
        self._sending = text
        try:
            yield
        finally:
            self._sending = ""

    def show(self, text: str) -> None:
        self._renderer.say("> " + text.rstrip().replace("\n", "\n  "), "user")

    def __call__(self, event: ev.Event) -> None:
        match event:
            case ev.InputReceived() if self._sending:
                self._waiting[event.id] = (event.delivery, self._sending)
            case ev.InputWithdrawn():
                self._waiting.pop(event.input, None)
            case ev.MessageAdded(input=str() as sent) if sent in self._waiting:
                self.show(self._waiting.pop(sent)[1])
            case _:
                pass
