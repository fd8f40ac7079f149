"""Undo: record the changes that calls make in the workspace, revert and reapply them, and show them.

The file system does not record who changed a path: a change between the scans before and after a call counts as the
call's. A call that names its paths leaves no room for others. A long-running command does, and so does a call whose
process died: see `is_shared`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

import anyio
import msgspec
from msgspec import Struct

from lmagent.core.changes import Change, PathState, Snapshots, is_byproduct
from lmagent.core.commands import Redo, Undo
from lmagent.core.decoding import decode_json
from lmagent.core.errors import LmagentError, StoreError, ToolError
from lmagent.core.events import DurableEvent, FilesChanged, FilesRestored, MessageAdded, ToolStarted
from lmagent.core.ids import new_id
from lmagent.core.messages import user

if TYPE_CHECKING:
    from lmagent.engine.session import Session
    from lmagent.engine.toolbox import Invocation

T = TypeVar("T")

EFFECTS = ("write", "exec")
"""Effects of calls whose changes are kept."""

SOON = 1.0
"""Seconds within which all changes are taken to be the command's own."""

INLINE = 100
"""Up to this many changes are in the event itself, more in a blob."""

SHOWN = 12
"""Paths that the model's note names."""

USER = "user"
"""Prefix of the call id of the user's own changes."""

LARGEST_DIFF = 200_000
"""Larger files, in bytes, are shown in /diff without their lines."""


class UndoWatch(Struct, frozen=True):
    """A call whose changes are recorded.

    Attributes:
        paths: the paths that it may change; None for all.
        began: when the scan before it began: from then on others may change files too.
    """

    call_id: str
    tool: str
    paths: tuple[str, ...] | None
    began: float
    by: str = ""


async def keep_before(session: Session, invocation: Invocation) -> UndoWatch | None:
    """Keep the state that a call may change: the paths that a writing tool names, everything for a command.

    Raises ToolError: it cannot be kept, so the call must not be made.
    """
    tool, call, snapshots = invocation.tool, invocation.call, session.wiring.snapshots
    if snapshots is None or tool.effect not in EFFECTS:
        return None
    paths = invocation.targets if tool.effect == "write" and invocation.targets else None
    return await _keep(session, snapshots, UndoWatch(call.id, tool.name, paths, session.wiring.clock.monotonic()))


def user_change(session: Session, what: str, path: str, by: str) -> UndoWatch:
    """Return the watch for the user's own change of a file."""
    return UndoWatch(f"{USER}-{new_id()}", what, (path,), session.wiring.clock.monotonic(), by)


async def change_for_user(session: Session, watch: UndoWatch, summary: str, write: Callable[[], Awaitable[T]]) -> T:
    """Carry out the user's own change of a file, kept and recorded like that of a call.

    Exceptions of `write` are raised again, and its changes up to then are recorded.

    Raises:
        ToolError: the state before the change cannot be kept; nothing was written.
        StoreError: the log cannot be written.
    """
    snapshots = session.wiring.snapshots
    if snapshots is None:
        return await write()
    await _keep(session, snapshots, watch)
    started = ToolStarted(call_id=watch.call_id, tool=watch.tool, effect="write", summary=summary)
    await session.record(started, sync=True)  # if the process dies from here on, `record_interrupted` finds it
    try:
        return await write()
    finally:
        with anyio.CancelScope(shield=True):
            await record_changes(session, watch)


async def _keep(session: Session, snapshots: Snapshots, watch: UndoWatch) -> UndoWatch:
    try:
        refusals = await snapshots.before(watch.paths, _name(session, watch.call_id))
    except StoreError as trouble:
        text = f"{watch.tool} was not run: {trouble.message}"
        await _warn(session, "undo_failed", text, trouble)
        words = f"Not run: {trouble.message}. Only the user can change that: {trouble.fix}."
        raise ToolError(words, data={"code": "undo_failed"}) from trouble
    for refusal in refusals:
        text = f"{refusal.path} cannot be brought back by /undo: {refusal.reason}"
        await _warn(session, "not_kept", text)
    return watch


async def record_changes(session: Session, watch: UndoWatch | None) -> None:
    """Record the changes that a call has made since `keep_before`, if any."""
    snapshots = session.wiring.snapshots
    if snapshots is None or watch is None:
        return
    name = _name(session, watch.call_id)
    changes = await snapshots.after(watch.paths, name)
    seconds = session.wiring.clock.monotonic() - watch.began
    event = FilesChanged(call_id=watch.call_id, tool=watch.tool, count=len(changes), by=watch.by)
    if watch.paths is None:
        event = msgspec.structs.replace(event, seconds=math.ceil(seconds * 10) / 10)
    await _record(session, event, changes)
    await snapshots.forget(name)


async def record_interrupted(session: Session, *, anew: bool = False) -> list[DurableEvent]:
    """Record the changes of calls whose process died before it recorded them; return the notices.

    `anew`: the session was just opened, so no change of the user is running in this process.
    """
    snapshots, told = session.wiring.snapshots, list[DurableEvent]()
    if snapshots is None:
        return told
    for started in [one for one in session.state.started.values() if one.effect in EFFECTS]:
        own = started.call_id.startswith(f"{USER}-")
        if own and not anew:
            continue
        name = _name(session, started.call_id)
        try:
            changes = () if _is_recorded(session, started) else await snapshots.interrupted(name)
        except LmagentError as trouble:
            text = f"what {_title(started)} changed before it was cut off cannot be looked for: {trouble.message}"
            told += await _warn(session, "undo_failed", text, trouble)
            continue
        if changes:
            by = USER if own else ""
            event = FilesChanged(
                call_id=started.call_id, tool=started.tool, count=len(changes), interrupted=True, by=by
            )
            await _record(session, event, changes)
            text = (
                f"{_title(started)} was cut off; {len(changes)} paths changed since it began, "
                "perhaps some of them by others: /diff shows them, /undo takes them back"
            )
            told += await _warn(session, "interrupted_changes", text)
        await snapshots.forget(name)
    return told


def is_shared(event: FilesChanged) -> bool:
    """Return whether the changes of a call may include changes by others."""
    return event.interrupted or event.seconds > SOON


def shared_with(events: Sequence[FilesChanged]) -> str:
    """Return a warning for the user before these changes are reverted; empty if they are only the calls'."""
    shared = [event for event in events if is_shared(event)]
    if not shared:
        return ""
    if len(shared) > 1:
        what, time = f"{len(shared)} commands ran for longer than a second or were cut off", "meanwhile"
    elif shared[0].interrupted:
        what, time = "the call was cut off", "until the session was opened again"
    else:
        what, time = f"the command ran for {shared[0].seconds:.0f} s", "meanwhile"
    return f"{what}, so what you or another program changed {time} is among these paths"


def _name(session: Session, call_id: str) -> str:
    return f"{session.state.session}/{call_id}"


def _title(started: ToolStarted) -> str:
    return started.summary or started.tool


def _is_recorded(session: Session, started: ToolStarted) -> bool:
    events = (*session.state.changes, *session.state.undone)
    return any(event.call_id == started.call_id and event.seq > started.seq for event in events)


async def _warn(session: Session, code: str, text: str, trouble: LmagentError | str = "") -> list[DurableEvent]:
    """Notify the user, once; return the recorded events."""
    if text in session.warned:
        return []
    session.warned.add(text)
    return [await session.notify("info" if code == "not_kept" else "warning", code, text, trouble)]


async def _record(session: Session, event: FilesChanged, changes: Sequence[Change]) -> None:
    if not changes:
        return
    inline, blob = tuple(changes), ""
    if len(changes) > INLINE:
        inline, blob = (), await session.log.put_blob(msgspec.json.encode(inline))
    unkept = tuple(change.path for change in changes if change.lost)[:INLINE]
    await session.record(msgspec.structs.replace(event, changes=inline, blob=blob, unkept=unkept))


async def restore(session: Session, command: Undo | Redo) -> FilesRestored:
    """Revert changes, or reapply them, and notify the model.

    Raises:
        LmagentError: a turn is running, or there is nothing to revert or reapply.
        StoreError: the log or the workspace cannot be written.
    """
    snapshots = session.wiring.snapshots
    if snapshots is None:
        raise LmagentError("changes are not kept in this session, so nothing can be taken back")
    if session.running:
        raise LmagentError("the agent is at work", fix="interrupt it first")
    events = chosen(session, command)
    to: Literal["before", "after"] = "before" if isinstance(command, Undo) else "after"
    if not events:
        raise LmagentError("there is nothing to undo" if to == "before" else "there is nothing to redo")
    changes = [change for event in events for change in changes_of(session, event)]
    restored = await snapshots.restore(changes, to)
    turns = _whole_turns(session, events, to, {refusal.path for refusal in restored.refused})
    if (tasks := session.state.work.put_back(turns, to)) is not None:
        await session.record(tasks)  # first: if the process is killed in between, a repetition does no harm
    event = FilesRestored(
        events=tuple(event.id for event in events),
        to=to,
        paths=restored.paths,
        refused=restored.refused,
        by=command.by,
    )
    stored = await session.record(event, sync=True)
    assert isinstance(stored, FilesRestored)
    if restored.paths:
        await session.record(MessageAdded(message=user(_told(stored)), origin="note"))
    return stored


def _whole_turns(
    session: Session, events: Sequence[FilesChanged], to: Literal["before", "after"], refused: set[str]
) -> tuple[int, ...]:
    """Return the turns whose changes are all reverted, or all reapplied, after these."""
    state = session.state
    ids = {event.id for event in events}
    others = state.changes if to == "before" else state.undone
    partly = {event.turn for event in others if event.id not in ids and not event.by}
    partly |= {event.turn for event in events if any(change.path in refused for change in changes_of(session, event))}
    return tuple(sorted({event.turn for event in events if not event.by} - partly))


def chosen(session: Session, command: Undo | Redo) -> list[FilesChanged]:
    """Return the changes that a command selects, oldest first."""
    state = session.state
    stack = state.changes if isinstance(command, Undo) else state.undone
    if isinstance(command, Undo):
        if command.turn and stack and not stack[-1].by:
            return [event for event in stack if event.turn == stack[-1].turn and not event.by]
        return stack[-command.count :] if command.count else list(stack)
    return stack[: command.count] if command.count else list(stack)


def changes_of(session: Session, event: FilesChanged) -> tuple[Change, ...]:
    """Return the changes of an event, from its blob if it has one."""
    return changes_in(event, session.log.get_blob)


def changes_in(event: FilesChanged, get_blob: Callable[[str], bytes]) -> tuple[Change, ...]:
    """Return the changes of an event of a session that may not be open."""
    return decode_json(get_blob(event.blob), tuple[Change, ...]) if event.blob else event.changes


def kept_contents(session: Session) -> set[str]:
    """Return the SHA-256 of the contents that undo and redo may need."""
    events = (*session.state.changes, *session.state.undone)
    states = (
        state for event in events for change in changes_of(session, event) for state in (change.before, change.after)
    )
    return {state.sha256 for state in states if state is not None and state.sha256}


async def diff(session: Session) -> str:
    """Return all changes by calls of the session that were not reverted, as one unified diff."""
    snapshots = session.wiring.snapshots
    if snapshots is None:
        return ""
    changes = [change for event in session.state.changes for change in changes_of(session, event)]
    return await anyio.to_thread.run_sync(difference, snapshots, changes)


def difference(snapshots: Snapshots, changes: Iterable[Change]) -> str:
    """Return changes, given oldest first, as one unified diff."""
    first: dict[str, PathState | None] = {}
    last: dict[str, PathState | None] = {}
    for change in changes:
        first.setdefault(change.path, change.before)
        last[change.path] = change.after
    paths = [path for path in sorted(last) if first[path] != last[path]]
    return "".join(_difference(snapshots, path, first[path], last[path]) for path in paths)


def _told(event: FilesRestored) -> str:
    names = ", ".join(by_weight(event.paths)[:SHOWN])
    more = f" and {len(event.paths) - SHOWN} more" if len(event.paths) > SHOWN else ""
    did = "took back your changes of" if event.to == "before" else "did your changes again of"
    return f"[The user {did} {names}{more}. Read them again before you rely on them.]"


def by_weight(paths: Sequence[str]) -> list[str]:
    """Return the paths sorted; git's files and build products come last."""
    return sorted(paths, key=lambda path: (".git" in path.split("/") or is_byproduct(path), path))


def _difference(snapshots: Snapshots, path: str, before: PathState | None, after: PathState | None) -> str:
    old, new = _text(snapshots, before), _text(snapshots, after)
    if old is None or new is None or old == new:
        word = "created" if before is None else "deleted" if after is None else "changed"
        return f"{word} {path} ({_brief(snapshots, before)} → {_brief(snapshots, after)})\n"
    import difflib  # only a diff needs it

    names = f"a/{path}" if before else "/dev/null", f"b/{path}" if after else "/dev/null"
    lines = difflib.unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), *names)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _text(snapshots: Snapshots, state: PathState | None) -> str | None:
    """Return the text of a file, "" where nothing is; None for any other state, and a large file."""
    if state is None:
        return ""
    content = snapshots.content(state.sha256) if state.kind == "file" and state.size <= LARGEST_DIFF else None
    return None if content is None or b"\0" in content[:8000] else content.decode("utf-8", "replace")


def _brief(snapshots: Snapshots, state: PathState | None) -> str:
    if state is None:
        return "nothing"
    if state.kind == "link":
        return f"link to {state.target}"
    if state.kind != "file":
        return state.kind
    is_binary = state.size <= LARGEST_DIFF and _text(snapshots, state) is None
    return f"{'binary ' if is_binary else ''}file, {state.size} bytes, mode {state.mode:o}"
