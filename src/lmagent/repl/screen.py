"""Screen: the prompt, the growing tail above it and the status line below it; everything else is printed once."""

from __future__ import annotations

import sys
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.patch_stdout import patch_stdout

from lmagent.core.events import grant_in_a_line
from lmagent.repl.complete import ReplCompleter
from lmagent.repl.conversation import Conversation
from lmagent.repl.keys import Wishes, bindings
from lmagent.repl.status import status_line

TAIL_LINES = 8
"""Lines of the growing block that are shown above the prompt."""

REDRAW = 0.05
"""Seconds between redraws of the live region: 20 times a second."""


class Screen:
    """The live region of a conversation."""

    def __init__(self, history: Path | None) -> None:
        self.conversation: Conversation | None = None
        self._history = history
        self._session: PromptSession[str] | None = None

    def write(self, text: str) -> None:
        """Print finished text above the live region."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def changed(self) -> None:
        """Draw the live region anew, soon."""
        if self._session is not None and self._session.app.is_running:
            self._session.app.invalidate()

    def width(self) -> int:
        """Columns of the terminal."""
        return self._session.output.get_size().columns if self._session is not None else 80

    async def run(self, conversation: Conversation) -> None:
        """Read and act until the person leaves."""
        self.conversation = conversation
        wishes = Wishes(conversation)
        self._session = PromptSession(
            message=self._message,
            multiline=True,
            completer=ReplCompleter(conversation.host),
            complete_while_typing=False,
            history=FileHistory(str(self._history)) if self._history else InMemoryHistory(),
            key_bindings=bindings(wishes),
            bottom_toolbar=self._toolbar,
            refresh_interval=1.0,
            prompt_continuation="  ",
            enable_open_in_editor=False,
        )
        app = self._session.app
        app.ttimeoutlen = app.timeoutlen = 0.1  # so that Esc alone acts at once
        app.min_redraw_interval = REDRAW
        with patch_stdout(raw=True):
            await self._loop(conversation, wishes)

    async def _loop(self, conversation: Conversation, wishes: Wishes) -> None:
        assert self._session is not None
        while True:
            wishes.queue = False
            try:
                text = await self._session.prompt_async(default=wishes.take_draft())
            except EOFError:
                return
            if not await conversation.line(text, queue=wishes.queue):
                return

    def _message(self) -> StyleAndTextTuples:
        conversation = self.conversation
        assert conversation is not None
        lines = [f"• {summary}" for summary in conversation.renderer.running.values()]
        tail = conversation.renderer.tail.rstrip("\n")
        lines += _last_rows(tail, self.width())
        live = "".join(f"{line}\n" for line in lines)
        if pending := conversation.question:
            always = f" · a always ({grant_in_a_line(pending.grant)})" if pending.grant else ""
            return [("", live), ("bold", f"Allow {pending.tool}? y yes · n no{always} · or say why not: ")]
        if conversation.plan is not None:
            return [("", live), ("bold", "Approve the plan? y yes · e edit · n no · or say what should be otherwise: ")]
        return [("", live), ("bold ansicyan", "> ")]

    def _toolbar(self) -> str:
        conversation = self.conversation
        assert conversation is not None
        window = conversation.session.window if conversation.session else conversation.host.agent.window
        elapsed = conversation.host.clock.monotonic() - conversation.since
        running = next(iter(conversation.renderer.running.values()), "")
        return status_line(conversation.view, window.tokens, elapsed, running, conversation.host.registry.confined.name)


def _last_rows(text: str, width: int) -> list[str]:
    """The last rows that the text takes up on a terminal of this width."""
    # A few characters to spare: wide ones take two columns, and a row that wraps by itself would garble the region.
    room = max(10, width - 2)
    rows = [
        line[start : start + room] for line in text[-4000:].splitlines() for start in range(0, len(line) or 1, room)
    ]
    return rows[-TAIL_LINES:]
