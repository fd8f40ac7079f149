"""Record: the part of the fold that knows what was changed and which commands ran. It judges nothing."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, field

from lmagent.core.decoding import convert
from lmagent.core.events import (
    ApprovalResolved,
    DurableEvent,
    FilesChanged,
    FilesRestored,
    MessageAdded,
    SubagentFinished,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from lmagent.core.messages import ToolCall

RUNS = 200
"""Commands that are remembered: those since the last change are what counts."""

OUTPUT = 4000
"""Characters of a command's output that are remembered, from its end, where runners say how many tests ran."""


LONGEST = 16_384
"""Characters of a command that is remembered; a longer one is not parsed either."""


_SIGNALLED = 128
"""Exit codes from here on tell of a signal: a shell that was killed has not made the report that came in its name."""


class Run(Struct, frozen=True):
    """A command of the shell tool that came to its end.

    Attributes:
        seq: of its `tool.started`.
        call: its call.
        command: the line; empty where it cannot be told which it was.
        folder: where it began, relative to the workspace.
        ended: where the next one begins.
        exports: variables that it was given.
        code: exit code; None where it was killed, timed out or was left in the background.
        output: the end of what it printed.
        at: when it was over, seconds since 1970.
        stages: exit codes of pipelines in it that the shell reported: which one, counted from 0, and its members'.
    """

    seq: int
    call: str
    command: str
    folder: str
    ended: str
    exports: dict[str, str]
    code: int | None
    output: str
    at: float = 0.0
    stages: tuple[tuple[int, tuple[int, ...]], ...] = ()


class Tried(Struct):
    """The tools that a turn has called; a fold of events.

    Attributes:
        worked: names of the tools of which a call worked.
        failed: names of the tools of which a call failed or was denied.
        changed: a file may have changed.
        answered: the user has denied a call, so the user knows.
    """

    worked: set[str] = field(default_factory=set[str])
    failed: set[str] = field(default_factory=set[str])
    changed: bool = False
    answered: bool = False

    def apply(self, event: DurableEvent) -> None:
        """Fold one event in."""
        match event:
            case TurnStarted():
                self.worked.clear()
                self.failed.clear()
                self.changed = self.answered = False
            case ToolFinished():
                (self.worked if event.status in ("ok", "interrupted") else self.failed).add(event.tool)
            case FilesChanged(by=""):
                self.changed = self.changed or _matters(event)
            case SubagentFinished():
                self.changed = True
            case ApprovalResolved() if not event.approved and event.by != "unattended":
                self.answered = True
            case _:
                pass


class Evidence(Struct):
    """What speaks for and against the work. Read it freely; change it only by `apply`.

    Attributes:
        touched: paths that were changed since the last time that all was verified, and the `seq` of the last change.
        by: the call that made the last change of a path.
        verified: `seq` of the last verdict that was good.
        standing: changes of the whole session that were not taken back, by the id of their event.
        undone: those that were.
        runs: commands, oldest first.
        effects: `seq` of the last program that ran besides `runs`; it may have changed something.
        children: `seq` of the last sub-agent's end.
        jobs: what was left running in the background; what they change between two calls is on no record.
        suspect: a command that may have laid hands on a runner outside the workspace, where no change is seen.
        judged: `seq` of the last verdict.
        folder: where the next command of the shell begins.
        exports: variables that it is given.
        calls: those of the last reply.
        started: calls that have begun and not ended.
    """

    touched: dict[str, int] = field(default_factory=dict[str, int])
    by: dict[str, str] = field(default_factory=dict[str, str])
    verified: int = 0
    standing: dict[str, FilesChanged] = field(default_factory=dict[str, FilesChanged])
    undone: dict[str, FilesChanged] = field(default_factory=dict[str, FilesChanged])
    runs: list[Run] = field(default_factory=list[Run])
    effects: int = 0
    children: int = 0
    jobs: set[str] = field(default_factory=set[str])
    suspect: str = ""
    judged: int = 0
    folder: str = "."
    exports: dict[str, str] = field(default_factory=dict[str, str])
    tried: Tried = field(default_factory=Tried)
    calls: dict[str, ToolCall] = field(default_factory=dict[str, ToolCall])
    started: dict[str, ToolStarted] = field(default_factory=dict[str, ToolStarted])

    def apply(self, event: DurableEvent) -> None:
        """Fold one event in."""
        self.tried.apply(event)
        match event:
            case MessageAdded() if event.message.role == "assistant":
                self.calls = {call.id: call for call in event.message.tool_calls}
            case ToolStarted():
                self.started[event.call_id] = event
            case ToolFinished():
                self._finish(event)
            case FilesChanged(by=""):  # what the user changes is not the model's to prove
                self.standing[event.id] = event
                self.undone.clear()
                self._touch(event)
            case FilesRestored():
                self._restore(event)
            case SubagentFinished():
                self.children = event.seq
                for path in event.result.artifacts:
                    self.touched[path], self.by[path] = event.seq, event.call_id
            case TurnFinished() if event.proof:
                self.judged = event.seq
                if event.proof == "verified":
                    self.touched.clear()
                    self.by.clear()
                    self.verified = event.seq
            case _:
                pass

    def _touch(self, event: FilesChanged) -> None:
        from lmagent.engine.evidence.places import is_leaving  # its patterns are compiled with the first change

        for change in event.changes:
            if not is_leaving(change.path):
                self.touched[change.path], self.by[change.path] = event.seq, event.call_id

    def _restore(self, event: FilesRestored) -> None:
        source, target = (self.standing, self.undone) if event.to == "before" else (self.undone, self.standing)
        for id in event.events:
            if id in source:
                target[id] = source.pop(id)
        left = {change.path for one in self.standing.values() for change in one.changes}
        unnamed = any(one.blob for one in self.standing.values())
        for path in event.paths:
            self.touched.pop(path, None)
            if unnamed or path in left:
                self.touched[path], self.by[path] = event.seq, ""

    def _finish(self, event: ToolFinished) -> None:
        started, call = self.started.pop(event.call_id, None), self.calls.get(event.call_id)
        if started is None:
            return
        path = event.data.get("path")
        if event.data.get("changed") and isinstance(path, str) and path not in self.touched:
            self.touched[path], self.by[path] = event.seq, event.call_id
        if event.tool == "shell" and "exit_code" in event.data:
            self._run(event, started, call)
        elif started.effect == "exec":
            self.effects = event.seq
            if event.tool == "shell" and "job" in event.data:
                self.jobs.add(str(event.data["job"]))
        if started.effect == "exec" and call is not None:
            self._suspect(call)

    def _run(self, event: ToolFinished, started: ToolStarted, call: ToolCall | None) -> None:
        code, saved = event.data.get("exit_code"), event.data.get("shell")
        whole = event.status == "ok" and event.data.get("reason") == "exit" and isinstance(code, int)
        folder, exports = self.folder, self.exports
        shell: dict[str, Any] = saved if isinstance(saved, dict) else {}  # type: ignore[reportUnknownVariableType]
        if isinstance(shell.get("cwd"), str) and isinstance(shell.get("exports"), dict):
            self.folder, self.exports = shell["cwd"], shell["exports"]
        command = command_of(call) if call is not None else ""
        run = Run(
            seq=started.seq,
            call=event.call_id,
            command=command if len(command) <= LONGEST else "",
            folder=folder,
            ended=self.folder,
            exports=exports,
            code=code if whole else None,
            output=event.content[-OUTPUT:],
            at=event.ts,
            stages=_stages(event.data.get("stages")) if whole and isinstance(code, int) and code < _SIGNALLED else (),
        )
        self.runs = [*self.runs[-RUNS:], run]

    def _suspect(self, call: ToolCall) -> None:
        from lmagent.engine.evidence.places import lays_hands_on, stays_behind

        self.suspect = self.suspect or lays_hands_on(call.arguments)
        if stays_behind(call.arguments):
            self.jobs.add(call.id)


def _stages(data: object) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """The codes as a log has them, which may say anything."""
    try:
        return convert(data or (), tuple[tuple[int, tuple[int, ...]], ...])
    except msgspec.ValidationError:
        return ()


def command_of(call: ToolCall) -> str:
    """The line that a call of the shell ran; empty where that is not certain."""
    try:
        arguments: Any = msgspec.json.decode(call.arguments.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ""
    if call.name == "use_tool" and isinstance(arguments, dict):
        arguments = arguments.get("arguments")  # type: ignore[reportUnknownVariableType]
    if not isinstance(arguments, dict):
        return ""
    given: list[Any] = [arguments[name] for name in ("command", "cmd", "script") if name in arguments]  # type: ignore[reportUnknownVariableType]
    return given[0] if len(given) == 1 and isinstance(given[0], str) else ""


def _matters(event: FilesChanged) -> bool:
    from lmagent.engine.evidence.places import is_leaving  # its patterns are compiled with the first change

    return bool(event.blob) or any(not is_leaving(change.path) for change in event.changes)
