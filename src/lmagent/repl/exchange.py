"""Exchange: the part of a resumed session that the user sees again: the last question and its answer."""

from __future__ import annotations

from lmagent.app.attaching import without_attachments
from lmagent.core import events as ev
from lmagent.core.view import is_filler
from lmagent.terminal.render import Renderer

MOST = 40
"""Messages, calls and results of the exchange that are printed, besides the question."""


class LastExchange:
    def __init__(self) -> None:
        self._over = True
        self._events: list[tuple[ev.DurableEvent, str]] = []

    def add(self, event: ev.DurableEvent, work: str) -> None:
        """Add the next event, with the session's mode of work at that time."""
        if _question(event):
            self._events = [] if self._over else self._events
            self._over = False
        elif isinstance(event, ev.InputWithdrawn):
            self._events = [(old, then) for old, then in self._events if old.id != event.input]
        elif isinstance(event, ev.TurnFinished) or (isinstance(event, ev.MessageAdded) and not event.turn):
            self._over = True  # a message outside of a turn was imported
        if _question(event) or _is_shown(event):
            self._events.append((event, work))

    def show(self, renderer: Renderer) -> None:
        first, rest = self._events[:1], self._events[1:]
        for event, work in (*first, *rest[-MOST:]):
            if len(rest) > MOST and event is rest[-MOST][0]:
                renderer.say(f"… {len(rest) - MOST} earlier steps", "quiet")
            renderer.words.planning = work == "plan"
            if question := _question(event):
                renderer.say(f"> {without_attachments(question)}", "user")
            else:
                renderer(event)
        renderer.running.clear()


def _question(event: ev.DurableEvent) -> str:
    """Return the user's message in it; empty for other events."""
    if isinstance(event, ev.InputReceived):
        return event.message.text
    if isinstance(event, ev.MessageAdded) and event.origin in ("input", "steer") and event.input is None:
        return event.message.text  # imported
    return ""


def _is_shown(event: ev.DurableEvent) -> bool:
    if isinstance(event, ev.MessageAdded):
        return event.message.role == "assistant" and not is_filler(event)
    return isinstance(event, ev.ToolStarted | ev.ToolFinished | ev.TurnFinished)
