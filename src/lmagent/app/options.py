"""Options: what a session has of its own in place of the settings: sampling, the cap on a reply, instructions.

Instructions are a note at the tail of the conversation: the system text stays as it was sent, so nothing is read again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lmagent.core.commands import SetOptions
from lmagent.core.errors import StoreError
from lmagent.core.events import DurableEvent, OptionsChanged

if TYPE_CHECKING:
    from lmagent.app.registry import Registry
    from lmagent.engine.session import Session

NOTE = "instructions"

NONE_LEFT = "The user has withdrawn the instructions for this session."


async def set_options(session: Session, command: SetOptions) -> DurableEvent | None:
    """Record the options; None if they hold already."""
    if command.options == session.state.work.options:
        return None
    return await session.record(OptionsChanged(options=command.options, by=command.by), sync=True)


def instructions_note(registry: Registry, id: str) -> str:
    """Return the note with a session's instructions; a sub-agent has those of the session that it works for."""
    try:
        session = registry.records.session(id)
    except (KeyError, StoreError):
        return ""
    top = session
    while top.above is not None:
        top = top.above
    text = top.state.work.options.instructions.strip()
    if text:
        text = f"What the user wants in this session, besides the task:\n{text}"
    elif NOTE in session.state.notes:
        text = NONE_LEFT
    return f"<{NOTE}>\n{text}\n</{NOTE}>" if text else ""


def register(registry: Registry) -> None:
    """Add the order, the note and `/set`."""
    registry.orders[SetOptions] = set_options
    registry.session_notes.append(partial(instructions_note, registry))
    registry.command_modules.append("lmagent.app.commands_options")
