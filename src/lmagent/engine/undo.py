"""Undo: what calls changed in the workspace is recorded with them, can be taken back and done again, and shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import anyio
import msgspec

from lmagent.core.changes import Change, PathState, Snapshots
from lmagent.core.commands import Redo, Undo
from lmagent.core.errors import LmagentError
from lmagent.core.events import FilesChanged, FilesRestored, MessageAdded
from lmagent.core.messages import user

if TYPE_CHECKING:
    from lmagent.engine.session import Session

INLINE = 100
"""Changes up to which they stand in the event itself."""

SHOWN = 12
"""Paths that the model is told by name."""

LARGEST_DIFF = 200_000
"""Bytes of a file up to which /diff shows its lines."""


async def record_changes(session: Session, call_id: str, tool: str, paths: Sequence[str] | None) -> None:
    """Record what a call has changed since `Snapshots.before`, if it has changed anything."""
    snapshots = session.wiring.snapshots
    if snapshots is None:
        return
    changes = tuple(await snapshots.after(paths))
    if not changes:
        return
    blob = ""
    if len(changes) > INLINE:
        blob = await session.log.put_blob(msgspec.json.encode(changes))
    unkept = tuple(change.path for change in changes if change.lost)[:INLINE]
    inline = () if blob else changes
    await session.record(
        FilesChanged(call_id=call_id, tool=tool, count=len(changes), changes=inline, blob=blob, unkept=unkept)
    )


async def restore(session: Session, command: Undo | Redo) -> FilesRestored:
    """Take changes back, or do them again, and tell the model.

    Raises:
        LmagentError: a turn is running, or there is nothing to take back or to do again.
        StoreError: the log or the workspace cannot be written.
    """
    snapshots = session.wiring.snapshots
    if snapshots is None:
        raise LmagentError("changes are not kept in this session, so nothing can be taken back")
    if session.running:
        raise LmagentError("the agent is at work", fix="interrupt it first")
    events = _chosen(session, command)
    to: Literal["before", "after"] = "before" if isinstance(command, Undo) else "after"
    if not events:
        raise LmagentError("there is nothing to undo" if to == "before" else "there is nothing to redo")
    changes = [change for event in events for change in changes_of(session, event)]
    restored = await snapshots.restore(changes, to)
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


def changes_of(session: Session, event: FilesChanged) -> tuple[Change, ...]:
    """The changes of an event, wherever they stand."""
    if not event.blob:
        return event.changes
    return msgspec.json.decode(session.log.get_blob(event.blob), type=tuple[Change, ...])


def kept_contents(session: Session) -> set[str]:
    """The contents that undo and redo of this session may ask for."""
    events = (*session.state.changes, *session.state.undone)
    states = (
        state for event in events for change in changes_of(session, event) for state in (change.before, change.after)
    )
    return {state.sha256 for state in states if state is not None and state.sha256}


async def diff(session: Session) -> str:
    """Everything that calls of the session changed and that stands, as one unified diff."""
    first: dict[str, PathState | None] = {}
    last: dict[str, PathState | None] = {}
    for event in session.state.changes:
        for change in changes_of(session, event):
            first.setdefault(change.path, change.before)
            last[change.path] = change.after
    snapshots = session.wiring.snapshots
    if snapshots is None:
        return ""
    paths = [path for path in sorted(last) if first[path] != last[path]]

    def show() -> list[str]:
        return [_difference(snapshots, path, first[path], last[path]) for path in paths]

    return "".join(await anyio.to_thread.run_sync(show))


def _chosen(session: Session, command: Undo | Redo) -> list[FilesChanged]:
    state = session.state
    stack = state.changes if isinstance(command, Undo) else state.undone
    if isinstance(command, Undo):
        if command.turn and stack:
            return [event for event in stack if event.turn == stack[-1].turn]
        return stack[-command.count :] if command.count else list(stack)
    return stack[: command.count] if command.count else list(stack)


def _told(event: FilesRestored) -> str:
    names = ", ".join(event.paths[:SHOWN])
    more = f" and {len(event.paths) - SHOWN} more" if len(event.paths) > SHOWN else ""
    did = "took back your changes of" if event.to == "before" else "did your changes again of"
    return f"[The user {did} {names}{more}. Read them again before you rely on them.]"


def _difference(snapshots: Snapshots, path: str, before: PathState | None, after: PathState | None) -> str:
    if _is_text_change(before, after):
        import difflib  # only who asks for a diff pays for it

        old, new = _text(snapshots, before), _text(snapshots, after)
        if old is not None and new is not None:
            lines = difflib.unified_diff(
                old.splitlines(keepends=True),
                new.splitlines(keepends=True),
                f"a/{path}" if before else "/dev/null",
                f"b/{path}" if after else "/dev/null",
            )
            return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return f"{_word(before, after)} {path} ({_brief(before)} → {_brief(after)})\n"


def _is_text_change(before: PathState | None, after: PathState | None) -> bool:
    states = [state for state in (before, after) if state is not None]
    contents = {state.sha256 for state in states}
    return all(state.kind == "file" and state.size <= LARGEST_DIFF for state in states) and (
        len(states) == 1 or len(contents) == 2
    )


def _text(snapshots: Snapshots, state: PathState | None) -> str | None:
    if state is None:
        return ""
    content = snapshots.content(state.sha256)
    if content is None or b"\0" in content[:8000]:
        return None
    return content.decode("utf-8", "replace")


def _word(before: PathState | None, after: PathState | None) -> str:
    return "created" if before is None else "deleted" if after is None else "changed"


def _brief(state: PathState | None) -> str:
    if state is None:
        return "nothing"
    if state.kind == "link":
        return f"link to {state.target}"
    return f"{state.kind}, {state.size} bytes, mode {state.mode:o}" if state.kind == "file" else state.kind
