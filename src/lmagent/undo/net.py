"""Combines several changes of one path into one target state."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Literal

from msgspec import Struct

from lmagent.core.changes import Change, PathState, UndoRefusal
from lmagent.undo.compare import NOT_KEPT
from lmagent.undo.links import LINK
from lmagent.undo.names import is_path
from lmagent.undo.records import equal_contents

CHANGED_SINCE = "it was changed since, by you or another program"
_ID = re.compile(f"([0-9a-f]{{64}}|{LINK})?")
_LAST = 0xFFFF_FFFF


class WantedState(Struct, frozen=True):
    """The state that a path is to get.

    Attributes:
        path: escaped, relative to the workspace.
        have: the state that it should have now.
        lost: the reason to give if the wanted content is gone.
        hollow: why the contents of the folder cannot be restored; else empty.
    """

    path: str
    have: PathState | None
    want: PathState | None
    lost: str = NOT_KEPT
    hollow: str = ""


def net(
    changes: Sequence[Change], to: Literal["before", "after"], hidden: Collection[str] = ()
) -> tuple[list[WantedState], list[UndoRefusal]]:
    """Return one target state a path, parents before their children, and refusals for the other paths.

    If the user or another program changed a path between two changes, that version is kept.

    Args:
        changes: oldest first.
        hidden: paths that are not touched, with everything below them.
    """
    paths = dict[str, list[Change]]()
    for change in changes if to == "after" else reversed(changes):
        paths.setdefault(change.path, []).append(change)
    wanted_states, refused = list[WantedState](), list[UndoRefusal]()
    for path in sorted(paths, key=lambda path: path.split("/")):
        if not _is_sound(path, paths[path], hidden):
            refused.append(UndoRefusal(path, "it is not a path of the workspace, or its record is damaged"))
            continue
        goal, broken = _fold(path, paths[path], to)
        if broken:
            refused.append(UndoRefusal(path, f"{CHANGED_SINCE}, between two changes; that version is kept"))
        if goal.have != goal.want:
            wanted_states.append(goal)
    return wanted_states, refused


def same(one: PathState | None, other: PathState | None) -> bool:
    """Return whether two states are equal, apart from the time of a content that is known to be the same."""
    if one is None or other is None:
        return one is other
    if (one.kind, one.mode, one.target) != (other.kind, other.mode, other.target):
        return False
    if any(-1 not in pair and pair[0] != pair[1] for pair in ((one.uid, other.uid), (one.gid, other.gid))):
        return False
    equal = True if one.kind != "file" else equal_contents(one.sha256, other.sha256)
    return (one.size, one.mtime) == (other.size, other.mtime) if equal is None else equal


def _fold(path: str, changes: Sequence[Change], to: Literal["before", "after"]) -> tuple[WantedState, bool]:
    """Combine the changes of a path, which are in the order of the restore: newest first to take back."""
    have, want, reason = _sides(changes[0], to)
    broken = False
    for change in changes[1:]:
        near, far, other = _sides(change, to)
        if broken := not same(near, want):
            break
        want, reason = far, other
    if want is not None and want.kind == "folder":
        return WantedState(path, have, want, hollow=reason), broken
    fallback = NOT_KEPT if to == "before" else "its later content was not kept"
    return WantedState(path, have, want, reason or fallback), broken


def _sides(change: Change, to: Literal["before", "after"]) -> tuple[PathState | None, PathState | None, str]:
    if to == "before":
        return change.after, change.before, change.lost
    return change.before, change.after, ""


def _is_sound(path: str, changes: Sequence[Change], hidden: Collection[str]) -> bool:
    """Return whether the changes stay in the workspace: their log is in the workspace and may be forged."""
    if not is_path(path) or any(f"{path}/".startswith(f"{each}/") for each in hidden):
        return False
    states = [state for change in changes for state in (change.before, change.after) if state is not None]
    return all(
        _ID.fullmatch(state.sha256)
        and 0 <= state.mode <= 0o7777
        and all(-1 <= number <= _LAST for number in (state.uid, state.gid))
        and "\0" not in state.target
        for state in states
    )
