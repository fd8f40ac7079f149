"""Surface: what a conversation asks of the terminal that it is shown in."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from lmagent.app.slash import Choice, SlashResult
from lmagent.terminal.render import Renderer


class Surface(Protocol):
    """A terminal, or lines in and lines out."""

    def changed(self) -> None:
        """Draw what changes anew, soon."""
        ...

    def ring(self) -> None:
        """Call the user, who looks elsewhere."""
        ...

    async def choose(self, choices: Sequence[Choice]) -> str:
        """Let the user pick one; returns its line, or an empty one if none was picked now."""
        ...

    def lend(self) -> AbstractContextManager[None]:
        """Leave the terminal to another program; what is shown meanwhile is shown afterwards."""
        ...

    def use_theme(self, theme: str) -> None:
        """Take other colours from now on."""
        ...

    def clip(self, text: str) -> bool:
        """Ask the terminal to put a text on the clipboard; False if it is no terminal."""
        ...


def print_text(result: SlashResult, renderer: Renderer) -> None:
    """Print the text of a command: a diff as one, headings as headings."""
    if result.diff:
        renderer.diff(result.text)
        return
    for line in result.text.splitlines() if result.headed else filter(None, (result.text,)):
        renderer.say(line, "user" if result.headed and line.endswith(":") else "plain")
