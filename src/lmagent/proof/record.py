"""Record: the checks and other programs of a session, as a fold of its events. It judges nothing."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from lmagent.core import events as ev
from lmagent.core.events import OWN_CALL
from lmagent.core.messages import ToolCall
from lmagent.proof.runners import is_looking

TOP: dict[str, object] = {"cwd": ".", "exports": {}}
"""The shell state of a check that ran at the top of the project, without variables of an earlier command."""


class Check(Struct, frozen=True):
    """A check that ran, or was refused; `seq` is its first event. lmagent ran it if `own`, else the model."""

    seq: int
    command: str
    finished: ev.ToolFinished
    own: bool = False


class Record(Struct):
    """The checks and programs. Every number is that of the latest such event, 0 for none.

    Attributes:
        command_of: returns the command line of a shell call; empty if the call cannot be understood.
        checks: calls that were checks.
        programs: another program ran, which may have changed everything within its reach.
        lasting: a program ran that may still be running: in the background, or in the persistent Python.
        children: a sub-agent ended.
        restored: the user reverted or reapplied changes.
        written: paths that results report as changed, for sessions whose changes are not kept.
        delivered: paths that sub-agents report as theirs.
        judged: a turn ended with a verdict.
        verified: a turn ended as verified.
    """

    command_of: Callable[[ToolCall], str]
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
    _started: dict[str, ev.ToolStarted] = field(default_factory=dict[str, ev.ToolStarted])

    def apply(self, event: ev.Event) -> None:
        match event:
            case ev.MessageAdded() if event.message.role == "assistant":
                self._calls = {call.id: call for call in event.message.tool_calls}
            case ev.ToolStarted():
                self._started[event.call_id] = event
            case ev.ToolFinished():
                self._finish(event, self._started.pop(event.call_id, None))
            case ev.SubagentFinished():
                self.children = event.seq
                self.delivered.update(dict.fromkeys(event.result.artifacts, event.seq))
            case ev.FilesRestored():
                self.restored = event.seq
            case ev.TurnFinished() if event.proof:
                self.judged = event.seq
                self.verified = event.seq if event.proof == "verified" else self.verified
            case _:
                pass

    def _finish(self, event: ev.ToolFinished, started: ev.ToolStarted | None) -> None:
        call = self._calls.get(event.call_id)
        if call is None and event.call_id.startswith(OWN_CALL):
            self.checks.add(event.call_id)
            if event.status == "interrupted":
                return  # by Stop or a crash: the check must still run
            summary = started.summary if started else str(event.data.get("summary") or "shell the check")
            self.check = Check(started.seq if started else event.seq, summary.removeprefix("shell "), event, own=True)
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
