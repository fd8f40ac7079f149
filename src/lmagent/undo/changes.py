"""Changes: what differs between two states of a workspace, and what several changes of a path come to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.changes import Change, PathState, UndoRefusal
from lmagent.undo.limits import is_of_git
from lmagent.undo.objects import CONTENT
from lmagent.undo.records import Record, Tree, join, same_content, state
from lmagent.undo.states import State

CHANGED_SINCE = "it was changed since, by you or another program"
_NOTHING = dict[str, Record]()
_LAST = 0xFFFF_FFFF

Loss = Callable[[Record], str]
"""Why the earlier content of a changed file is lost; empty if it is kept."""


class WantedState(Struct, frozen=True):
    """The state that an escaped path is to get, if it has the state `have` now.

    `lost` is why the wanted content, or the contents of the folder, cannot be restored.
    """

    path: str
    have: PathState | None
    want: PathState | None
    lost: str = ""


def differences(before: State, after: State, loss: Loss) -> list[Change]:
    """Return the changes in path order, without paths below a folder that one of the walks could not look into."""
    blind = before.blind | after.blind
    found = list[Change]()
    for folder in before.tree.keys() | after.tree.keys():
        old, new = before.tree.get(folder, _NOTHING), after.tree.get(folder, _NOTHING)
        if old is new or (blind and _is_below(folder, blind)):
            continue
        for name in old.keys() | new.keys():
            was, now = old.get(name), new.get(name)
            if was != now and (change := _change(join(folder, name), was, now, loss)) is not None:
                if unseen := before.blind.get(change.path) or after.blind.get(change.path):
                    change = replace(change, lost=f"its contents were not kept: {unseen}")
                found.append(change)
    return sorted(found, key=lambda change: change.path)


def same_tree(one: Tree, other: Tree) -> bool:
    """Quick, since unchanged folders are shared."""
    return one.keys() == other.keys() and all(other[folder] is names for folder, names in one.items())


def _change(path: str, before: Record | None, after: Record | None, loss: Loss) -> Change | None:
    was, now = state(before), state(after)
    if was == now:  # another inode, or one more link
        return None
    if was is None or before is None or was.kind != "file":
        return Change(path, was, now)
    if now is not None and now.kind == "file":
        if same_content(was, now):
            return Change(path, was, now)
        if (
            was.sha256.startswith("link:")
            and is_of_git(path)
            and was == replace(now, sha256=was.sha256, mtime=was.mtime)
        ):
            return None
    return Change(path, was, now, loss(before))


def _is_below(folder: str, blind: Container[str]) -> bool:
    parts = folder.split("/")
    return "" in blind or any("/".join(parts[:depth]) in blind for depth in range(1, len(parts) + 1))


def net(
    changes: Sequence[Change], to: Literal["before", "after"], hidden: Collection[str] = ()
) -> tuple[list[WantedState], list[UndoRefusal]]:
    """Return one target state a path, parents before their children, and refusals for the other paths.

    `changes` are in their order. If the user or another program changed a path between two of them, that version is
    kept; `hidden` paths are not touched, with everything below them.
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


def _fold(path: str, changes: Sequence[Change], to: Literal["before", "after"]) -> tuple[WantedState, bool]:
    """Combine the changes of a path, which are in the order of the restore: newest first to take back."""
    goal, broken = WantedState(path, *_sides(changes[0], to)), False
    for change in changes[1:]:
        near, far, lost = _sides(change, to)
        if broken := not _same(near, goal.want):
            break
        goal = WantedState(path, goal.have, far, lost)
    return goal, broken


def _sides(change: Change, to: Literal["before", "after"]) -> tuple[PathState | None, PathState | None, str]:
    if to == "before":
        return change.after, change.before, change.lost
    return change.before, change.after, ""


def _same(one: PathState | None, other: PathState | None) -> bool:
    """Return whether two states are equal, apart from the time of a content that is known to be the same."""
    if one is None or other is None:
        return one is other
    if (one.kind, one.mode, one.target) != (other.kind, other.mode, other.target):
        return False
    if any(-1 not in pair and pair[0] != pair[1] for pair in ((one.uid, other.uid), (one.gid, other.gid))):
        return False
    if one.kind != "file" or same_content(one, other):
        return True
    known = len(one.sha256) == len(other.sha256) == 64  # hashes, not links
    return not known and (one.size, one.mtime) == (other.size, other.mtime)


def _is_sound(path: str, changes: Sequence[Change], hidden: Collection[str]) -> bool:
    """Return whether the changes stay in the workspace: their log is in the workspace and may be forged."""
    if "\0" in path or not {"", ".", ".."}.isdisjoint(path.split("/")):
        return False
    if any(f"{path}/".startswith(f"{each}/") for each in hidden):
        return False
    states = [state for change in changes for state in (change.before, change.after) if state is not None]
    return all(
        (not state.sha256 or CONTENT.fullmatch(state.sha256))
        and 0 <= state.mode <= 0o7777
        and all(-1 <= number <= _LAST for number in (state.uid, state.gid))
        and "\0" not in state.target
        for state in states
    )
