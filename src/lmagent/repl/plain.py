"""Plain: lines in, lines out, nothing redrawn. For screen readers and dumb terminals."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from lmagent.app.slash import Choice
from lmagent.repl.conversation import ReplConversation
from lmagent.terminal.question import TypedLines
from lmagent.terminal.style import PlainStyle


class PlainSurface:
    def __init__(self, bell: Callable[[], None]) -> None:
        self.ring = bell
        self.style = PlainStyle()
        self.lent = False

    def write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def changed(self) -> None: ...

    async def choose(self, choices: Sequence[Choice]) -> str:
        """List the choices by number; the user types one."""
        for number, choice in enumerate(choices, 1):
            self.write(f"{number:>3}  {choice.label}{'  (current)' if choice.current else ''}\n")
        self.write("Type a number to pick one.\n")
        return ""

    @contextmanager
    def lend(self) -> Generator[None]:
        """Leave the terminal to another program, whose output appears between our lines."""
        self.lent = True
        try:
            yield
        finally:
            self.lent = False

    def use_theme(self, theme: str) -> None: ...

    def clip(self, text: str) -> bool:
        return False

    async def run(self, conversation: ReplConversation) -> None:
        """Read and act until the end of the input or until the user leaves.

        Lines are also read while the agent works: they steer, and answer its questions.
        """
        read = TypedLines(sys.stdin.fileno())
        while True:
            self.write(conversation.asks or "> ")
            line = await read.line()
            if not line:
                await conversation.until(lambda: not conversation.busy)
                return
            if not await conversation.line(line):
                return
            # The prompt must not appear in the middle of the output.
            await conversation.until(lambda: not conversation.busy or conversation.question is not None)
