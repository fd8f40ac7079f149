"""Surface: the terminal, as a conversation uses it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from lmagent.app.slash import Choice, SlashResult
from lmagent.terminal.render import Renderer


class Surface(Protocol):
    """A terminal, or lines in and lines out."""

    def changed(self) -> None: ...

    def ring(self) -> None:
        """Alert a user who is looking elsewhere."""
        ...

    async def choose(self, choices: Sequence[Choice]) -> str:
        """Let the user pick one; returns its line, or an empty one if none was picked now."""
        ...

    def lend(self) -> AbstractContextManager[None]:
        """Leave the terminal to another program; text written meanwhile appears afterwards."""
        ...

    def use_theme(self, theme: str) -> None: ...

    def clip(self, text: str) -> bool:
        """Ask the terminal to put a text on the clipboard; False if it is no terminal."""
        ...


def print_text(result: SlashResult, renderer: Renderer) -> None:
    if result.diff:
        renderer.diff(result.text)
        return
    for line in result.text.splitlines() if result.headed else filter(None, (result.text,)):
        renderer.say(line, "user" if result.headed and line.endswith(":") else "plain")
