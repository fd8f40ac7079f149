"""Verdict: whether the changes of a session are verified. A doubt makes it `partly verified`, never `verified`.

It is judged from the record of the checks and other programs of a session, a fold of its events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct, field

from lmagent.core import events as ev
from lmagent.core.events import COMMAND_CALL, OWN_CALL
from lmagent.core.messages import ToolCall
from lmagent.core.plurals import plural
from lmagent.core.work import Proof
from lmagent.proof.checks import code_of, has_code, is_looking, ran_tests

SHOWN = 2
"""Paths that a reason names."""

_NOT_STARTED = (126, 127)
"""Exit codes of a shell for a missing program, and for a program that cannot be run."""


TOP: dict[str, object] = {"cwd": ".", "exports": 0}
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
        is_check = event.call_id.startswith(OWN_CALL) and not event.call_id.startswith(COMMAND_CALL)
        if call is None and is_check:
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


class ChangedWork(Struct):
    """The changes of a session.

    Attributes:
        changed: paths changed since the last verified turn, and the number of the latest event that changed each.
        guards: changed files of the whole session that can influence a check's result.
        unnamed: number of the latest change whose paths are lost; 0 for none, 1 if only checks made such changes.
        by_checks: paths that checks changed themselves.
        contained: no program could change anything besides the recorded changes.
    """

    changed: dict[str, int] = field(default_factory=dict[str, int])
    guards: list[str] = field(default_factory=list[str])
    unnamed: int = 0
    by_checks: list[str] = field(default_factory=list[str])
    contained: bool = False


class ProofVerdict(Struct, frozen=True):
    """The verdict; `proof` is empty if nothing was changed, or nothing could have checked it.

    It is final if lmagent's own check ran after the last change, so that another run would change nothing.
    """

    proof: Proof = ""
    reason: str = ""
    is_final: bool = False


def judge(record: Record, work: ChangedWork, commands: Sequence[str], demanded: bool) -> ProofVerdict:
    """Return the verdict. If `demanded`, changes need a check even if they are not code."""
    last = max(work.unnamed, *work.changed.values(), 0)
    check = record.check
    is_news = last and max(last, check.seq if check else 0) > record.judged
    if not is_news or not (demanded or check or has_code(work.changed)):
        return ProofVerdict()
    proof, reason = _weigh(record, work, check, last, commands)
    fresh = check is not None and check.own and check.seq > max(last, record.programs, record.restored)
    return ProofVerdict(proof, "".join(char if char.isprintable() else "�" for char in reason), fresh)


def _weigh(
    record: Record, work: ChangedWork, check: Check | None, last: int, commands: Sequence[str]
) -> tuple[Proof, str]:
    what = _changes(work)
    if check is None:
        return "unchecked", f"{what} and no check ran; pytest, make test or one of your check_commands would verify it"
    if check.seq < max(last, record.restored):
        return "unchecked", f"{what}, and no check ran after the last change"
    if check.seq < record.programs:
        return "unchecked", f"{what}, and other commands ran after {check.command}"
    data, status = check.finished.data, check.finished.status
    code = data.get("exit_code")
    if status != "ok" or code in _NOT_STARTED:
        why = str(data.get("why") if status == "denied" else check.finished.content).strip().partition("\n")[0]
        return "unchecked", f"{what}, and {check.command} did not run: {why[:200]}"
    if data.get("reason") != "exit":
        return "failed", f"{check.command} was stopped ({data.get('reason')})"
    if code != 0:
        return "failed", f"{check.command} failed (exit code {code})"
    passed = f"{check.command} passed after the last change"
    doubts = _doubts(record, work, check, commands)
    return ("partly verified", f"{passed}, but {'; '.join(doubts[:SHOWN])}") if doubts else ("verified", passed)


def _doubts(record: Record, work: ChangedWork, check: Check, commands: Sequence[str]) -> list[str]:
    suffixes = code_of(check.command)
    doubts = list[str]()
    if work.guards:
        doubts.append(f"{_named(work.guards)} {'was' if len(work.guards) == 1 else 'were'} changed too")
    if work.unnamed:
        doubts.append("the names of some changed files are lost")
    if work.by_checks:
        doubts.append(f"a check changed {_named(work.by_checks)} itself")
    if record.children:
        doubts.append("the commands of sub-agents are not in this record")
    if record.lasting:
        doubts.append("Python or a command in the background may have changed what it runs")
    elif record.programs and not (check.own and work.contained):
        doubts.append("other commands ran before it and may have changed what it runs")
    if commands and not check.own and [check.command] != list(commands):
        doubts.append("it is not all of the project's check")
    if suffixes is not None and not ran_tests(check.finished.content):
        doubts.append("it does not state that a test ran")
    if suffixes and (left := [path for path in work.changed if has_code([path]) and not path.endswith(suffixes)]):
        doubts.append(f"it does not run {_named(left)}")
    return doubts


def _named(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return ", ".join(paths[:SHOWN]) + more


def _changes(work: ChangedWork) -> str:
    if work.unnamed or not work.changed:
        return "many files changed"
    return f"{next(iter(work.changed)) if len(work.changed) == 1 else plural(len(work.changed), 'file')} changed"
