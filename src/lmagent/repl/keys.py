"""Keys: Enter sends or steers, Alt+Enter queues (a new line when idle), Esc or Ctrl+C stops; `docs/terminal.md`."""

from __future__ import annotations

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_completions
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from lmagent.repl.conversation import ReplConversation


class KeyRequests:
    def __init__(self, conversation: ReplConversation) -> None:
        self.conversation = conversation
        self.queue = False
        self.hidden = False
        self._draft = ""

    def take_draft(self) -> str:
        draft, self._draft = self._draft, ""
        return draft


def bindings(requests: KeyRequests) -> KeyBindings:
    keys = KeyBindings()
    _editing(keys, requests)
    _steering(keys, requests.conversation)
    return keys


def _editing(keys: KeyBindings, requests: KeyRequests) -> None:
    conversation = requests.conversation

    def hand_over(event: KeyPressEvent) -> None:
        """End the prompt; a message that takes effect later leaves the screen until then."""
        requests.hidden = event.app.erase_when_done = conversation.defers(event.current_buffer.text)
        event.current_buffer.validate_and_handle()

    @keys.add("c-j")  # Enter becomes this if it was typed before the prompt appeared
    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if _taken_from_menu(buffer):
            return
        if buffer.text.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            hand_over(event)

    @keys.add("escape", "enter")
    def queue(event: KeyPressEvent) -> None:
        if conversation.working:
            requests.queue = True
            hand_over(event)
        else:
            event.current_buffer.insert_text("\n")

    @keys.add("c-o")
    def show_output(_: KeyPressEvent) -> None:
        session = conversation.session.state.session if conversation.session is not None else ""
        conversation.renderer.whole_output(f".lmagent/sessions/{session}/blobs")

    @keys.add("<sigint>")  # the terminal is not raw while text is printed above the prompt; Ctrl+C is a signal then
    @keys.add("c-c")
    async def leave(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if await conversation.pressed_ctrl_c(empty=not buffer.text):
            event.app.exit(exception=EOFError)
        else:
            buffer.reset()

    del send, queue, show_output, leave  # they live in `keys`


def _taken_from_menu(buffer: Buffer) -> bool:
    """Take the menu's selection; True if it ends in a blank, because more arguments follow."""
    chosen = buffer.complete_state.current_completion if buffer.complete_state else None
    if chosen is None:
        buffer.cancel_completion()
    buffer.complete_state = None
    return chosen is not None and chosen.text.endswith(" ")


def _steering(keys: KeyBindings, conversation: ReplConversation) -> None:
    working = Condition(lambda: conversation.working)
    busy = Condition(lambda: conversation.busy)

    @keys.add("escape", filter=has_completions)
    def close(event: KeyPressEvent) -> None:
        event.current_buffer.cancel_completion()

    @keys.add("escape", filter=busy & ~has_completions)
    async def interrupt(event: KeyPressEvent) -> None:
        _give_back(event.current_buffer, await conversation.interrupt())

    @keys.add("escape", "up", filter=working)
    async def take_back(event: KeyPressEvent) -> None:
        _give_back(event.current_buffer, await conversation.take_back())

    del close, interrupt, take_back


def _give_back(buffer: Buffer, text: str) -> None:
    if text:
        buffer.document = Document(f"{text}\n{buffer.text}" if buffer.text else text)
