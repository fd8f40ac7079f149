"""Screen: the prompt, the growing tail above it and the status line below it; everything else is printed once.

Enter sends or steers, Alt+Enter queues (a new line when idle), Esc or Ctrl+C stops; `docs/terminal.md`.
"""

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
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_completions
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
from lmagent.terminal.rich_style import RichStyle, clipped, last_rows
from lmagent.terminal.status import FRAME, status_line
from lmagent.terminal.style import resolved_theme

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

REDRAW = 0.05
"""Seconds between redraws of the live region: 20 times a second."""


class Screen:
    def __init__(self, history: Path | None, bell: Callable[[], None], theme: str) -> None:
        self.ring = bell
        self.style = RichStyle(self.width, theme)
        self._history = history
        self._session: PromptSession[str] | None = None
        self._queue = self._hidden = False
        self._held: list[str] | None = None
        self._out = sys.stdout
        self._unwritten: list[str] = []
        self._writing: asyncio.Task[None] | None = None

    # --- finished text ------------------------------------------------------------------------------------------

    def write(self, text: str) -> None:
        """Print finished text above the live region, soon; later, while another program has the terminal."""
        if self._held is not None:
            self._held.append(text)
            return
        self._unwritten.append(text)
        if self._session is None or not self._session.app.is_running:
            self._write_all()
        elif self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_above(self._session))

    async def _write_above(self, session: PromptSession[str]) -> None:
        """Remove the live region, print, and draw it again; keys typed at this moment are not echoed."""
        app = session.app
        try:
            while self._unwritten:
                if app.is_running:
                    app.renderer.erase()
                self._write_all()
                if app.is_running:
                    app.renderer.request_absolute_cursor_position()
                    app.renderer.render(app, app.layout)
                await asyncio.sleep(REDRAW)
        finally:
            self._writing = None

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

        def leave(event: KeyPressEvent) -> None:
            event.app.exit(result="")

        keys = KeyBindings()
        keys.add("escape")(leave)
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
        self.style.theme = resolved_theme(theme, os.environ)
        if self._session is not None:
            self._session.color_depth = self._depth()

    def _depth(self) -> ColorDepth | None:
        return ColorDepth.DEPTH_1_BIT if self.style.theme == "none" else None

    def changed(self) -> None:
        if self._session is not None and self._session.app.is_running:
            self._session.app.invalidate()

    def width(self) -> int:
        return self._session.output.get_size().columns if self._session is not None else get_terminal_size().columns

    # --- the prompt ---------------------------------------------------------------------------------------------

    async def run(self, conversation: ReplConversation) -> None:
        session = self._session = PromptSession(
            message=lambda: self._message(conversation),
            multiline=True,
            completer=ReplCompleter(conversation.host),
            complete_in_thread=True,
            # not while the input is an answer
            complete_while_typing=Condition(
                lambda: conversation.question is None and opens_menu(session.default_buffer.document.text_before_cursor)
            ),
            style=STYLE,
            color_depth=self._depth(),
            history=FileHistory(str(self._history)) if self._history else InMemoryHistory(),
            key_bindings=self._bindings(conversation),
            bottom_toolbar=lambda: self._below(conversation, session.default_buffer),
            refresh_interval=1.0,
            prompt_continuation="  ",
            enable_open_in_editor=False,
        )
        session.app.ttimeoutlen = session.app.timeoutlen = 0.1  # so that Esc alone acts at once
        session.app.min_redraw_interval = REDRAW
        with patch_stdout(raw=True):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._spin, conversation)
                going = True
                while going:
                    self._queue = self._hidden = False
                    try:
                        text = await session.prompt_async()
                    except EOFError:
                        break
                    going = await self._act(conversation, text)
                tasks.cancel_scope.cancel()

    async def _spin(self, conversation: ReplConversation) -> None:
        was_busy = False
        while True:
            await anyio.sleep(FRAME)
            if conversation.busy or was_busy:
                self.changed()
            was_busy = conversation.busy

    async def _act(self, conversation: ReplConversation, text: str) -> bool:
        """Act on a line; Ctrl+C cancels it. It arrives as a signal, because no prompt is there to take the key."""
        going = True
        async with anyio.create_task_group() as tasks:
            if sys.platform != "win32":
                await tasks.start(self._give_up_on_interrupt, tasks.cancel_scope)
            going = await conversation.line(text, queue=self._queue, hidden=self._hidden)
            tasks.cancel_scope.cancel()
        return going

    async def _give_up_on_interrupt(self, scope: anyio.CancelScope, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as received:
            task_status.started()
            async for _ in received:
                if self._held is None:
                    scope.cancel()

    def _message(self, conversation: ReplConversation) -> StyleAndTextTuples:
        renderer, width = conversation.renderer, self.width()
        lines = [clipped(line, width) for line in renderer.live_lines()]
        lines += last_rows(renderer.tail, width)
        lines += [clipped(line, width) for line in conversation.waiting_lines()]
        live = "".join(f"{line}\n" for line in lines)
        question = conversation.asks
        if conversation.question is not None and self._unwritten:  # its details are printed first
            question = ""
        return [("", live), ("bold", question) if question else ("bold ansicyan", "> ")]

    def _below(self, conversation: ReplConversation, buffer: Buffer) -> str:
        menu = buffer.complete_state
        if menu is not None and menu.completions:
            place = f"{menu.complete_index + 1} of " if menu.complete_index is not None else ""
            return f" {place}{len(menu.completions)} · ↑ ↓ choose · Tab takes · Esc closes"
        window = conversation.session.window if conversation.session else conversation.host.agent.window
        elapsed = conversation.host.clock.monotonic() - conversation.since
        running = next(iter(conversation.renderer.running.values()), "")
        sandbox = conversation.host.registry.confined.name
        return clipped(status_line(conversation.view, window.tokens, elapsed, running, sandbox), self.width())

    # --- keys ---------------------------------------------------------------------------------------------------

    def _bindings(self, conversation: ReplConversation) -> KeyBindings:
        keys = KeyBindings()
        self._bind_sending(keys, conversation)
        _bind_stopping(keys, conversation)
        return keys

    def _bind_sending(self, keys: KeyBindings, conversation: ReplConversation) -> None:
        def hand_over(event: KeyPressEvent) -> None:
            """End the prompt; a message that takes effect later leaves the screen until then."""
            self._hidden = event.app.erase_when_done = conversation.defers(event.current_buffer.text)
            event.current_buffer.validate_and_handle()

        def send(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if _taken_from_menu(buffer):
                return
            if buffer.text.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                hand_over(event)

        def queue(event: KeyPressEvent) -> None:
            if conversation.working:
                self._queue = True
                hand_over(event)
            else:
                event.current_buffer.insert_text("\n")

        keys.add("enter")(send)
        keys.add("c-j")(send)  # Enter becomes this if it was typed before the prompt appeared
        keys.add("escape", "enter")(queue)


def _bind_stopping(keys: KeyBindings, conversation: ReplConversation) -> None:
    working, busy = Condition(lambda: conversation.working), Condition(lambda: conversation.busy)

    async def leave(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if await conversation.pressed_ctrl_c(empty=not buffer.text):
            event.app.exit(exception=EOFError)
        else:
            buffer.reset()

    async def interrupt(event: KeyPressEvent) -> None:
        _give_back(event.current_buffer, await conversation.interrupt())

    async def take_back(event: KeyPressEvent) -> None:
        _give_back(event.current_buffer, await conversation.take_back())

    def close_menu(event: KeyPressEvent) -> None:
        event.current_buffer.cancel_completion()

    def show_output(_: KeyPressEvent) -> None:
        conversation.renderer.whole_output(f".lmagent/sessions/{conversation.id}/blobs")

    keys.add("c-o")(show_output)
    keys.add("c-c")(leave)
    keys.add("<sigint>")(leave)  # the terminal is not raw while text is printed above the prompt; a signal then
    keys.add("escape", filter=has_completions)(close_menu)
    keys.add("escape", filter=busy & ~has_completions)(interrupt)
    keys.add("escape", "up", filter=working)(take_back)


def _taken_from_menu(buffer: Buffer) -> bool:
    """Take the menu's selection; True if it ends in a blank, because more arguments follow."""
    chosen = buffer.complete_state.current_completion if buffer.complete_state else None
    if chosen is None:
        buffer.cancel_completion()
    buffer.complete_state = None
    return chosen is not None and chosen.text.endswith(" ")


def _give_back(buffer: Buffer, text: str) -> None:
    if text:
        buffer.document = Document(f"{text}\n{buffer.text}" if buffer.text else text)
