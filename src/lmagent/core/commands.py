"""Command: a wish from a surface. Commands go in, events come out; nothing else crosses the line."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from lmagent.core.events import PermissionMode
from lmagent.core.messages import Message


class _Command(Struct, frozen=True, kw_only=True, tag_field="type"):
    """`by` names the surface, for the log."""

    by: str = ""


class Submit(_Command, frozen=True, tag="submit"):
    """Start a turn; while one runs, the input waits for its end."""

    message: Message


class Steer(_Command, frozen=True, tag="steer"):
    """Deliver to the running turn with the next tool result; when idle, the same as Submit."""

    message: Message


class Withdraw(_Command, frozen=True, tag="withdraw"):
    """Take back an input that has not reached the model."""

    input: str


class Continue(_Command, frozen=True, tag="continue"):
    """Go on with a turn that a crash or an interrupt left unfinished."""


class Interrupt(_Command, frozen=True, tag="interrupt"):
    """Stop the running turn now."""


class Approve(_Command, frozen=True, tag="approve"):
    """Answer an approval; `scope` "session" adds the rule that the request named."""

    approval: str
    approved: bool
    scope: Literal["once", "session"] = "once"
    feedback: str = ""


class SetMode(_Command, frozen=True, tag="set_mode"):
    """Change the permission mode."""

    mode: PermissionMode


class SetModel(_Command, frozen=True, tag="set_model"):
    """Let another model answer from the next step on."""

    model: str


class Compact(_Command, frozen=True, tag="compact"):
    """Compact the conversation now; `focus` says what the summary must keep."""

    focus: str = ""


class Undo(_Command, frozen=True, tag="undo"):
    """Take back what calls changed in the workspace; while a turn runs, it is refused.

    Attributes:
        count: how many changing calls, from the last one; 0 for all of the session.
        turn: all of the last turn that changed something, instead.
    """

    count: int = 1
    turn: bool = False


class Redo(_Command, frozen=True, tag="redo"):
    """Do again what was taken back last; `count` as in Undo."""

    count: int = 1


class Rename(_Command, frozen=True, tag="rename"):
    """Give the session a title."""

    title: str


class Close(_Command, frozen=True, tag="close"):
    """Stop what runs and release the session."""


Command: TypeAlias = (
    Submit
    | Steer
    | Withdraw
    | Continue
    | Interrupt
    | Approve
    | SetMode
    | SetModel
    | Compact
    | Undo
    | Redo
    | Rename
    | Close
)
