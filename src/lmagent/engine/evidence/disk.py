"""Disk: what the record of changes cannot tell: what was changed behind it, and what a project's targets run."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from lmagent.core.changes import PathState
from lmagent.engine.evidence.record import Evidence
from lmagent.engine.evidence.runners import Check
from lmagent.engine.undo import is_shared

MOST = 1000
"""Changed paths that are looked at, the latest first."""

LARGEST = 16 << 20
"""Bytes of a file that is read to see whether it is still the same."""

RECIPES = 200_000
"""Bytes of a Makefile or package.json that is looked into."""

_INTERPRETER = (
    r"(?:\b(?:ba|da|z|k)?sh|\bpython[\d.]*|\bnode|\bdeno run|\bbun(?: run)?|\bruby|\bperl|\bphp|\btsx|\bsource|\.)"
)
_BEGINS = r"(?:^|[;&|(@\"'])[\s@-]*"


def moved(workspace: Path, evidence: Evidence) -> dict[str, float]:
    """Changed paths that are not as the last call left them, and when somebody changed them, seconds since 1970.

    A process that was left behind, another session or a person: a check that ran before saw something else. What
    changes by itself all the time, as a server's data do, is passed over: what runs in the background counts against
    the check anyway, and a path that changed during a long command may be somebody else's.
    """
    last = dict[str, PathState | None]()
    for event in () if evidence.jobs else evidence.standing.values():
        for change in event.changes:
            if is_shared(event):
                last.pop(change.path, None)
            elif change.path in evidence.touched:
                last[change.path] = change.after
    found = dict[str, float]()
    for path, state in list(last.items())[-MOST:]:
        if "\\" not in path and evidence.by.get(path) and (at := _changed_at(workspace / path, state)):
            found[path] = at
    return found


def recipe(workspace: Path, check: Check) -> str:
    """What a check by a project's own target or script may run; the command itself where it is a person's own."""
    program = check.name.split(" ")[0]
    folder = workspace / check.folder
    if program == "make":
        return "\n".join(beginning(folder / name) for name in ("GNUmakefile", "makefile", "Makefile"))
    if program in ("npm", "pnpm", "yarn", "bun"):
        with suppress(ValueError, RecursionError):
            package: Any = json.loads(beginning(folder / "package.json"))
            scripts: Any = package.get("scripts") if isinstance(package, dict) else None  # type: ignore[reportUnknownMemberType]
            return "\n".join(map(str, scripts.values())) if isinstance(scripts, dict) else ""  # type: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        return ""
    return check.name


def is_run_by(path: str, recipe: str) -> bool:
    """Whether a recipe runs a file of the workspace as a program, by an interpreter or by itself."""
    if not recipe or path.rpartition("/")[2] not in recipe:
        return False
    by_itself = rf"{_BEGINS}\./" + (f"|{_BEGINS}" if "/" in path else "")
    by_name = rf"(?:{_INTERPRETER}\s+(?:-[\w-]+\s+){{0,4}}(?:\./)?|{by_itself}){re.escape(path)}"
    return re.search(rf"{by_name}(?![\w./-])", recipe, re.MULTILINE) is not None


def beginning(path: Path) -> str:
    """The beginning of a project's file, up to `RECIPES` bytes; empty where there is none."""
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return file.read(RECIPES).decode("utf-8", "replace")
    return ""


def _changed_at(path: Path, state: PathState | None) -> float:
    """When a path became something else than it was left as; 0 where it is the same."""
    try:
        now = os.lstat(path)
    except (OSError, ValueError):
        return _folder_changed_at(path) if state is not None else 0.0
    at = max(now.st_mtime, now.st_ctime)
    if state is None:
        return at
    if state.kind == "link":
        with suppress(OSError):
            return 0.0 if os.readlink(path) == state.target else at
        return at
    if state.kind != "file":
        return 0.0
    if not stat.S_ISREG(now.st_mode) or now.st_size != state.size:
        return at
    if now.st_mtime_ns == state.mtime or not state.sha256 or now.st_size > LARGEST:
        return 0.0
    with suppress(OSError):
        return 0.0 if hashlib.sha256(path.read_bytes()).hexdigest() == state.sha256 else at
    return at


def _folder_changed_at(path: Path) -> float:
    """When a path that is gone was taken away, as far as the folder above it tells."""
    for folder in path.parents:
        with suppress(OSError, ValueError):
            return os.lstat(folder).st_mtime
    return 0.0
