"""Record: which checks and other programs ran in a session, as a fold of its events. It judges nothing."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from lmagent.core.events import (
    Event,
    FilesRestored,
    MessageAdded,
    SubagentFinished,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from lmagent.core.messages import ToolCall
from lmagent.core.toolevents import OWN_CALL
from lmagent.proof.runners import is_looking

CommandOf = Callable[[ToolCall], str]
"""Returns the command line that a call of the shell runs; empty for a call that cannot be understood."""

TOP: dict[str, object] = {"cwd": ".", "exports": {}}
"""The shell of a check that began where the project is, with no variable that an earlier command had set."""


class Check(Struct, frozen=True):
    """A check that ran, or was refused.

    Attributes:
        seq: number of the event with which it began.
        command: the command line.
        finished: its result.
        own: lmagent ran it, not the model.
    """

    seq: int
    command: str
    finished: ToolFinished
    own: bool = False


class Record(Struct):
    """What ran. Every number is that of the latest such event, 0 for none.

    Attributes:
        command_of: see `CommandOf`.
        is_check: whether a command line is a check.
        check: the latest check.
        checks: calls that were checks.
        programs: another program ran, which may have changed anything that it could reach.
        lasting: a program ran that may still be running: in the background, or in the Python that is kept.
        children: a sub-agent ended.
        restored: the user took changes back, or did them again.
        written: paths that results name as changed, for sessions whose changes are not kept.
        delivered: paths that sub-agents name as theirs.
        judged: a turn ended with a verdict.
        verified: a turn ended as verified.
    """

    command_of: CommandOf
    is_check: Callable[[str], bool]
    check: Check | None = None
    checks: set[str] = field(default_factory=set[str])
    programs: int = 0
    lasting: int = 0
    children: int = 0
    restored: int = 0
    written: dict[str, int] = field(default_factory=dict[str, int])
    delivered: dict[str, int] = field(default_factory=dict[str, int])
    judged: int = 0
    verified: int = 0
    _calls: dict[str, ToolCall] = field(default_factory=dict[str, ToolCall])
    _started: dict[str, ToolStarted] = field(default_factory=dict[str, ToolStarted])

    def apply(self, event: Event) -> None:
        """Fold one event in."""
        match event:
            case MessageAdded() if event.message.role == "assistant":
                self._calls = {call.id: call for call in event.message.tool_calls}
            case ToolStarted():
                self._started[event.call_id] = event
            case ToolFinished():
                self._finish(event, self._started.pop(event.call_id, None))
            case SubagentFinished():
                self.children = event.seq
                self.delivered.update(dict.fromkeys(event.result.artifacts, event.seq))
            case FilesRestored():
                self.restored = event.seq
            case TurnFinished() if event.proof:
                self.judged = event.seq
                self.verified = event.seq if event.proof == "verified" else self.verified
            case _:
                pass

    def _finish(self, event: ToolFinished, started: ToolStarted | None) -> None:
        call = self._calls.get(event.call_id)
        if call is None and event.call_id.startswith(OWN_CALL):
            summary = started.summary if started else str(event.data.get("summary") or "shell the check")
            self.check = Check(started.seq if started else event.seq, summary.removeprefix("shell "), event, own=True)
            self.checks.add(event.call_id)
            return
        if started is None:
            return
        if event.data.get("changed") and isinstance(path := event.data.get("path"), str):
            self.written[path] = event.seq
        if started.effect != "exec":
            return
        command = self.command_of(call) if call is not None and event.tool == "shell" else ""
        if self.is_check(command) and event.data.get("shell") == TOP:
            self.check = Check(started.seq, command, event)
            self.checks.add(event.call_id)
        elif not is_looking(command):
            self.programs = event.seq
            if event.tool != "shell" or "job" in event.data:
                self.lasting = event.seq
