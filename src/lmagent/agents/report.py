"""Report: how a sub-agent ends. Its report ends its turn; a sub-agent without a report is asked for one, twice.

A report is checked on the disk, by path. A file counts if it exists in the workspace, this sub-agent changed it
(according to its recorded calls) and it has the promised format. A file that is untouched was not delivered.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lmagent.agents.feature import ReportArgs
from lmagent.agents.orders import inside, named
from lmagent.core.errors import ToolError
from lmagent.core.events import FilesChanged, ResultReported, SessionCreated
from lmagent.core.tool import ToolOutput
from lmagent.core.work import Brief, ChildResult, Deliverable
from lmagent.engine.budget import over
from lmagent.engine.review import Again, End
from lmagent.engine.session import Session
from lmagent.engine.undo import changes_of, is_shared

if TYPE_CHECKING:
    from lmagent.engine.endings import Ending  # its patterns take 2 ms

NUDGES = 2
NUDGE = "[You are a sub-agent and have not reported. Call use_tool with report_result now; say in it what you found.]"
TOLD = "deliverable"
"""The name under which a session remembers that its report was sent back once."""


LARGEST = 20_000_000
"""Bytes of a file up to which its content is looked at."""

PARSED = ("json", "jsonl", "ndjson")
"""Formats that are checked; a file of another one only has to hold something."""

UNREADABLE = (ValueError, RecursionError, MemoryError)
"""Errors of the parser on content that does not follow its format."""

Touched = Callable[[str], bool]
"""Whether the sub-agent has changed the file at a path."""


async def report(child: Session, arguments: ReportArgs) -> ToolOutput:
    """Record the report of a sub-agent, once a turn.

    Raises ToolError if no session waits for one, or it differs from the order and the sub-agent can still correct it.
    """
    if child.above is None:
        raise ToolError("No session waits for a report: this one works for no other. Give your answer as text.")
    brief = brief_of(child)
    if reported_now(child) is None and brief is not None:
        await child.record(ResultReported(result=_judged(child, brief, arguments)), sync=True)
    return ToolOutput("Reported.")


def reported_now(child: Session) -> ChildResult | None:
    """Return the report of a sub-agent in this turn; a user's message after the report starts another turn."""
    work = child.state.work
    return work.reported if work.reported_in == child.state.turn else None


def brief_of(child: Session) -> Brief | None:
    if child.above is None:
        return None
    begun = child.above.state.work.children.values()
    return next((started.brief for started in begun if started.child == child.state.session), None)


def _judged(child: Session, brief: Brief, arguments: ReportArgs) -> ChildResult:
    """Check a report against the disk. Raises ToolError, once, if it differs from the order."""
    state = child.state
    workspace, touched = child.wiring.workspace, touched_by(child)
    result = ChildResult(
        agent_id=state.session,
        status=arguments.status,
        summary=arguments.summary,
        artifacts=(*named(brief.deliverable), *arguments.artifacts),
        data=arguments.data,
        error=arguments.error,
        iterations=state.steps_total,
        created_at=child.wiring.clock.now(),
    )
    found = faults(workspace, brief.deliverable, result, touched) if result.status == "ok" else []
    if found and TOLD not in child.warned:
        child.warned.add(TOLD)
        raise ToolError(f"Not reported: {'; '.join(found)}. Set that right, or report partial with the reason.")
    if found:
        reasons = filter(None, (result.error, *found))
        result = msgspec.structs.replace(result, status="partial", error="; ".join(reasons))
    return kept(workspace, result, touched)


def after_calls(child: Session, parent: Session) -> End | None:
    """End the turn after the report, or when the budget that the sub-agent shares with others is used up."""
    if (reported := reported_now(child)) is not None:
        return End("done", answer=reported.summary)
    if reason := overspent(parent):
        return End("limit", "shared", reason)
    return None


def at_end(child: Session, ending: Ending, answer: str) -> End | Again | None:
    if (reported := reported_now(child)) is not None:
        return End("done", answer=reported.summary)
    if ending.kind != "done":
        return None
    return Again("report", NUDGE, NUDGES, End("done", "no_report", answer=answer))


# --- the budget that a session shares with the sub-agents that work for it --------------------------------------------


def overspent(session: Session | None) -> str:
    """Return why a session and its sub-agents may spend no more; empty while something is left."""
    while session is not None:
        if (end := over(session, steps=0)) is not None:
            return end.reason
        session = session.above
    return ""


# --- the files and the data that were ordered -------------------------------------------------------------------------


def touched_by(session: Session) -> Touched:
    """Return a test for the paths that a sub-agent, or one that it started, has changed.

    Where changes are not kept (`undo_mb` 0), the files that its file tools wrote count, and those newer than the
    session.
    """
    paths: set[str] = set()
    for event in session.state.changes:
        paths |= {change.path for change in changes_of(session, event)} - _beside(session, event)
    paths |= {path for path, mark in session.state.files.items() if mark.changed}
    if session.wiring.snapshots is not None:
        return paths.__contains__
    begun = next((event.ts for event in session.log.events() if isinstance(event, SessionCreated)), None)
    begun = begun or next((event.ts for event in session.opening), 0.0)

    def touched(path: str) -> bool:
        try:
            return path in paths or (session.wiring.workspace / path).stat().st_mtime >= begun
        except OSError:
            return False

    return touched


def _beside(session: Session, event: FilesChanged) -> set[str]:
    """Return the files that other sub-agents of the parent wrote by name while this command ran: its changes include
    them."""
    if session.above is None or not is_shared(event):
        return set()
    siblings = [child.state for child in session.above.children.values() if child is not session]
    written = [other for state in (session.above.state, *siblings) for other in state.changes if not is_shared(other)]
    return {change.path for other in written if other.ts >= event.ts - event.seconds for change in other.changes}


def faults(workspace: Path, wanted: Deliverable, result: ChildResult, touched: Touched) -> list[str]:
    """Return a sentence for each fault of a report; empty if everything that was ordered is there."""
    match wanted.type:
        case "report":
            return [] if result.summary.strip() else ["the summary is empty, and it is the report"]
        case "data":
            return _data_faults(wanted, result.data)
        case "file" | "files":
            paths = named(wanted) or result.artifacts
            if not paths:
                return ["files were ordered, and artifacts names none"]
            return [fault for path in paths if (fault := _fault(workspace, path, wanted, touched))]


def kept(workspace: Path, result: ChildResult, touched: Touched) -> ChildResult:
    """Reduce the artifacts of a result to files that the sub-agent changed."""
    found = dict[str, None]()
    for artifact in result.artifacts:
        path = inside(workspace, artifact)
        if path is not None and touched(path) and not _missing(workspace, path):
            found[path] = None
    return msgspec.structs.replace(result, artifacts=tuple(found))


def _fault(workspace: Path, artifact: str, wanted: Deliverable, touched: Touched) -> str:
    path = inside(workspace, artifact)
    if path is None:
        return f"{artifact} is not a path in the workspace"
    if missing := _missing(workspace, path):
        return f"{path} {missing}"
    if not touched(path):
        return f"{path} was there before and you have not changed it"
    return _content_fault(workspace / path, path, wanted)


def _missing(workspace: Path, path: str) -> str:
    try:
        found = os.lstat(workspace / path)
    except (OSError, ValueError):
        return "does not exist"
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file"
    return ""


def _content_fault(file: Path, path: str, wanted: Deliverable) -> str:
    form = wanted.format.lower().strip().lstrip(".") or ("json" if wanted.schema is not None else "")
    try:
        if file.stat().st_size > LARGEST:
            return ""
        content = file.read_bytes()
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    if not content.strip():
        return f"{path} is empty"
    if form not in PARSED:
        return ""
    try:
        value = _read(content, form)
    except UNREADABLE as fault:
        return f"{path} is no valid {form}: {fault}"
    return _schema_fault(path, wanted.schema, value) if wanted.schema is not None and form == "json" else ""


def _read(content: bytes, form: str) -> Any:
    """Parse JSON or JSON Lines; raises if the content is neither."""
    if form == "json":
        return msgspec.json.decode(content)
    return [msgspec.json.decode(line) for line in content.splitlines() if line.strip()]


def _data_faults(wanted: Deliverable, data: Any) -> list[str]:
    if data is None:
        return ["data was ordered, and data is empty"]
    values, form = [data], wanted.format.lower()
    if isinstance(data, str):  # many models write JSON into a string
        try:
            values.append(_read(data.encode("utf-8", "replace"), form if form in PARSED else "json"))
        except UNREADABLE as fault:
            if form in PARSED:
                return [f"data is no valid {form}: {fault}"]
    if wanted.schema is None:
        return []
    found = [_schema_fault("data", wanted.schema, value) for value in values]
    return [] if "" in found else found[-1:]


def _schema_fault(name: str, schema: dict[str, Any], value: Any) -> str:
    from jsonschema import Draft202012Validator

    try:
        found = Draft202012Validator(schema).iter_errors(value)  # type: ignore[reportUnknownMemberType]
        first = next(iter(found), None)
    except Exception as fault:  # noqa: BLE001  a model wrote the schema: a reference may lead nowhere, or to itself
        return f"{name} cannot be held against the schema, which is at fault: {type(fault).__name__}: {fault}"
    return f"{name} does not follow the schema: {first.json_path}: {first.message}" if first is not None else ""
