"""Screen: the prompt, the growing tail above it and the status line below it; everything else is printed once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import get_terminal_size

import anyio
from anyio.abc import TaskStatus
from prompt_toolkit import PromptSession
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.shortcuts.choice_input import ChoiceInput
from prompt_toolkit.styles import Style

from lmagent.app.slash import Choice
from lmagent.repl.clipboard import osc52
from lmagent.repl.complete import ReplCompleter, opens_menu
from lmagent.repl.conversation import ReplConversation
from lmagent.repl.keys import KeyRequests, bindings
from lmagent.repl.owncommands import OUTSIDE
from lmagent.terminal.question import PLAN, approval
from lmagent.terminal.status import FRAME, status_line
from lmagent.terminal.style import clipped, wrapped
from lmagent.terminal.theme import recoloured, resolved

STYLE = Style.from_dict(
    {
        "bottom-toolbar": "noreverse",
        "completion-menu": "noinherit",
        "completion-menu.completion": "noinherit bold",
        "completion-menu.completion.current": "noinherit reverse",
        "completion-menu.meta.completion": "noinherit",
        "completion-menu.meta.completion.current": "noinherit reverse",
        "scrollbar.background": "noinherit",
        "scrollbar.button": "noinherit reverse",
    }
)
"""Menu and status line in the terminal's own colours, which are readable on every background."""

TAIL_LINES = 8
"""Lines of the growing block that are shown above the prompt."""

REDRAW = 0.05
"""Seconds between redraws of the live region: 20 times a second."""


class Screen:
    def __init__(self, history: Path | None, bell: Callable[[], None], theme: str) -> None:
        self.conversation: ReplConversation | None = None
        self._theme = theme
        self.ring = bell
        self._history = history
        self._session: PromptSession[str] | None = None
        self._held: list[str] | None = None
        self._out = sys.stdout
        self._unwritten: list[str] = []
        self._writing: asyncio.Task[None] | None = None

    def write(self, text: str) -> None:
        """Print finished text above the live region, soon; later, while another program has the terminal."""
        text = recoloured(text, self._theme)
        if self._held is not None:
            self._held.append(text)
            return
        self._unwritten.append(text)
        if self._session is None or not self._session.app.is_running:
            self._write_all()
        elif self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_above())

    async def _write_above(self) -> None:
        try:
            while self._unwritten:
                self._write_between()
                await asyncio.sleep(REDRAW)
        finally:
            self._writing = None

    def _write_between(self) -> None:
        """Remove the live region, print, and draw it again; keys typed at this moment are not echoed."""
        app = self._session.app if self._session is not None else None
        if app is None or not app.is_running:
            self._write_all()
            return
        app.renderer.erase()
        self._write_all()
        app.renderer.request_absolute_cursor_position()
        app.renderer.render(app, app.layout)

    def _write_all(self) -> None:
        text, self._unwritten = "".join(self._unwritten), []
        self._out.write(text)
        self._out.flush()

    @contextmanager
    def lend(self) -> Generator[None]:
        self._write_all()
        self._held = held = list[str]()
        try:
            yield
        finally:
            self._held = None
            self.write("".join(held))

    async def choose(self, choices: Sequence[Choice]) -> str:
        """Show a list with arrows and numbers; Esc picks none."""
        keys = KeyBindings()

        @keys.add("escape")
        def leave(event: KeyPressEvent) -> None:
            event.app.exit(result="")

        del leave  # it lives in `keys`
        picker = ChoiceInput(
            message="Arrows and Enter pick, Esc leaves.",
            options=[(choice.line, f"{choice.label}{'  (current)' if choice.current else ''}") for choice in choices],
            default=next((choice.line for choice in choices if choice.current), None),
            key_bindings=keys,
        )
        try:
            return await picker.prompt_async()
        except KeyboardInterrupt:
            return ""

    def clip(self, text: str) -> bool:
        """Ask the terminal, which has no way to say no."""
        self.write(osc52(text))
        return True

    def use_theme(self, theme: str) -> None:
        self._theme = resolved(theme, os.environ)
        if self._session is not None:
            self._session.color_depth = self._depth()

    def _depth(self) -> ColorDepth | None:
        return ColorDepth.DEPTH_1_BIT if self._theme == "none" else None

    def changed(self) -> None:
        if self._session is not None and self._session.app.is_running:
            self._session.app.invalidate()

    def width(self) -> int:
        return self._session.output.get_size().columns if self._session is not None else get_terminal_size().columns

    async def run(self, conversation: ReplConversation) -> None:
        self.conversation = conversation
        requests = KeyRequests(conversation)
        self._session = PromptSession(
            message=self._message,
            multiline=True,
            completer=ReplCompleter(lambda: conversation.context),
            complete_while_typing=Condition(self._menu_opens),
            style=STYLE,
            color_depth=self._depth(),
            history=FileHistory(str(self._history)) if self._history else InMemoryHistory(),
            key_bindings=bindings(requests),
            bottom_toolbar=self._below,
            refresh_interval=1.0,
            prompt_continuation="  ",
            enable_open_in_editor=False,
        )
        app = self._session.app
        app.ttimeoutlen = app.timeoutlen = 0.1  # so that Esc alone acts at once
        app.min_redraw_interval = REDRAW
        with patch_stdout(raw=True):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._spin, conversation)
                await self._loop(conversation, requests)
                tasks.cancel_scope.cancel()

    async def _spin(self, conversation: ReplConversation) -> None:
        while True:
            await anyio.sleep(FRAME)
            if conversation.busy:
                self.changed()

    async def _loop(self, conversation: ReplConversation, requests: KeyRequests) -> None:
        assert self._session is not None
        while True:
            requests.queue = requests.hidden = False
            try:
                text = await self._session.prompt_async(default=requests.take_draft())
            except EOFError:
                return
            if not await self._act(conversation, text, requests):
                return

    async def _act(self, conversation: ReplConversation, text: str, requests: KeyRequests) -> bool:
        """Act on a line; Ctrl+C cancels it. It arrives as a signal, because no prompt is there to take the key."""
        going = True
        async with anyio.create_task_group() as tasks:
            if sys.platform != "win32":
                await tasks.start(self._give_up_on_interrupt, tasks.cancel_scope)
            going = await conversation.line(text, queue=requests.queue, hidden=requests.hidden)
            tasks.cancel_scope.cancel()
        return going

    async def _give_up_on_interrupt(self, scope: anyio.CancelScope, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as received:
            task_status.started()
            async for _ in received:
                if self._held is None:
                    scope.cancel()

    def _message(self) -> StyleAndTextTuples:
        conversation = self.conversation
        assert conversation is not None
        lines = [clipped(line, self.width()) for line in conversation.renderer.live_lines()]
        tail = conversation.renderer.tail.rstrip("\n")
        lines += _last_rows(tail, self.width())
        lines += [clipped(line, self.width()) for line in conversation.undelivered.lines()]
        live = "".join(f"{line}\n" for line in lines)
        if conversation.unconfined:
            return [("", live), ("bold", f"{OUTSIDE} y yes · n no: ")]
        if (pending := conversation.question) and not self._unwritten:  # its details are printed first
            return [("", live), ("bold", approval(pending.tool, pending.grant))]
        if conversation.plan is not None:
            return [("", live), ("bold", PLAN)]
        return [("", live), ("bold ansicyan", "> ")]

    def _menu_opens(self) -> bool:
        """Whether typing opens the menu; not while the input is an answer."""
        assert self._session is not None
        assert self.conversation is not None
        return self.conversation.question is None and opens_menu(
            self._session.default_buffer.document.text_before_cursor
        )

    def _below(self) -> str:
        menu = self._session.default_buffer.complete_state if self._session is not None else None
        if menu is None or not menu.completions:
            return self._toolbar()
        place = f"{menu.complete_index + 1} of " if menu.complete_index is not None else ""
        return f" {place}{len(menu.completions)} · ↑ ↓ choose · Tab takes · Esc closes"

    def _toolbar(self) -> str:
        conversation = self.conversation
        assert conversation is not None
        window = conversation.session.window if conversation.session else conversation.host.agent.window
        elapsed = conversation.host.clock.monotonic() - conversation.since
        running = next(iter(conversation.renderer.running.values()), "")
        sandbox = conversation.host.registry.confined.name
        return clipped(status_line(conversation.view, window.tokens, elapsed, running, sandbox), self.width())


def _last_rows(text: str, width: int) -> list[str]:
    """Return the last rows that the text takes up on a terminal of this width."""
    rows = [row for line in text[-4000:].splitlines() for row in wrapped(line, width)]
    return rows[-TAIL_LINES:]
