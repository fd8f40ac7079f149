"""Report: a summary of deep work, in a file for the user to read in the morning. The log has everything."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Struct

from lmagent.core import events as ev
from lmagent.core.errors import StoreError
from lmagent.core.plurals import plural
from lmagent.core.work import Task
from lmagent.engine import budget, worktext
from lmagent.engine.state import SessionState
from lmagent.store.files import make_private, replace_whole

FOLDER = (".lmagent", "reports")

MOST_FILES = 500
LONGEST = 300  # characters of a line


class Gathered(Struct):
    """The log's facts about the work; `seq` is the event that began it."""

    began: float = 0.0
    seq: int = 0
    ended: float = 0.0
    compactions: int = 0
    last: ev.TurnFinished | None = None


def write(workspace: Path, state: SessionState, events: Iterable[ev.DurableEvent]) -> Path:
    """Write the report, whole or not at all; return its path. Raise StoreError if it could not be written."""
    path = workspace.joinpath(*FOLDER, f"{state.session}.md")
    for folder in (path.parent, path.parent.parent):
        if folder.is_symlink():  # a link from a checkout could lead anywhere
            raise StoreError(f"{folder} is a link, so no report was written", fix="remove it")
    try:
        make_private(path.parent)
        replace_whole(path, path.with_suffix(f".{os.getpid()}"), text(state, gather(events)).encode("utf-8", "replace"))
    except OSError as trouble:
        raise StoreError(f"the report {path} could not be written: {trouble.strerror}") from None
    return path


def gather(events: Iterable[ev.DurableEvent]) -> Gathered:
    found = Gathered()
    for event in events:
        found.ended = event.ts or found.ended
        match event:
            case ev.WorkChanged() if event.mode == "plan" or not found.began:
                found = Gathered(began=event.ts, seq=event.seq, ended=event.ts)
            case ev.CompactionDone():
                found.compactions += 1
            case ev.TurnFinished():
                found.last = event
            case _:
                pass
    return found


def text(state: SessionState, found: Gathered) -> str:
    work, last = state.work, found.last
    used, total = budget.used(state), work.budget
    title = work.plan.title if work.plan is not None else state.title
    parts = [f"# {_line(title) or state.session}", ""]
    if last is not None:
        parts += [f"**{_line(f'{last.outcome}: {last.reason}' if last.reason else last.outcome)}**", ""]
    took = timedelta(seconds=max(0, round(found.ended - found.began)))  # clocks can be set back
    parts += [
        f"- time: {_when(found.began)} to {_when(found.ended)}, {took}",
        f"- model calls: {_of(used.steps, total.steps)}, sub-agents included",
        f"- tokens: {_of(used.tokens, total.tokens)}",
        f"- conversation shortened: {plural(found.compactions, 'time')}",
        f"- everything, word for word: [the log](../sessions/{state.session}/events.jsonl); "
        f"`lmagent sessions show {state.session}`",
        "",
    ]
    if work.plan is not None:
        parts += ["## Goal", "", work.plan.goal, ""]
    parts += ["## The last message", "", (last.answer if last else "") or "(nothing)", ""]
    parts += ["## Tasks", "", *_tasks(tuple(work.tasks.values())), ""]
    parts += ["## Files changed", "", *_files(state, found.seq), ""]
    return "\n".join(parts)


def _tasks(tasks: Sequence[Task]) -> list[str]:
    if not tasks:
        return ["none"]
    marks = {"completed": "x", "skipped": "-"}
    rows = [f"- [{marks.get(task.status, ' ')}] {worktext.row(task)[2:]}" for task in tasks]
    return [f"{worktext.counted(tasks)} over", "", *rows]


def _files(state: SessionState, since: int) -> list[str]:
    """List the changed paths that were not restored; only a count for a call that changed very many."""
    changed = Counter[str]()
    for event in state.changes:
        if event.seq >= since:
            many = f"{plural(event.count, 'path')}, by {event.tool}"
            changed.update([change.path for change in event.changes] or [many])
    rows = [f"- `{_line(path)}`{f' ({count} times)' if count > 1 else ''}" for path, count in changed.items()]
    return (rows[:MOST_FILES] + [f"- and {len(rows) - MOST_FILES} more"] * (len(rows) > MOST_FILES)) or ["none"]


def _of(spent: int | None, limit: int | None) -> str:
    return f"{spent or 0:,}" if limit is None else f"{spent or 0:,} of {limit:,}"


def _when(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}" if seconds else "?"


def _line(words: str) -> str:
    line = " ".join(words.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
