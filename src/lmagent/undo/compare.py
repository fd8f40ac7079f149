"""Compare: two states of a workspace, and what changed between them."""

from __future__ import annotations

from collections.abc import Callable

from lmagent.core.changes import Change, PathState
from lmagent.undo.names import join
from lmagent.undo.records import Record, Tree, state
from lmagent.undo.scan import Taken

NOT_KEPT = "its content was not kept before the call"
_IN_PLACE = "it was changed in place, and only a hard link to it was kept"
_NOTHING = dict[str, Record]()


def differences(before: Taken, after: Taken, has: Callable[[str, int], bool]) -> list[Change]:
    """What changed, in path order; what one of the walks could not look at is left out.

    Args:
        before: one state.
        after: a later one.
        has: whether a content (id, size) can be restored.
    """
    blind = before.blind | after.blind
    found = list[Change]()
    for folder in before.tree.keys() | after.tree.keys():
        old, new = before.tree.get(folder, _NOTHING), after.tree.get(folder, _NOTHING)
        if old is new or (blind and _is_below(folder, blind)):
            continue
        for name in old.keys() | new.keys():
            was, now = old.get(name), new.get(name)
            if was != now and (change := _change(join(folder, name), state(was), state(now), has)) is not None:
                found.append(change)
    return sorted(found, key=lambda change: change.path)


def same_tree(one: Tree, other: Tree) -> bool:
    """Whether two trees are equal; quick, since what did not change is shared."""
    return one.keys() == other.keys() and all(other[folder] is names for folder, names in one.items())


def _change(path: str, was: PathState | None, now: PathState | None, has: Callable[[str, int], bool]) -> Change | None:
    if was == now:  # another inode, or a link more
        return None
    lost = ""
    if was is not None and was.kind == "file" and not _is_same_content(was, now):
        if not was.sha256:
            lost = NOT_KEPT
        elif was.sha256.startswith("link:") and not has(was.sha256, was.size):
            lost = _IN_PLACE
    return Change(path, was, now, lost)


def _is_same_content(was: PathState, now: PathState | None) -> bool:
    return now is not None and (was.kind, was.sha256, was.size, was.mtime) == (
        now.kind,
        now.sha256,
        now.size,
        now.mtime,
    )


def _is_below(folder: str, blind: set[str]) -> bool:
    if folder in blind or "" in blind:
        return True
    end = folder.find("/")
    while end >= 0:
        if folder[:end] in blind:
            return True
        end = folder.find("/", end + 1)
    return False
