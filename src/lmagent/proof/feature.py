"""Feature: run the project's check when a turn that changed files ends, and add the verdict to the turn's end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from weakref import WeakKeyDictionary

from msgspec import DecodeError, Struct
from msgspec.structs import replace

from lmagent.core.errors import StoreError, ToolError
from lmagent.core.events import DurableEvent, TurnFinished
from lmagent.core.messages import ToolCall
from lmagent.engine.review import Again, End, Perform, Review
from lmagent.engine.session import Session
from lmagent.engine.undo import changes_of

if TYPE_CHECKING:
    from lmagent.engine.endings import Ending
    from lmagent.engine.toolbox import Invocation
    from lmagent.proof.verdict import ChangedWork, ProofVerdict, Record

TIMES = 3
"""Times that a turn is sent back because its check failed or is missing."""

SHOWN = 4000
"""Characters of a failed check that the model is shown, from its end."""


class ProofChoices(Struct, frozen=True):
    """The settings. `check` runs the check as a call that needs permission ("ask"), or without a question ("auto")."""

    check: Literal["off", "ask", "auto"] = "off"
    commands: tuple[str, ...] = ()
    required: bool = False


class Proof(Review):
    """The review of a project's checks.

    Args:
        events: returns the events of a session that are on disk.
        invoke: makes the call that runs a command line in a shell of its own.
        is_contained: whether such a shell has a clean home, which no earlier command can have changed.
    """

    def __init__(
        self,
        workspace: Path,
        events: Callable[[str], Iterable[DurableEvent]],
        invoke: Callable[[str], Invocation],
        is_contained: Callable[[], bool],
        choices: ProofChoices,
    ) -> None:
        self._workspace = workspace
        self._events = events
        self._invoke = invoke
        self._is_contained = is_contained
        self._choices = choices
        self._mode = "auto" if choices.required else choices.check
        self._records: WeakKeyDictionary[Session, Record] = WeakKeyDictionary()

    async def after_calls(self, session: Session) -> End | None:
        """Begin the record with the first calls."""
        self._record(session)
        return None

    async def at_end(self, session: Session, ending: Ending, answer: str) -> End | Again | Perform | None:
        """Run the check, or send the model back to work that is not verified."""
        if ending.kind != "done" or session.state.work.parent is not None or session.state.work.mode == "plan":
            return None
        verdict, command = self._judge(session), self._command()
        if verdict.proof in ("", "verified"):
            return None
        if self._mode != "off" and command and not verdict.is_final:
            return Perform(self._invoke(command), "auto" if self._mode == "auto" else None)
        if verdict.proof == "failed" and self._mode != "off":
            return self._again(session, self._failure(session, verdict), verdict, answer)
        if self._choices.required and verdict.proof != "partly verified":
            return self._again(session, _missing(verdict, command), verdict, answer)
        return None

    def finished(self, session: Session, event: TurnFinished) -> TurnFinished:
        if event.outcome == "waiting" or session not in self._records:
            return event
        verdict = self._judge(session)
        return replace(event, proof=verdict.proof, proof_reason=verdict.reason)

    def _command(self) -> str:
        from lmagent.proof.checks import project_check

        if not (commands := self._choices.commands):
            return project_check(self._workspace)
        return commands[0] if len(commands) == 1 else " && ".join(f"({command})" for command in commands)

    def _again(self, session: Session, text: str, verdict: ProofVerdict, answer: str) -> Again:
        from lmagent.engine.endings import answer_of

        end = End("done", answer=answer_of(answer))
        if self._choices.required:
            fix = "see the changes with /diff, and run the check yourself"
            end = End("error", "unproven", f"not proven: {verdict.reason}", answer, fix)
        return Again("proof", text, TIMES, end)

    def _failure(self, session: Session, verdict: ProofVerdict) -> str:
        output = check.finished.content[-SHOWN:] if (check := self._record(session).check) else ""
        return (
            f"You are not done: {verdict.reason}. Mend it and give the final answer again; the check runs again then. "
            f"If it cannot pass, write BLOCKED: and the reason. The end of its output:\n```\n{output}\n```"
        )

    def _record(self, session: Session) -> Record:
        if (record := self._records.get(session)) is not None:
            return record
        from lmagent.proof.checks import code_of
        from lmagent.proof.verdict import Record

        def command_of(call: ToolCall) -> str:
            try:
                return session.wiring.toolbox.resolve(call).command or ""
            except ToolError:
                return ""

        def is_check(command: str) -> bool:
            return command in self._choices.commands or code_of(command) is not None

        record = self._records[session] = Record(command_of, is_check)
        for event in self._events(session.state.session):
            record.apply(event)
        session.listen(record.apply)
        return record

    def _judge(self, session: Session) -> ProofVerdict:
        from lmagent.proof.verdict import ProofVerdict, judge

        if session.state.work.parent is not None or not session.state.call_names:
            return ProofVerdict()  # the session above proves the work of a sub-agent; without calls nothing was changed
        record, choices = self._record(session), self._choices
        demanded = bool(choices.required or self._command())
        return judge(record, self._work(session, record), choices.commands, demanded)

    def _work(self, session: Session, record: Record) -> ChangedWork:
        from lmagent.core.changes import is_byproduct
        from lmagent.proof.checks import is_guard, is_product, makefile, package_scripts
        from lmagent.proof.verdict import ChangedWork

        kept = session.wiring.snapshots is not None
        work = ChangedWork(contained=kept and self._is_contained())
        recipes = f"{self._choices.commands} {makefile(self._workspace)} {package_scripts(self._workspace)}"
        written = record.delivered if kept else {**record.delivered, **record.written}
        seen = {path: seq for path, seq in written.items() if not is_byproduct(path)}
        guards = dict.fromkeys(path for path in seen if is_guard(path, recipes))
        for event in session.state.changes:
            if event.by:
                continue
            by_check = event.call_id in record.checks
            try:
                paths = [change.path for change in changes_of(session, event)]
            except (StoreError, DecodeError):
                work.unnamed = max(work.unnamed, 1 if by_check else event.seq)
                continue
            for path in paths:
                if is_byproduct(path) or (by_check and is_product(path)):
                    if path.endswith(".pyc") and not by_check:
                        guards[path] = None  # compiled code may run in place of its source
                    continue
                if is_guard(path, recipes):
                    guards[path] = None
                if by_check:
                    work.by_checks.append(path)
                else:
                    seen[path] = event.seq
        work.changed = {path: seq for path, seq in seen.items() if seq > record.verified}
        work.guards = list(guards)
        return work


def _missing(verdict: ProofVerdict, command: str) -> str:
    run = f"`{command}`" if command else "a check of the project (its tests; where it has none, write one first)"
    return (
        f"You are not done: {verdict.reason}. Run {run} after your last change, as a command of its own, and let "
        "it pass; then give the final answer. If it cannot pass, write BLOCKED: and the reason."
    )
