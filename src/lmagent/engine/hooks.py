"""Hooks: the port through which programs of the user see calls, inputs and cuts, and may stop them.

The loop calls it after the event that it is about is on disk. After a crash in the middle, a hook may run again. No
method raises for a hook that fails: the turn continues without it, or the user is asked.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

from msgspec import Struct

from lmagent.core.events import InputReceived
from lmagent.core.tool import ToolOutput
from lmagent.engine.session import Session
from lmagent.engine.toolbox import Invocation


class CallRuling(Struct, frozen=True):
    """The decision of hooks on a call. The gate's denials, and rules that ask, win over `allow`.

    Attributes:
        reason: for the model if the call is denied, for the user if it is asked about.
        arguments: changed arguments of the call, under the tool's own names; None if they stay.
        text: for the model, after the call's result.
    """

    decision: Literal["", "allow", "ask", "deny"] = ""
    reason: str = ""
    arguments: dict[str, Any] | None = None
    text: str = ""


class Hooks(Protocol):
    async def before_call(self, session: Session, invocation: Invocation) -> CallRuling:
        """Return the decision on a call that the gate does not deny."""
        ...

    async def after_call(self, session: Session, invocation: Invocation, output: ToolOutput) -> str:
        """Show hooks a call that has succeeded; return their text for the model, which follows the call's result.

        Their changes of files count as the call's.
        """
        ...

    async def on_input(self, session: Session, received: InputReceived) -> str:
        """Show hooks an input before the model gets it; return why it may not be sent, or an empty text."""
        ...

    async def before_compaction(self, session: Session, trigger: str, focus: str) -> None:
        """Show hooks that the conversation is about to be shortened."""
        ...

    async def after_compaction(self, session: Session) -> None:
        """Let hooks add to a conversation that was shortened."""
        ...
